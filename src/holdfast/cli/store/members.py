"""`holdfast store members|add|remove|defragment`: the members of an etcd store."""

import argparse
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from holdfast.app.embedded_etcd.place import opened_store_url
from holdfast.cli.arguments import add_yes, confirmed
from holdfast.cli.output import FAILED, OK, print_json, print_line, print_rows
from holdfast.cli.settings_flags import add_setting_flags, effective_settings_for
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.host_port import split_host_port
from holdfast.vocabulary.installation import NotInstalledError
from holdfast.vocabulary.random import SystemRandom

if TYPE_CHECKING:
    from holdfast.app.etcd_cluster import EtcdCluster

COLUMNS: Final = ("name", "id", "state", "peer", "client", "version", "bytes", "problems")
_FLAGS: Final = (
    "Takes the flags of `holdfast serve`: --store etcd://HOST:PORT, or etcd:embedded and --etcd-client, say which."
)


def add_commands(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the commands."""
    _add(
        actions,
        "members",
        run_members,
        does="list the members of an etcd store",
        description="Lists the members and what each says of itself. Exits with 1 if one does not serve.",
    )
    add = _add(
        actions,
        "add",
        run_add,
        does="add a learner for a node that will join",
        description="`holdfast serve --join` does this by itself. By hand it is for nodes that cannot reach the clients' port "
        "of a member. A repetition changes nothing.",
    )
    add.add_argument(
        "peer", metavar="HOST:PORT", help="the node's peer address (--etcd-peer, as other members reach it)"
    )
    remove = _add(
        actions,
        "remove",
        run_remove,
        does="remove a member for good",
        description="Removes a member: one that was lost with its disk, or whose node leaves. Its node can only come back as a "
        "new member.",
    )
    remove.add_argument("member", metavar="NAME", help="the member's name or id")
    add_yes(remove)
    _add(
        actions,
        "defragment",
        run_defragment,
        does="give free space back and allow writes after a space alarm",
        description="Drops old history, defragments member by member (each answers nothing meanwhile; clients use the others), and "
        "disarms space alarms.",
    )


def _add(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    run: Callable[[argparse.Namespace], Awaitable[int]],
    *,
    does: str,
    description: str,
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=does, description=f"{description} {_FLAGS}")
    parser.add_argument("--json", action="store_true", help="JSON, one object per line")
    add_setting_flags(parser)
    parser.set_defaults(run=run)
    return parser


@asynccontextmanager
async def _cluster(args: argparse.Namespace) -> AsyncIterator["EtcdCluster"]:
    try:
        from holdfast.app.etcd_cluster import etcd_cluster
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("holdfast"):
            raise
        raise NotInstalledError("etcd", missing.name or "grpc", "etcd") from None
    url = opened_store_url(effective_settings_for(args).settings)
    async with etcd_cluster(url, clock=RealClock(), random=SystemRandom()) as cluster:
        yield cluster


async def run_members(args: argparse.Namespace) -> int:
    """Print the members."""
    async with _cluster(args) as cluster:
        rows = await cluster.members()
    print_rows("members", [dataclasses.asdict(row) for row in rows], COLUMNS, as_json=args.json)
    return OK if all(row.state in ("leader", "voter") and not row.problems for row in rows) else FAILED


async def run_add(args: argparse.Namespace) -> int:
    """Add a learner."""
    given = split_host_port(args.peer)
    if given is None or not given.host or not given.port:
        raise InvalidError("peer address", args.peer, "HOST:PORT")
    async with _cluster(args) as cluster:
        member = await cluster.add(str(given))
    if args.json:
        print_json({"peer": args.peer, "id": member, "added": True})
    else:
        print_line(f"{args.peer} added as learner {member}: start its node with --etcd-peer and --join")
    return OK


async def run_remove(args: argparse.Namespace) -> int:
    """Ask, remove."""
    async with _cluster(args) as cluster:
        member = await cluster.find(args.member)
        if not confirmed(args, f"Remove member {member.shown} for good?"):
            return OK
        await cluster.remove(member)
    if args.json:
        print_json({"name": member.name, "id": f"{member.id:x}", "removed": True})
    else:
        print_line(f"{member.shown} removed")
    return OK


async def run_defragment(args: argparse.Namespace) -> int:
    """Defragment each member."""
    done: list[str] = []

    def report(member: str, _: int) -> None:
        done.append(member)
        if not args.json:
            print_line(f"defragmenting {member}")

    async with _cluster(args) as cluster:
        disarmed = await cluster.defragment(report)
    if args.json:
        print_json({"members": done, "alarms_disarmed": disarmed})
    else:
        print_line(f"{len(done)} members defragmented, {disarmed} alarms disarmed")
    return OK
