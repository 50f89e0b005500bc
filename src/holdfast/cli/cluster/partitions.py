"""`holdfast partitions TOPIC`: where each partition is, and how far it has come."""

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from holdfast.agent.administration import AgentStatus, PartitionStatus
from holdfast.cli.arguments import parse_pairs
from holdfast.cli.cluster.access import add_cluster_command, administering
from holdfast.cli.kafka.login_properties import login_of
from holdfast.cli.kafka.options import add_client_config
from holdfast.cli.output import OK, print_rows
from holdfast.client.broker_login import BrokerLogin, LoginRefusedError
from holdfast.client.brokers import BrokerClient
from holdfast.kafka.special_offsets import LATEST
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.random import SystemRandom

COLUMNS = ("#", "leader", "epoch", "replicas", "in_sync", "published", "watermark", "state")  # within 80 characters
_WAIT_MS: Final = 5_000


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register the command."""
    made = add_cluster_command(
        commands,
        "partitions",
        run,
        does="list a topic's partitions: leader, epoch, replicas, offsets",
        description="Lists leader, epoch, replicas, in-sync replicas, the end of what is published in object storage, and the "
        "high watermark, which the leader is asked for: where clients log in, with the login that -X says.",
    )
    made.add_argument("topic", metavar="TOPIC", help="the topic")
    add_client_config(made)


async def run(args: argparse.Namespace) -> int:
    """Print the partitions of a topic."""
    login = login_of(dict(parse_pairs(args.client_config, "--client-config")), random=SystemRandom())
    async with administering(args) as cluster:
        partitions = await cluster.partitions(args.topic)
        known = await cluster.agents()
    agents = [each for each in known if each.live]
    watermarks = await _high_watermarks(agents, args.topic, [each.partition for each in partitions], login)
    live = {each.id: each.node for each in agents}
    nodes = {each.id: each.node for each in known}
    rows: list[dict[str, object]] = []
    for each in partitions:
        served = each.leader in live and not each.offline
        rows.append(
            {
                **dataclasses.asdict(each),
                "high_watermark": watermarks.get(each.partition),
                "state": each.offline or _state(each, served=served),
            }
        )
    if args.json:
        print_rows("partitions", rows, COLUMNS, as_json=True)
        return OK
    print_rows(f"partitions of {args.topic}; agents by their node", [_by_node(row, nodes) for row in rows], COLUMNS)
    return OK


def _by_node(row: Mapping[str, object], nodes: Mapping[str, int]) -> dict[str, object]:
    """A row of the table: agents by their short name, which Kafka's tools show, too; one that is gone for long by its id."""

    def named(agent: object) -> object:
        return nodes.get(str(agent), agent)

    return {
        **row,
        "#": row["partition"],
        "leader": named(row["leader"]),
        "replicas": [named(agent) for agent in row["replicas"]],  # type: ignore[attr-defined]
        "in_sync": [named(agent) for agent in row["in_sync"]],  # type: ignore[attr-defined]
        "watermark": row["high_watermark"],
    }


def _state(status: PartitionStatus, *, served: bool) -> str:
    if status.leader is None:
        return "no leader"
    if not served:
        return "the leader is gone"
    if status.planned and status.planned[0] != status.leader:
        return f"moving to {status.planned[0]}"
    behind = len(status.replicas) - len(status.in_sync)
    return f"{behind} not in sync" if behind else "ok"


async def _high_watermarks(
    agents: Sequence[AgentStatus], topic: str, numbers: Sequence[int], login: BrokerLogin | None
) -> dict[int, int]:
    """Those that leaders tell within a moment: the listing does not wait for a partition without a leader."""
    bootstrap = ",".join(each.address for each in agents if each.address)
    if not bootstrap:
        return {}
    brokers = BrokerClient(bootstrap, login=login)
    try:
        return await brokers.available_offsets(topic, dict.fromkeys(numbers, LATEST), wait_ms=_WAIT_MS)
    except LoginRefusedError:
        raise
    except HoldfastError:
        return {}
    finally:
        await brokers.close()
