"""`holdfast rebalance`: withdraw assignments and let the planner place those partitions."""

import argparse

from holdfast.cli.cluster.access import (
    add_cluster_command,
    administering,
    wait_until_none_left,
)
from holdfast.cli.output import OK, print_json, print_line


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    made = add_cluster_command(
        commands,
        "rebalance",
        run,
        does="withdraw assignments and spread partitions evenly again",
        description="The planner keeps every agent's share of each topic even by itself. This withdraws what `holdfast "
        "transfer` assigned, of one topic or of all, and waits until every lease is where the plan wants it.",
        waits=True,
    )
    made.add_argument("--topic", metavar="TOPIC", help="the assignments of one topic alone")


async def run(args: argparse.Namespace) -> int:
    """Withdraw, and wait until nothing is left to move."""
    async with administering(args) as cluster:
        withdrawn = await cluster.rebalance(args.topic)
        await wait_until_none_left(args, cluster.misplaced, "moving partitions")
        left = await cluster.misplaced()
    if args.json:
        print_json({"withdrawn": withdrawn, "misplaced": left})
    else:
        print_line(f"{withdrawn} assignments withdrawn, {left} leases to move")
    return OK
