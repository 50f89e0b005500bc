"""`holdfast leases`: who holds what, at which epoch."""

import argparse
import dataclasses

from holdfast.cli.cluster.access import FLAGS_ARE_A_SERVERS, add_cluster_flags, administering
from holdfast.cli.output import OK, print_rows

COLUMNS = ("resource", "holder", "epoch", "planned", "transfer")


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    listing = commands.add_parser(
        "leases",
        help="list leases with holder and epoch",
        description="Lists every lease: partitions, group shards, the planner's own; with its holder, its epoch, its planned "
        f"holder and a transfer that is under way. {FLAGS_ARE_A_SERVERS}",
    )
    listing.add_argument("--agent", metavar="ID", help="those of one agent alone")
    add_cluster_flags(listing)
    listing.set_defaults(run=run)


async def run(args: argparse.Namespace) -> int:
    """Print the leases."""
    async with administering(args) as cluster:
        leases = await cluster.leases()
    rows = [dataclasses.asdict(each) for each in leases if args.agent in (None, each.holder)]
    print_rows("leases", rows, COLUMNS, as_json=args.json)
    return OK
