"""`holdfast agents`: who is in the cluster."""

import argparse
import dataclasses

from holdfast.cli.cluster.access import add_cluster_command, administering
from holdfast.cli.output import OK, print_rows

COLUMNS = ("id", "node", "address", "zone", "group", "state", "leases", "replicas")


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    add_cluster_command(
        commands,
        "agents",
        run,
        does="list the agents of a cluster",
        description="Lists every agent that is live or was within the last minute, with the leases it holds, and how many it "
        "is to hold where that is another number; and of how many partitions with several replicas it keeps the tail, and how "
        "many of these are in sync where that are fewer.",
    )


async def run(args: argparse.Namespace) -> int:
    """Print the agents."""
    async with administering(args) as cluster:
        agents = await cluster.agents()
    if args.json:
        print_rows("agents", [dataclasses.asdict(each) for each in agents], COLUMNS, as_json=True)
        return OK
    rows = [
        {
            **dataclasses.asdict(each),
            "state": ("live" if each.live else "gone") + (", draining" if each.draining else ""),
            "leases": each.leases if each.leases == each.planned else f"{each.leases} of {each.planned}",
            "replicas": each.replicas if each.in_sync == each.replicas else f"{each.replicas}, {each.in_sync} in sync",
        }
        for each in agents
    ]
    print_rows("agents", rows, COLUMNS)
    return OK
