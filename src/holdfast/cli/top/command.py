"""`holdfast top`: look at every node each interval, and show what happened in between, until Ctrl-C."""

import argparse
import dataclasses
import math
import os
from typing import Any, Final

from holdfast.cli.output import OK, UNAVAILABLE, console, print_json
from holdfast.cli.server_url import ADDRESS_VARIABLE, DEFAULT_ADDRESS, server_url
from holdfast.cli.top.nodes import look_at
from holdfast.cli.top.snapshot import SORTS, NodeLook, Snapshot, take_snapshot
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError

_INTERVAL_MIN_S: Final = 0.1
_EPILOG: Final = """\
examples:
  holdfast top                                         the local server
  holdfast top --http n1:8080 --http n2:8080           two nodes of a cluster
  holdfast top --once --json | jq .groups              one look, for programs
  holdfast top --sort backlog --interval 5
"""


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    made = commands.add_parser(
        "top",
        help="live view: nodes, topics, lag, leases, pipelines",
        description="Shows rates, backlog, lag, leases, pipelines, fsync and event loop stalls of the nodes that are given, "
        "from their metrics, until Ctrl-C. Topics and groups are those of the nodes given: name all nodes to see all. A node "
        "that does not answer is shown as such, and looked at again.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--http",
        action="append",
        default=[],
        metavar="ADDRESS",
        help=f"HTTP address of a node; may be repeated, or a list with commas (default: ${ADDRESS_VARIABLE}, else "
        f"{DEFAULT_ADDRESS})",
    )
    made.add_argument("--interval", type=float, default=2.0, metavar="SECONDS", help="time between looks (default: 2)")
    made.add_argument("--sort", choices=SORTS, default="records", help="order of topics (default: records)")
    made.add_argument("--once", action="store_true", help="print once, after one interval, and exit")
    made.add_argument("--json", action="store_true", help="one JSON object for each look")
    made.set_defaults(run=run)


async def run(args: argparse.Namespace) -> int:
    """Show until Ctrl-C, or once. Once, with no node that answers, it is unavailable."""
    if not args.interval >= _INTERVAL_MIN_S or math.isinf(args.interval):
        raise InvalidError("--interval", args.interval, f"at least {_INTERVAL_MIN_S}")
    given = [each.strip() for text in args.http or [""] for each in text.split(",")]
    urls = list(dict.fromkeys(server_url(each) for each in given))
    looks = _Looks(urls, args.interval, args.sort)
    await looks.begin()
    if args.once:
        snapshot = await looks.next()
        _print(snapshot, as_json=args.json)
        return OK if any(each.up for each in snapshot.nodes) else UNAVAILABLE
    if args.json or not console().is_terminal:
        while True:
            _print(await looks.next(), as_json=args.json)
    return await _live(looks)


class _Looks:
    """Look after look, each compared with the one before."""

    def __init__(self, urls: list[str], interval_s: float, sort: str) -> None:
        self._urls, self._interval_s, self._sort = urls, interval_s, sort
        self._clock, self._before = RealClock(), list[NodeLook]()

    async def begin(self) -> None:
        self._before = await look_at(self._urls)

    async def next(self) -> Snapshot:
        await self._clock.sleep_ms(self._interval_s * 1000)
        now = await look_at(self._urls)
        snapshot = take_snapshot(list(zip(self._before, now, strict=True)), sort=self._sort)
        self._before = now
        return snapshot


async def _live(looks: _Looks) -> int:
    from rich.live import Live
    from rich.text import Text

    from holdfast.cli.top.display import render

    screen = console()
    with Live(Text("looking …"), console=screen, screen=True, auto_refresh=False) as live:
        while True:
            snapshot = await looks.next()
            live.update(render(snapshot, height=os.get_terminal_size().lines), refresh=True)


def _print(snapshot: Snapshot, *, as_json: bool) -> None:
    if as_json:
        print_json(_as_json(snapshot))
        return
    from holdfast.cli.top.display import render

    console().print(render(snapshot, height=None))


def _as_json(snapshot: Snapshot) -> dict[str, Any]:
    """An infinite duration is null: JSON has no such number."""
    found = dataclasses.asdict(snapshot)
    for node in found["nodes"]:
        node.update({name: None for name, value in node.items() if value == math.inf})
    return found
