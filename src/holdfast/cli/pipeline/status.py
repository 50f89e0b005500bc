"""`holdfast pipeline status`: rows, lag, slots, partitions, and why it does not run."""

import argparse
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.arguments import Parser, Parsers
from holdfast.cli.http_commands import http_client_for
from holdfast.cli.output import OK, console, print_json, table
from holdfast.cli.pipeline.options import add_command
from holdfast.client.http_client import HttpClient, pipeline_path
from holdfast.vocabulary.text import escape_controls

if TYPE_CHECKING:
    from rich.console import RenderableType

_WATCH_S: Final = 1.0
_STREAMING: Final = "structured-streaming"
_SLOT_COLUMNS: Final = ("generation", "slot", "workerId", "state", "rows", "batches", "dlqRows", "reason")
_PARTITION_COLUMNS: Final = ("generation", "partition", "checkpoint", "end", "lagRows", "owner", "epoch", "pending")


def add_to(actions: "Parsers[Parser]") -> None:
    """Register the subcommand."""
    made = add_command(
        actions, "status", "show rows, lag, slots, and why it does not run", "holdfast pipeline status orders --watch"
    )
    made.add_argument("--watch", action="store_true", help="refresh until Ctrl-C")
    made.set_defaults(run=run_status)


def run_status(args: argparse.Namespace) -> int:
    """Print the status once, or with `--watch` until Ctrl-C."""
    client, path = http_client_for(args), pipeline_path(args.name, "status")
    if args.watch:
        return _watch(client, path, as_json=args.json)
    status = client.get(path)
    if args.json:
        print_json(status)
    else:
        out = console()
        out.print(render_status(status, width=out.width))
    return OK


def _watch(client: HttpClient, path: str, *, as_json: bool) -> int:
    if as_json:
        while True:
            print_json(client.get(path))
            time.sleep(_WATCH_S)
    from rich.live import Live

    out = console()
    with Live(render_status(client.get(path), width=out.width), console=out, auto_refresh=False) as live:
        while True:
            time.sleep(_WATCH_S)
            live.update(render_status(client.get(path), width=out.width), refresh=True)


def render_status(status: Mapping[str, Any], *, width: int) -> "RenderableType":
    """A summary line, reasons and warnings, slots and partitions."""
    from rich.console import Group
    from rich.text import Text

    lag = "–" if status["lagRows"] is None else f"{status['lagRows']:,}"
    head = (
        f"{status['name']}: {status['state']} · {status['rows']:,} rows · {status['batches']:,} batches · "
        f"{status['filtered']:,} filtered · {status['dlqRows']:,} refused · lag {lag} rows, {format_lag(status['lagMs'])} · "
        f"slots {status['slotsRunning']}/{status['replicas']} · revision {status['recipe']}"
    )
    parts: list[RenderableType] = [Text(escape_controls(head), style="bold")]
    parts += [Text(escape_controls(line)) for line in engine_lines(status)]
    parts += [Text(escape_controls(f"! {each}"), style="red") for each in status["reasons"]]
    warnings = [each for each in (*status["warnings"], status["banner"]) if each]
    parts += [Text(escape_controls(f"! {each}"), style="yellow") for each in warnings]
    if status["slots"]:
        parts.append(table("slots", status["slots"], _SLOT_COLUMNS, width=width))
    if status["partitions"] and status.get("engine") != _STREAMING:  # a query's one claim is no partition of a topic
        workers = {str(slot["slot"]): str(slot["workerId"]) for slot in status["slots"]}
        rows = [{**each, "owner": owner_name(each["owner"], workers)} for each in status["partitions"]]
        parts.append(table("partitions", rows, _PARTITION_COLUMNS, width=width))
    return Group(*parts)


def engine_lines(status: Mapping[str, Any]) -> Iterator[str]:
    """Which engine runs the pipeline and why; of a streaming query, where it is."""
    if status.get("engine"):
        yield f"engine {status['engine']}: {status['engineReason']}"
    if stream := status.get("stream"):
        batch = "none" if stream["batch"] < 0 else f"{stream['batch']:,}"
        yield (
            f"batch {batch} done, {stream['batchMs']:,} ms · watermark {stream['watermark'] or '–'} · "
            f"state {stream['stateRows']:,} rows · late {stream['droppedRows']:,} · epoch {stream['epoch']}"
        )
        if stream.get("failures"):
            yield f"restarted {stream['failures']:,} times, last: {stream['failure']}"
        if stream.get("uiUrl"):
            yield f"Spark UI {stream['uiUrl']}"


def owner_name(owner: str | None, workers: Mapping[str, str]) -> str:
    """Which slot owns a partition, and on which worker. The registry knows it as `{pipeline}.{generation}.{slot}`."""
    if owner is None:
        return "–"
    slot = owner.rpartition(".")[2]
    return f"slot {slot} on {workers[slot]}" if slot in workers else f"slot {slot}"


def format_lag(value_ms: int | None) -> str:
    """A lag in seconds."""
    return "–" if value_ms is None else f"{value_ms / 1000:.1f} s"
