"""A snapshot on a terminal: a line of totals, then tables as tall as the screen allows. Cells are text, never markup."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from holdfast.cli.top.snapshot import Snapshot
from holdfast.vocabulary.text import escape_controls

if TYPE_CHECKING:
    from rich.console import RenderableType

_TABLE_LINES: Final = 4  # title, header, a rule, and a line between tables
_ROWS_MIN: Final = 3
_NONE: Final = "–"


def render(snapshot: Snapshot, *, height: int | None) -> "RenderableType":
    """The view; `height`: of the terminal, None for everything."""
    from rich.console import Group
    from rich.text import Text

    tables = [each for each in _tables(snapshot) if each[2]]
    gone = [
        Text(f"{_host(each.node)}: {escape_controls(each.reason)}", "red") for each in snapshot.nodes if not each.up
    ]
    fits = _fitting([len(rows) for _, _, rows in tables], None if height is None else height - 2 - len(gone))
    trouble = snapshot.leaderless or snapshot.under_replicated or gone
    line = (
        f"{len(snapshot.nodes) - len(gone)} of {len(snapshot.nodes)} nodes answer, {snapshot.agents_live} live agents   "
        f"{snapshot.partitions:,} partitions, {snapshot.leaderless:,} without a leader, "
        f"{snapshot.under_replicated:,} under-replicated"
    )
    shown: list[RenderableType] = []
    for (title, columns, rows), most in zip(tables, fits, strict=True):
        shown += [Text(), _table(title, columns, rows[:most], len(rows))]
    return Group(Text(line, "bold red" if trouble else "bold green", no_wrap=True, overflow="ellipsis"), *gone, *shown)


Cells = Sequence[Sequence[str]]


def _tables(snapshot: Snapshot) -> list[tuple[str, Sequence[str], Cells]]:
    nodes = [
        (
            _host(each.node),
            f"{each.partitions:,}",
            _number(each.requests_per_s),
            f"{each.connections:,}",
            f"{each.cpu:.2f}",
            size_text(each.memory_bytes),
            size_text(each.unpublished_bytes),
            duration_text(each.fsync_p99_s),
            duration_text(each.stall_p99_s),
        )
        for each in snapshot.nodes
        if each.up
    ]
    topics = [
        (
            each.topic,
            _number(each.records_per_s),
            size_text(each.bytes_in_per_s),
            size_text(each.bytes_out_per_s),
            size_text(each.backlog_bytes),
        )
        for each in snapshot.topics
    ]
    groups = [(each.group, f"{each.lag:,}", f"{each.change_per_s:+,.0f}", each.worst) for each in snapshot.groups]
    agents = [(each.agent, f"{each.leases:,}") for each in snapshot.agents]
    pipelines = [
        (
            each.pipeline,
            each.state,
            _number(each.rows_per_s),
            _NONE if each.lag_rows is None else f"{each.lag_rows:,}",
            _NONE if each.lag_s is None else f"{each.lag_s:,.0f} s",
            each.slots,
        )
        for each in snapshot.pipelines
    ]
    node_columns = ("node", "leads", "req/s", "clients", "cpu", "memory", "backlog", "fsync", "stall")
    return [
        ("nodes (fsync and stalls: p99)", node_columns, nodes),
        ("topics", ("topic", "records/s", "in/s", "out/s", "backlog"), topics),
        ("groups", ("group", "lag", "lag/s", "most behind"), groups),
        ("agents", ("agent", "leases"), agents),
        ("pipelines", ("pipeline", "state", "rows/s", "lag", "age", "slots"), pipelines),
    ]


def _host(url: str) -> str:
    return url.removeprefix("http://")


def _fitting(counts: Sequence[int], lines: int | None) -> list[int]:
    """How many rows each table gets: a few at least, the rest to whoever has more, in turn."""
    if lines is None:
        return list(counts)
    given = [min(count, _ROWS_MIN) for count in counts]
    left = lines - sum(given) - _TABLE_LINES * len(counts)
    while left > 0 and any(count > most for count, most in zip(counts, given, strict=True)):
        for at, count in enumerate(counts):
            if left > 0 and count > given[at]:
                given[at] += 1
                left -= 1
    return given


def _table(title: str, columns: Sequence[str], rows: Cells, total: int) -> "RenderableType":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    hidden = f", {total - len(rows):,} more" if total > len(rows) else ""
    made = Table(
        title=Text(f"{title}{hidden}"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        show_edge=False,
        expand=True,
    )
    for at, column in enumerate(columns):
        if at == 0:
            made.add_column(Text(column), no_wrap=True, overflow="ellipsis", ratio=1, min_width=14)
        else:
            made.add_column(Text(column), no_wrap=True, justify="right")
    for row in rows:
        made.add_row(*(Text(escape_controls(cell)) for cell in row))
    return made


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or not value else f"{value:.1f}"


def size_text(size_bytes: float) -> str:
    """`1.5 MiB`."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" or size >= 100 else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def duration_text(seconds: float | None) -> str:
    """`≤ 2.5 ms`: the bound of a bucket."""
    if seconds is None:
        return _NONE
    if seconds == float("inf"):
        return "> 1 s"
    return f"≤ {seconds * 1000:g} ms" if seconds < 1 else f"≤ {seconds:g} s"
