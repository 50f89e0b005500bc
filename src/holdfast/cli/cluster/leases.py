"""`holdfast leases`: who holds what, at which epoch."""

import argparse
import dataclasses

from holdfast.cli.cluster.access import add_cluster_command, administering
from holdfast.cli.output import OK, print_rows

COLUMNS = ("resource", "holder", "epoch", "planned", "transfer")


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    made = add_cluster_command(
        commands,
        "leases",
        run,
        does="list leases with holder and epoch",
        description="Lists every lease: partitions, group shards, the planner's own; with its holder, its epoch, its planned "
        "holder and a transfer that is under way.",
    )
    made.add_argument("--agent", metavar="ID", help="those of one agent alone")


async def run(args: argparse.Namespace) -> int:
    """Print the leases."""
    async with administering(args) as cluster:
        leases = await cluster.leases()
    rows = [dataclasses.asdict(each) for each in leases if args.agent in (None, each.holder)]
    print_rows("leases", rows, COLUMNS, as_json=args.json)
    return OK
