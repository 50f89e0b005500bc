"""A partition whose lease is held by an agent that cannot open it: every node says that it has no leader, and where it is."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka_admin import Admin, code, versions
from tests.support.kafka_wire import FETCH, PRODUCE, KafkaGateway, fetch_request, gateway_of, produce_request
from tests.support.offline_partition import ann_crashed
from tests.support.partitions import batch
from tests.support.waiting import async_until

from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.kafka.error_codes import ErrorCode

NOBODY = -1


async def partition(gateway: KafkaGateway, number: int, version: int | None = None) -> Any:
    client = await gateway.client()
    (topic,) = (await Admin(gateway, client).ask("Metadata", version, topics=[{"name": "orders"}])).topics
    client.close()
    assert code(topic) is ErrorCode.NONE
    return next(each for each in topic.partitions if each.partition_index == number)


@pytest.mark.slow
async def test_every_node_and_version_says_that_an_offline_partition_has_no_leader(tmp_path: Path) -> None:
    async with ann_crashed(tmp_path) as world:
        for gateway in (world.holder(), world.other()):
            for version in versions("Metadata"):
                found = await partition(gateway, world.number, version)
                assert (code(found), found.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, NOBODY)
                assert found.replica_nodes == found.isr_nodes == (world.ann_node,)
                if version >= 5:
                    assert found.offline_replicas == (world.ann_node,)
            admin = Admin(gateway, await gateway.client())
            described = await admin.ask(
                "DescribeTopicPartitions", topics=[{"name": "orders"}], response_partition_limit=10
            )
            found = described.topics[0].partitions[world.number]
            assert (code(found), found.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, NOBODY)
            assert found.replica_nodes == found.offline_replicas == (world.ann_node,)


async def test_requests_for_an_offline_partition_are_refused_and_name_no_leader(tmp_path: Path) -> None:
    async with ann_crashed(tmp_path) as world:
        client = await world.holder().client()
        name = "orders"
        fetched = await client.ask(FETCH, 12, fetch_request(name, {world.number: 0}))
        read = fetched.responses[0].partitions[0]
        produced = await client.ask(PRODUCE, 11, produce_request(name, {world.number: batch("a")}))
        written = produced.responses[0].partition_responses[0]
        listed = await Admin(world.holder(), client).ask(
            "ListOffsets",
            6,
            replica_id=-1,
            topics=[{"name": name, "partitions": [{"partition_index": world.number, "timestamp": -1}]}],
        )
        assert code(read) is code(written) is code(listed.topics[0].partitions[0]) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (read.current_leader.leader_id, written.current_leader.leader_id) == (NOBODY, NOBODY)


async def test_the_partition_has_its_leader_again_when_the_agent_is_back(tmp_path: Path) -> None:
    async with ann_crashed(tmp_path) as world:
        assert (await partition(world.bob, world.number)).leader_id == NOBODY
        async with gateway_of(world.cluster, "ann", KafkaSettings()) as ann:
            shown: list[Any] = []

            async def led_by_ann() -> bool:
                shown.append(await partition(world.bob, world.number))
                return (code(shown[-1]), shown[-1].leader_id) == (ErrorCode.NONE, world.ann_node)

            # She opens it, publishes, and perhaps hands it over.
            await async_until(lambda: ann.node.leads())
            await async_until(led_by_ann)
            assert (shown[-1].replica_nodes, shown[-1].offline_replicas) == ((world.ann_node,), ())
