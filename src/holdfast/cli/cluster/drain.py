"""`holdfast drain AGENT`: take all work from an agent, before it is stopped for good or for maintenance."""

import argparse

from holdfast.agent.administration import ClusterAdministration
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
        "drain",
        run,
        does="move everything off an agent",
        description="Moves every partition and group shard off an agent by transfers, without an error at a retrying client, "
        "and gives it none until `holdfast drain AGENT --undo`, also after a restart. Waits until enough replicas "
        "keep up with what it keeps for others, too. Refused for the only live agent of a group.",
        waits=True,
    )
    made.add_argument("agent", metavar="AGENT", help="the agent's id: see `holdfast agents`")
    made.add_argument("--undo", action="store_true", help="give it its share again")


async def run(args: argparse.Namespace) -> int:
    """Ask, and wait until the agent holds nothing, and enough others have what it keeps as a replica."""
    async with administering(args) as cluster:
        if args.undo:
            await cluster.undrain(args.agent)
        else:
            await cluster.drain(args.agent)
            await wait_until_none_left(args, lambda: _left(cluster, args.agent), f"draining {args.agent}")
        left, tails = await _leases(cluster, args.agent), await cluster.tails_needed_of(args.agent)
    if args.json:
        print_json({"agent": args.agent, "draining": not args.undo, "leases": left, "tails_needed": tails})
    elif args.undo:
        print_line(f"{args.agent} gets its share again")
    else:
        held = f"it holds {left} leases and tails of {tails} partitions that others need"
        print_line(f"{args.agent} is drained" if not left + tails else f"{args.agent} is being drained: {held}")
    return OK


async def _left(cluster: ClusterAdministration, agent: str) -> int:
    return await _leases(cluster, agent) + await cluster.tails_needed_of(agent)


async def _leases(cluster: ClusterAdministration, agent: str) -> int:
    return sum(each.leases for each in await cluster.agents() if each.id == agent)
