"""Readers in another zone: a replica that Metadata does not list is never preferred, because clients cannot ask it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster import LocalCluster
from tests.support.kafka_wire import FETCH, METADATA, WireClient, fetch_request, gateway_of, versions_of
from tests.support.partitions import records
from tests.support.waiting import async_until

from holdfast.gateways.kafka.leaders import preferred_replica
from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.kafka.error_codes import ErrorCode
from holdfast.vocabulary.types import Member

NOBODY = -1


async def test_a_preferred_replica_is_one_of_those_that_metadata_lists(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    try:
        async with (
            asyncio.timeout(60),
            gateway_of(cluster, "ann", KafkaSettings(), zone="a") as ann,
            gateway_of(cluster, "bob", KafkaSettings(), zone="b") as bob,
        ):
            await ann.backend.log.create_topic("orders", 2)
            await async_until(lambda: ann.node.leads() and bob.node.leads())
            near, far = (await ann.client()), (await bob.client())
            (number,) = ann.node.leads()
            for value in ("one", "two"):
                await cluster.produce("orders", number, value)
                await ann.backend.log.flush("orders", number)
            listed = await _replicas(near, number)
            for version in (each for each in versions_of(FETCH) if 11 <= each <= 12):
                for rack in ("a", "b", "", "nobody is there"):
                    found = await _read(near, version, number, 0, rack)
                    assert found.preferred_read_replica in (NOBODY, *listed)
                    assert _values(found) == ["one", "two"]  # so the leader serves it
                    refused = await _read(far, version, number, 0, rack)
                    assert refused.error_code.value == ErrorCode.NOT_LEADER_OR_FOLLOWER
    finally:
        await cluster.end()


@pytest.mark.parametrize(
    ("replicas", "rack", "in_sync", "preferred"),
    [
        ("a", "b", (), NOBODY),
        ("ab", "b", (), 2),
        ("ab", "a", (), NOBODY),  # the leader's own zone
        ("ab", "c", (), NOBODY),
        ("ab", "", (), NOBODY),
        ("abb", "b", ("w1", "w3"), 3),
        ("abb", "b", ("w1",), 2),
    ],
)
def test_the_preferred_replica_is_in_the_zone_of_the_reader_and_in_sync_if_one_is(
    replicas: str, rack: str, in_sync: tuple[str, ...], preferred: int
) -> None:
    members = [
        Member(id=f"agent {number}", session="s", address="h:1", zone=zone, node=number, wal_id=f"w{number}")
        for number, zone in enumerate(replicas, 1)
    ]
    found = preferred_replica(members, leader=1, rack=rack, in_sync=in_sync)
    assert (NOBODY if found is None else found.node) == preferred


async def _replicas(client: WireClient, number: int) -> tuple[int, ...]:
    answer = await client.ask(METADATA, 12, {"topics": [{"name": "orders"}]})
    return next(tuple(each.replica_nodes) for each in answer.topics[0].partitions if each.partition_index == number)


async def _read(client: WireClient, version: int, number: int, offset: int, rack: str) -> Any:
    answer = await client.ask(FETCH, version, fetch_request("orders", {number: offset}, rack=rack))
    return answer.responses[0].partitions[0]


def _values(found: Any) -> list[str]:
    return [value for _, value in records([bytes(found.records)])] if found.records else []
