"""KIP-951: a client that asked the wrong node learns from the answer who leads now, and where that is."""

from pathlib import Path
from uuid import UUID

import pytest
from tests.support.cluster import LocalCluster
from tests.support.kafka_wire import fetch_request, gateway_of, produce_request
from tests.support.partitions import batch
from tests.support.waiting import async_until

from holdfast.gateways.kafka.leaders import leader_of
from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.error_codes import ErrorCode


@pytest.mark.parametrize(("produce", "fetch"), [(10, 16), (13, 18)])
async def test_not_leader_names_the_new_leader_and_its_address(tmp_path: Path, produce: int, fetch: int) -> None:
    cluster = LocalCluster(tmp_path)
    try:
        async with (
            gateway_of(cluster, "ann", KafkaSettings()) as ann,
            gateway_of(cluster, "bob", KafkaSettings()) as bob,
        ):
            topic = await ann.node.service.create_topic("orders", 2)
            await async_until(lambda: len(ann.node.leads()) == len(bob.node.leads()) == 1)
            [number] = bob.node.leads()
            me = bob.backend.me()
            assert me is not None
            await async_until(lambda: leader_of(ann.backend.cluster, "orders", number).node == me.node)
            client = await ann.client()
            topic_id = UUID(topic.id)
            given = produce_request("orders", {number: batch("a")}, topic_id=topic_id)
            produced = await client.ask(ApiKey.PRODUCE, produce, given)
            fetched = await client.ask(ApiKey.FETCH, fetch, fetch_request("orders", {number: 0}, topic_id=topic_id))
            for answer, partition in (
                (produced, produced.responses[0].partition_responses[0]),
                (fetched, fetched.responses[0].partitions[0]),
            ):
                assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                leader = leader_of(ann.backend.cluster, "orders", number)
                assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == leader
                assert [(each.node_id, each.host, each.port) for each in answer.node_endpoints] == [
                    (me.node, me.host, me.port)
                ]
    finally:
        await cluster.end()


@pytest.mark.parametrize("rack", ["", "a"])
async def test_a_reader_of_a_zone_is_not_told_that_its_replica_leads_now(tmp_path: Path, rack: str) -> None:
    """librdkafka would go back to the former leader, and stay there."""
    cluster = LocalCluster(tmp_path)
    try:
        async with gateway_of(cluster, "ann", KafkaSettings()) as ann:
            topic = await ann.node.service.create_topic("orders", 1)
            await async_until(lambda: len(ann.node.leads()) == 1)
            client = await ann.client()
            given = fetch_request("orders", {0: 0}, topic_id=UUID(topic.id), leader_epoch=0, rack=rack)
            fetched = await client.ask(ApiKey.FETCH, 16, given)
            [partition] = fetched.responses[0].partitions
            assert partition.error_code == ErrorCode.FENCED_LEADER_EPOCH
            told = partition.current_leader.leader_id
            assert (told, len(fetched.node_endpoints)) == (
                (-1, 0) if rack else (leader_of(ann.backend.cluster, "orders", 0).node, 1)
            )
    finally:
        await cluster.end()
