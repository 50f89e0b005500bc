"""Answers of the server as people see them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.client.http_client import printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

PIPELINES: Final = ("name", "state", "replicas", "recipe", "id")
WORKER_COLUMNS: Final = ("id", "mode", "able", "slots", "driver", "trouble")
DEAD_LETTER_COLUMNS: Final = ("generation", "partition", "offset", "reason", "payload", "replayed")
EVIDENCE_COLUMNS: Final = ("column", "type", "seen", "nulls", "absent", "why")
_PAYLOAD_CHARS: Final = 80


def table(title: str, rows: Iterable[Mapping[str, object]], columns: Sequence[str]) -> "Table":
    """A table; nothing in a cell is obeyed by the terminal or read as markup."""
    from rich.markup import escape
    from rich.table import Table

    made = Table(title=escape(printable(title)), title_justify="left")
    for number, column in enumerate(columns):
        made.add_column(escape(column), overflow="fold", no_wrap=number == 0)
    for row in rows:
        made.add_row(*(escape(cell(row.get(column))) for column in columns))
    return made


def cell(value: object) -> str:
    """One value in a table."""
    if value is None:
        return "–"
    if isinstance(value, (list, tuple)):
        return printable(", ".join(map(str, value)))
    return printable(value).replace("\n", "␤")


def pipeline_row(pipeline: Mapping[str, Any]) -> dict[str, object]:
    """A pipeline in a list."""
    return {**pipeline, "state": pipeline["state"]["desired"], "replicas": pipeline["state"]["replicas"]}


def dead_letter_row(letter: Mapping[str, Any]) -> dict[str, object]:
    """A refused record in a list."""
    payload = str(letter.get("payload") or "")
    shown = payload if len(payload) <= _PAYLOAD_CHARS else payload[:_PAYLOAD_CHARS] + "…"
    return {**letter, "payload": shown}


def seconds(value_ms: int | None) -> str:
    """A lag for people."""
    return "–" if value_ms is None else f"{value_ms / 1000:.1f} s"


def status(said: Mapping[str, Any]) -> "RenderableType":
    """A pipeline's status: a line, what is in the way, its slots and its partitions."""
    from rich.console import Group
    from rich.text import Text

    lag = "–" if said["lagRows"] is None else f"{said['lagRows']:,}"
    head = (
        f"{said['name']}: {said['state']} · {said['rows']:,} rows · {said['batches']:,} batches · "
        f"{said['dlqRows']:,} refused · lag {lag} rows, {seconds(said['lagMs'])} · "
        f"slots {said['slotsRunning']}/{said['replicas']} · recipe {said['recipe']}"
    )
    parts: list[RenderableType] = [Text(printable(head), style="bold")]
    parts += [Text(printable(f"! {each}"), style="red") for each in said["reasons"]]
    parts += [Text(printable(f"! {each}"), style="yellow") for each in (*said["warnings"], said["banner"]) if each]
    if said["slots"]:
        columns = ("generation", "slot", "workerId", "state", "rows", "batches", "dlqRows", "reason")
        parts.append(table("slots", said["slots"], columns))
    if said["partitions"]:
        columns = ("generation", "partition", "checkpoint", "end", "lagRows", "owner", "epoch", "pending")
        parts.append(table("partitions", said["partitions"], columns))
    return Group(*parts)
