"""`holdfast transfer TOPIC PARTITION --to AGENT`: move a partition."""

import argparse

from holdfast.cli.arguments import parse_int
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
        "transfer",
        run,
        does="move a partition to an agent",
        description="Assigns a partition to an agent, which takes it over by a transfer, without an error at a retrying "
        "client. It stays there as long as that agent lives, until `holdfast rebalance` withdraws the assignment. Others may "
        "move in exchange, so that every agent has its share.",
        waits=True,
    )
    made.add_argument("topic", metavar="TOPIC", help="the topic")
    made.add_argument("partition", metavar="PARTITION", help="the number of the partition")
    made.add_argument("--to", metavar="AGENT", required=True, help="the agent's id: see `holdfast agents`")


async def run(args: argparse.Namespace) -> int:
    """Assign, and wait until the agent leads it."""
    number = parse_int(args.partition, "PARTITION") or 0
    async with administering(args) as cluster:

        async def left() -> int:
            return int((await cluster.partitions(args.topic))[number].leader != args.to)

        await cluster.assign(args.topic, {number: (args.to,)})
        await wait_until_none_left(args, left, f"moving {args.topic}-{number} to {args.to}")
        status = (await cluster.partitions(args.topic))[number]
    if args.json:
        print_json({"topic": args.topic, "partition": number, "leader": status.leader, "epoch": status.epoch})
    elif status.leader == args.to:
        print_line(f"{args.topic}-{number} is led by {args.to}, epoch {status.epoch}")
    else:
        print_line(f"{args.topic}-{number} is assigned to {args.to}; its leader is {status.leader or 'nobody'}")
    return OK
