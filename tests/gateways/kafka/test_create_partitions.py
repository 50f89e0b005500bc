"""CreatePartitions: new partitions are led at once; what is refused gets Kafka's code and message."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster import LocalCluster
from tests.support.kafka_admin import Admin, admin_of, code, versions
from tests.support.kafka_wire import gateway_of
from tests.support.partitions import batch
from tests.support.waiting import async_until

from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.heap.model import NewMessage
from holdfast.heap.records import ProducerSequence
from holdfast.kafka.error_codes import ErrorCode
from holdfast.log.settings import TopicSettings
from holdfast.log.topics import PARTITIONS_MAX

SOON = timedelta(seconds=10)


async def grow(admin: Admin, name: str, count: int, version: int | None = None, **given: Any) -> Any:
    wanted = {"name": name, "count": count, "assignments": given.pop("assignments", None)}
    answer = await admin.ask("CreatePartitions", version, topics=[wanted], timeout=SOON, **given)
    return answer.results[0]


async def listed(admin: Admin, name: str) -> dict[int, int]:
    """The leader of each partition in Metadata."""
    answer = await admin.ask("Metadata", topics=[{"topic_id": None, "name": name}])
    return {each.partition_index: each.leader_id for each in answer.topics[0].partitions}


async def test_every_version_adds_partitions_that_are_writable_at_once(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}) as admin:
        await admin.backend.log.produce("orders", 0, batch("before"))
        for count, version in enumerate(versions("CreatePartitions"), start=2):
            grown = await grow(admin, "orders", count, version)
            assert (grown.name, code(grown), grown.error_message) == ("orders", ErrorCode.NONE, None)
            assert await listed(admin, "orders") == dict.fromkeys(range(count), admin.node)
            result = await admin.backend.log.produce("orders", count - 1, batch("x"))
            assert result.base_offset == 0
        assert (await admin.backend.log.produce("orders", 0, batch("after"))).base_offset == 1


async def test_validate_only_adds_nothing_and_refuses_the_same(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 2}) as admin:
        for version in versions("CreatePartitions"):
            outcomes = [await grow(admin, "orders", count, version, validate_only=True) for count in (5, 2, 1)]
            assert [code(each) for each in outcomes] == [
                ErrorCode.NONE,
                ErrorCode.INVALID_PARTITIONS,
                ErrorCode.INVALID_PARTITIONS,
            ]
        assert (await admin.backend.log.topics.get("orders")).partitions == 2


async def test_a_heap_grows_as_any_topic_does_and_finds_what_was_enqueued_before(tmp_path: Path) -> None:
    async with admin_of(tmp_path) as admin:
        heaps = admin.gateway.node.agent.heaps
        await heaps.administration.create("jobs", 2)
        await async_until(lambda: all(heaps.serves("jobs", number) for number in range(2)))
        sent = [NewMessage(payload=b"x", producer=ProducerSequence("p", 0, at)) for at in range(8)]
        first = [await heaps.enqueue("jobs", each) for each in sent]
        assert code(await grow(admin, "jobs", 6)) == ErrorCode.NONE
        assert await listed(admin, "jobs") == dict.fromkeys(range(6), admin.node)
        assert code(await grow(admin, "jobs", 6)) == ErrorCode.INVALID_PARTITIONS
        assert code(await grow(admin, "jobs", 3)) == ErrorCode.INVALID_PARTITIONS
        await async_until(lambda: all(heaps.serves("jobs", number) for number in range(6)))
        again = [await heaps.enqueue("jobs", each) for each in sent]
        assert [each.message_id for each in again] == [each.message_id for each in first]


REFUSED: dict[str, tuple[dict[str, Any], ErrorCode, str]] = {
    "as many as there are": ({"count": 2}, ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
    "fewer": (
        {"count": 1},
        ErrorCode.INVALID_PARTITIONS,
        "The topic orders currently has 2 partition(s); 1 would not be an increase.",
    ),
    "too many": (
        {"count": PARTITIONS_MAX + 1},
        ErrorCode.INVALID_PARTITIONS,
        f"invalid number of partitions {PARTITIONS_MAX + 1}: must be between 3 and {PARTITIONS_MAX}",
    ),
    "fewer assignments than partitions": (
        {"count": 4, "assignments": [{"broker_ids": [1]}]},
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
    ),
    "an unknown broker": (
        {"count": 3, "assignments": [{"broker_ids": [999]}]},
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "The manual partition assignment includes broker 999, but no such broker is registered; live in group default: [1].",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_a_refused_count_gets_kafkas_code_and_message(tmp_path: Path, what: str) -> None:
    given, refusal, text = REFUSED[what]
    async with admin_of(tmp_path, topics={"orders": 2}) as admin:
        for validate_only in (True, False):
            refused = await grow(admin, "orders", validate_only=validate_only, **given)
            assert (code(refused), refused.error_message) == (refusal, text)
        assert (await admin.backend.log.topics.get("orders")).partitions == 2


async def test_each_topic_of_a_request_is_grown_by_itself(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"a": 1, "b": 1, "c": 1}) as admin:
        wanted = [{"name": name, "count": 3, "assignments": None} for name in ("a", "nowhere", "b", "b", "not/a name")]
        answer = await admin.ask("CreatePartitions", topics=wanted, timeout=SOON)
        assert {each.name: code(each) for each in answer.results} == {
            "a": ErrorCode.NONE,
            "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "b": ErrorCode.INVALID_REQUEST,
            "not/a name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        assert [topic.partitions for topic in await admin.backend.log.list_topics()] == [3, 1, 1]


async def test_assignments_that_change_nothing_are_accepted(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}) as admin:
        grown = await grow(admin, "orders", 3, assignments=[{"broker_ids": [admin.node]}] * 2)
        assert code(grown) is ErrorCode.NONE
        assert len(await listed(admin, "orders")) == 3


async def test_a_fixed_count_is_a_policy_of_the_topic(tmp_path: Path) -> None:
    async with admin_of(tmp_path) as admin:
        configs = [{"name": "holdfast.partitions", "value": "fixed"}]
        wanted = {"name": "orders", "num_partitions": 2, "replication_factor": 1, "configs": configs}
        await admin.ask("CreateTopics", topics=[wanted], timeout=SOON)
        refused = await grow(admin, "orders", 4)
        assert code(refused) is ErrorCode.POLICY_VIOLATION
        assert "keeps its 2 partitions, because holdfast.partitions is fixed" in refused.error_message


async def test_a_fixed_count_is_a_policy_of_the_server(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    try:
        fixed = TopicSettings(partitions="fixed")
        async with gateway_of(cluster, "ann", KafkaSettings(), topic_settings=fixed) as gateway:
            await gateway.backend.log.create_topic("orders", 2)
            admin = Admin(gateway, await gateway.client())
            for validate_only in (True, False):
                refused = await grow(admin, "orders", 4, validate_only=validate_only)
                assert code(refused) is ErrorCode.POLICY_VIOLATION
                assert "because topics.partitions is fixed" in refused.error_message
            assert code(await grow(admin, "nowhere", 4)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    finally:
        await cluster.end()


async def test_two_requests_at_once_grow_the_topic_once(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}) as admin:
        other = Admin(admin.gateway, await admin.gateway.client())
        outcomes = await asyncio.gather(grow(admin, "orders", 4), grow(other, "orders", 4))
        assert {code(each) for each in outcomes} == {ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS}
        assert await listed(admin, "orders") == dict.fromkeys(range(4), admin.node)


async def test_partitions_of_a_node_that_died_after_its_commit_are_led_by_the_others(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}) as admin:
        # Everything that a dead node leaves behind of a CreatePartitions is this commit.
        await admin.backend.log.topics.add_partitions("orders", 3)

        async def led() -> bool:
            return await listed(admin, "orders") == dict.fromkeys(range(3), admin.node)

        await async_until(led)
        again = await grow(admin, "orders", 3)
        assert (code(again), again.error_message) == (ErrorCode.INVALID_PARTITIONS, "Topic already has 3 partition(s).")


async def test_a_topic_deleted_and_made_again_does_not_inherit_partitions(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}) as admin:
        assert code(await grow(admin, "orders", 3)) is ErrorCode.NONE
        await admin.backend.log.produce("orders", 2, batch("old"))
        await admin.backend.log.delete_topic("orders")
        await admin.backend.log.create_topic("orders", 1)

        async def alone() -> bool:
            return await listed(admin, "orders") == {0: admin.node}

        await async_until(alone)
        assert code(await grow(admin, "orders", 3)) is ErrorCode.NONE
        assert (await admin.backend.log.produce("orders", 2, batch("new"))).base_offset == 0


async def test_new_partitions_are_spread_over_all_nodes_and_every_node_lists_them(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    try:
        async with (
            gateway_of(cluster, "ann", KafkaSettings()) as ann,
            gateway_of(cluster, "bob", KafkaSettings()) as bob,
        ):
            await ann.backend.log.create_topic("orders", 1)
            asked, other = Admin(ann, await ann.client()), Admin(bob, await bob.client())
            await async_until(lambda: len(ann.backend.cluster.members) == 2)
            assert code(await grow(asked, "orders", 6)) is ErrorCode.NONE

            async def agreed() -> bool:
                leaders = await listed(asked, "orders")
                spread = sorted(leaders.values()) == sorted([asked.node] * 3 + [other.node] * 3)
                return spread and leaders == await listed(other, "orders")

            await async_until(agreed)
            leaders = await listed(asked, "orders")
            for number, node in leaders.items():
                leader = asked if node == asked.node else other
                assert (await leader.backend.log.produce("orders", number, batch("x"))).base_offset == 0
    finally:
        await cluster.end()
