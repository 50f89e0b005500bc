"""What the cluster's commands share: how they reach the store, and how they wait for what they asked for."""

import argparse
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from holdfast.agent.administration import ClusterAdministration
from holdfast.app.embedded_etcd.place import opened_store_url
from holdfast.cli.arguments import parse_number
from holdfast.cli.settings_flags import add_setting_flags, effective_settings_for
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import SystemRandom

_FLAGS: Final = "Takes the flags of `holdfast serve`: --data or --store say which cluster."
_WAIT_S_MAX: Final = 86_400
_LOOK_EVERY_MS: Final = 200


def add_cluster_command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    run: Callable[[argparse.Namespace], Awaitable[int]],
    *,
    does: str,
    description: str,
    waits: bool = False,
) -> argparse.ArgumentParser:
    """A command about a cluster. `waits`: it has `--wait`, for `wait_until_none_left`."""
    parser = commands.add_parser(name, help=does, description=f"{description} {_FLAGS}")
    if waits:
        parser.add_argument(
            "--wait",
            metavar="SECONDS",
            default="60",
            help="how long to wait until it is done; 0: do not wait (default: 60)",
        )
    parser.add_argument("--json", action="store_true", help="JSON, one object per line")
    add_setting_flags(parser)
    parser.set_defaults(run=run)
    return parser


@asynccontextmanager
async def administering(args: argparse.Namespace) -> AsyncIterator[ClusterAdministration]:
    """The cluster that the flags name."""
    settings = effective_settings_for(args).settings
    clock, random = RealClock(), SystemRandom()
    async with open_store(opened_store_url(settings), clock=clock, random=random, create=False) as store:
        yield ClusterAdministration(store, clock=clock, random=random)


async def wait_until_none_left(args: argparse.Namespace, left: Callable[[], Awaitable[int]], what: str) -> None:
    """Wait until `left` is 0, with a progress bar. `UnavailableError`: it took longer than `--wait`; the request stays."""
    wait_s = parse_number(args.wait, "--wait", above=-1, most=_WAIT_S_MAX)
    if wait_s <= 0:
        return
    from rich.console import Console
    from rich.progress import Progress

    clock = RealClock()
    until_ms = clock.boot_ms() + wait_s * 1_000
    count = total = await left()
    with Progress(console=Console(stderr=True), transient=True, disable=args.json) as bar:
        task = bar.add_task(what, total=total)
        while count:
            if clock.boot_ms() >= until_ms:
                raise UnavailableError(
                    what, f"{count} are left after {wait_s:g} s; the request stays, and the cluster goes on with it"
                )
            await clock.sleep_ms(_LOOK_EVERY_MS)
            count = await left()
            total = max(total, count)
            bar.update(task, total=total, completed=total - count)
