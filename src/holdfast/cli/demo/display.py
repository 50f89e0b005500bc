"""How the demo is shown: a table that is refreshed, or one JSON object per snapshot."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from holdfast.cli.demo.monitor import DemoSnapshot
from holdfast.cli.output import console, print_json, print_line

if TYPE_CHECKING:
    from rich.table import Table

Show = Callable[[DemoSnapshot, tuple[str, ...]], None]


@contextmanager
def live_display(*, as_json: bool) -> Iterator[Show]:
    """Shows snapshots for the body."""
    if as_json:
        yield lambda snapshot, _: print_json(asdict(snapshot))
        return
    from rich.live import Live

    screen = console()
    with Live(console=screen, auto_refresh=False) as live:
        yield lambda snapshot, reasons: live.update(_table(snapshot, reasons), refresh=True)
    if not screen.is_terminal:
        screen.print()  # there the last table is printed without a newline


def _table(snapshot: DemoSnapshot, reasons: tuple[str, ...]) -> "Table":
    from rich.table import Table

    columns = ("produced", "stored", "distinct", "lag", "rows/s", "refused", "pipeline")
    made = Table(*columns, caption="; ".join(reasons))
    made.add_row(
        f"{snapshot.produced:,}",
        f"{snapshot.stored:,}",
        f"{snapshot.distinct:,}",
        "–" if snapshot.lag_rows is None else f"{snapshot.lag_rows:,}",
        f"{snapshot.rows_per_second:,.0f}",
        f"{snapshot.refused:,}",
        snapshot.state,
    )
    return made


def print_verdict(snapshot: DemoSnapshot, reasons: tuple[str, ...], *, as_json: bool) -> None:
    """Whether every event was stored exactly once."""
    if as_json:
        print_json({**asdict(snapshot), "exact": snapshot.exact, "reasons": reasons})
    elif snapshot.exact:
        print_line(
            f"{snapshot.stored:,} of {snapshot.produced:,} events are in ClickHouse, each exactly once", style="green"
        )
    else:
        found = f"{snapshot.stored:,} rows with {snapshot.distinct:,} distinct offsets of {snapshot.produced:,} events"
        print_line("; ".join([found, *reasons]), style="red")
