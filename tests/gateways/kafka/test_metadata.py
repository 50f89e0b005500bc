"""Metadata, DescribeCluster and DescribeTopicPartitions: every version, every way to ask, and topics that come into being by it."""

import asyncio
import dataclasses
import io
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from tests.support.kafka_admin import Admin, admin_of, code, versions
from tests.support.kafka_wire import build
from tests.support.partitions import batch
from tests.support.waiting import async_until

from holdfast.agent import departures
from holdfast.agent.cluster import Cluster
from holdfast.agent.partition_replicas import ReplicaMirrors
from holdfast.gateways.kafka.backend import Broker
from holdfast.gateways.kafka.connection_access import ALL_OPERATIONS
from holdfast.gateways.kafka.leaders import brokers, leader_of, listed_brokers
from holdfast.gateways.kafka.metadata import _read, controller
from holdfast.gateways.kafka.metadata_encoding import MetadataTopic, encode_metadata, encode_topics
from holdfast.kafka.enums import AUTHORIZED_OPERATIONS_OMITTED
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kafka.wire import MalformedRequestError
from holdfast.kernel.keys import NODES, holder_key, member_key, partition_resource
from holdfast.kernel.lease import Held
from holdfast.kernel.mirror import Mirror
from holdfast.log.keys import replica_set_key, topic_key, wal_agent_key
from holdfast.log.offline_partitions import OfflinePartition
from holdfast.log.replica_sets import ReplicaSet
from holdfast.log.topics import Topic
from holdfast.security.acls import ResourceType
from holdfast.vocabulary.tasks import Notify
from holdfast.vocabulary.types import Member, TopicPartition


def names(*wanted: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in wanted]


async def test_every_version_names_brokers_topics_and_leaders(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 3}) as admin:
        led = [await admin.backend.log._led("orders", number) for number in range(3)]
        for version in versions("Metadata"):
            answer = await admin.ask("Metadata", version, topics=names("orders"))
            (broker,) = answer.brokers
            assert (broker.node_id, broker.host, broker.port) == (admin.node, "127.0.0.1", admin.gateway.port)
            (topic,) = answer.topics
            assert (code(topic), topic.name) == (ErrorCode.NONE, "orders")
            assert [each.partition_index for each in topic.partitions] == [0, 1, 2]
            for partition in topic.partitions:
                assert code(partition) is ErrorCode.NONE
                assert partition.leader_id == admin.node
                assert partition.replica_nodes == partition.isr_nodes == (admin.node,)
            if version >= 1:
                assert (broker.rack, answer.controller_id, topic.is_internal) == (None, admin.node, False)
            if version >= 2:
                assert answer.cluster_id == "tests"
            if version >= 5:
                assert [each.offline_replicas for each in topic.partitions] == [(), (), ()]
            if version >= 7:
                assert [each.leader_epoch for each in topic.partitions] == [each.lease.epoch for each in led]
            if version >= 8:
                assert topic.topic_authorized_operations == AUTHORIZED_OPERATIONS_OMITTED
            if version >= 10:
                assert topic.topic_id.hex == led[0].partition_id.topic_id
            if version >= 13:
                assert code(answer) is ErrorCode.NONE


async def test_every_version_lists_all_topics_or_none(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"b": 1, "a": 2}) as admin:
        for version in versions("Metadata"):
            everything = await admin.ask("Metadata", version, topics=() if version == 0 else None)
            assert [topic.name for topic in everything.topics] == ["a", "b"]
            if version > 0:
                assert (await admin.ask("Metadata", version, topics=())).topics == ()


async def test_topics_are_requested_by_id(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}) as admin:
        topic_id = UUID((await admin.backend.log.topics.get("orders")).id)
        for version in (each for each in versions("Metadata") if each >= 12):
            answer = await admin.ask(
                "Metadata",
                version,
                topics=[{"topic_id": topic_id, "name": None}, {"topic_id": UUID(int=7), "name": None}],
            )
            known, unknown = answer.topics
            assert (known.name, known.topic_id, code(known)) == ("orders", topic_id, ErrorCode.NONE)
            assert (unknown.name, unknown.topic_id, code(unknown)) == (None, UUID(int=7), ErrorCode.UNKNOWN_TOPIC_ID)


async def test_a_topic_requested_by_id_may_have_an_empty_name(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}) as admin:
        topic_id = UUID((await admin.backend.log.topics.get("orders")).id)
        answer = await admin.ask("Metadata", topics=[{"topic_id": topic_id, "name": ""}])
        assert [(code(each), each.name) for each in answer.topics] == [(ErrorCode.NONE, "orders")]


@given(version=st.sampled_from(versions("Metadata")), body=st.binary(max_size=60))
def test_arbitrary_bytes_are_a_malformed_request(version: int, body: bytes) -> None:
    with suppress(MalformedRequestError):
        _read(version, memoryview(body), flexible=version >= 9)


@pytest.mark.parametrize("version", versions("Metadata"))
def test_a_truncated_request_is_malformed(version: int) -> None:
    kind = load_request_schema(3, version)
    whole = io.BytesIO()
    asked = build(kind, {"topics": names("orders", "payments"), "allow_auto_topic_creation": False})
    entity_writer(kind)(whole, asked)
    request = _read(version, memoryview(whole.getvalue()), flexible=version >= 9)
    assert request.topics == (("orders", None), ("payments", None))
    assert request.may_create is (version < 4)
    for size in range(len(whole.getvalue())):
        with pytest.raises(MalformedRequestError):
            _read(version, memoryview(whole.getvalue()[:size]), flexible=version >= 9)


async def test_a_duplicate_topic_is_listed_once(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}) as admin:
        answer = await admin.ask("Metadata", topics=names("orders", "orders"))
        assert len(answer.topics) == 1


async def test_authorized_operations_are_returned_on_request(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}) as admin:
        for version in (8, 9, 10, 11, 12, 13):
            answer = await admin.ask(
                "Metadata",
                version,
                topics=None,
                include_topic_authorized_operations=True,
                include_cluster_authorized_operations=True,
            )
            assert answer.topics[0].topic_authorized_operations == ALL_OPERATIONS[ResourceType.TOPIC]
            if version <= 10:
                assert answer.cluster_authorized_operations == ALL_OPERATIONS[ResourceType.CLUSTER]


async def test_a_request_for_a_missing_topic_creates_it_writable(tmp_path: Path) -> None:
    async with admin_of(tmp_path, auto_create_partitions=3) as admin:
        for version in versions("Metadata"):
            name = f"fresh-{version}"
            answer = await admin.ask("Metadata", version, topics=names(name), allow_auto_topic_creation=True)
            (topic,) = answer.topics
            assert (code(topic), topic.name) == (ErrorCode.NONE, name)
            assert [(code(each), each.leader_id) for each in topic.partitions] == [(ErrorCode.NONE, admin.node)] * 3
            await admin.backend.log.produce(name, 2, batch("a"))


async def test_concurrent_requests_for_a_missing_topic_create_one(tmp_path: Path) -> None:
    async with admin_of(tmp_path) as admin:
        clients = [Admin(admin.gateway, await admin.gateway.client()) for _ in range(8)]
        answers = await asyncio.gather(*(each.ask("Metadata", topics=names("fresh")) for each in clients))
        assert {(code(answer.topics[0]), answer.topics[0].topic_id) for answer in answers} == {
            (ErrorCode.NONE, answers[0].topics[0].topic_id)
        }
        assert [code(answer.topics[0].partitions[0]) for answer in answers] == [ErrorCode.NONE] * 8


@pytest.mark.parametrize(
    ("settings", "allowed"), [({"auto_create_topics": False}, True), ({"auto_create_topics": True}, False)]
)
async def test_topics_are_auto_created_only_if_settings_and_client_allow_it(
    tmp_path: Path, settings: dict[str, Any], allowed: bool
) -> None:
    async with admin_of(tmp_path, **settings) as admin:
        answer = await admin.ask("Metadata", topics=names("nowhere"), allow_auto_topic_creation=allowed)
        (topic,) = answer.topics
        assert (code(topic), topic.name, topic.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nowhere", ())
        assert topic.topic_id is None
        assert not await admin.backend.log.list_topics()


@pytest.mark.parametrize("name", ["", ".", "a/b", "é", "x" * 250])
async def test_an_invalid_topic_name_gets_its_code(tmp_path: Path, name: str) -> None:
    async with admin_of(tmp_path) as admin:
        for version in versions("Metadata"):
            answer = await admin.ask("Metadata", version, topics=names(name), allow_auto_topic_creation=True)
            assert code(answer.topics[0]) is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
async def test_internal_topics_of_kafka_are_not_auto_created(tmp_path: Path, name: str) -> None:
    async with admin_of(tmp_path) as admin:
        answer = await admin.ask("Metadata", topics=names(name))
        assert code(answer.topics[0]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.slow
async def test_a_topic_that_cannot_be_created_now_gets_a_retriable_code(tmp_path: Path) -> None:
    async with admin_of(tmp_path) as admin:
        admin.gateway.node.store.reachable = False
        answer = await admin.ask("Metadata", topics=names("fresh"))
        admin.gateway.node.store.reachable = True
        assert code(answer.topics[0]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_partition_without_a_leader_has_its_code_in_every_version(tmp_path: Path) -> None:
    topic = Topic(id="ab" * 16, name="orders", partitions=2, created_at_ms=0)
    cluster = made_up(topic, leaders={1: "ann"})
    for version in versions("Metadata"):
        answer = read(version, encoded(version, cluster, [MetadataTopic(topic)]))
        lost, kept = answer.topics[0].partitions
        assert (code(lost), lost.leader_id, lost.replica_nodes) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, ())
        assert (code(kept), kept.leader_id, kept.replica_nodes) == (ErrorCode.NONE, 4, (4,))


def epochs_of(cluster: Cluster, topic: Topic, version: int = 12) -> list[int]:
    listed = read(version, encoded(version, cluster, [MetadataTopic(topic)])).topics[0].partitions
    return [each.leader_epoch for each in listed]


async def test_a_partition_without_a_leader_keeps_the_epoch_that_clients_know() -> None:
    topic = Topic(id="ab" * 16, name="orders", partitions=2, created_at_ms=0)
    cluster = made_up(topic, leaders={0: "ann"})
    assert epochs_of(cluster, topic) == [7, -1]
    holders = cluster._holders
    keys = [holder_key(partition_resource(TopicPartition("orders", number))) for number in range(2)]
    holders.items[keys[1]] = dataclasses.replace(held("orders", 1, "ann"), epoch=9)
    cluster.holders_changed(keys)
    holders.items.clear()
    cluster.holders_changed(keys)
    holders.version += 1
    assert epochs_of(cluster, topic) == [7, 9]
    cluster.topics_deleted(["orders"])
    holders.version += 1
    assert epochs_of(cluster, topic) == [-1, -1]


async def test_a_cached_topic_is_encoded_again_when_a_leader_changes() -> None:
    topic = Topic(id="ab" * 16, name="orders", partitions=1, created_at_ms=0)
    cluster = made_up(topic, leaders={})
    assert read(12, encoded(12, cluster, [MetadataTopic(topic)])).topics[0].partitions[0].leader_id == -1
    holders = cluster._holders
    holders.items[holder_key(partition_resource(TopicPartition("orders", 0)))] = held("orders", 0, "ann")
    assert read(12, encoded(12, cluster, [MetadataTopic(topic)])).topics[0].partitions[0].leader_id == -1, (
        "nobody said so"
    )
    holders.version += 1
    assert read(12, encoded(12, cluster, [MetadataTopic(topic)])).topics[0].partitions[0].leader_id == 4


async def test_a_leader_that_looks_dead_from_here_is_none_in_every_version_until_it_is_reached_again() -> None:
    topic = Topic(id="ab" * 16, name="orders", partitions=1, created_at_ms=0)
    cluster = made_up(topic, leaders={0: "ann"})
    ann = cluster.member("ann")
    assert ann is not None

    def leader(version: int) -> tuple[int, ErrorCode]:
        (partition,) = read(version, encoded(version, cluster, [MetadataTopic(topic)])).topics[0].partitions
        return partition.leader_id, code(partition)

    for version in versions("Metadata"):
        assert leader(version) == (4, ErrorCode.NONE)
        cluster.departures.suspect(ann, 0)
        assert leader(version) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
        if version >= 7:
            assert epochs_of(cluster, topic, version) == [7]
        cluster.departures.reached("ann")
        assert leader(version) == (4, ErrorCode.NONE)


def held(topic: str, number: int, holder: str) -> Held:
    return Held(
        resource=partition_resource(TopicPartition(topic, number)), holder=holder, session="s", epoch=7, version=1
    )


def made_up(topic: Topic, leaders: dict[int, str]) -> Cluster:
    """A cluster as mirrors would show it."""

    def nobody_reads(_: object) -> Any:
        raise AssertionError

    topics: Mirror[Topic] = Mirror("topic/", nobody_reads, Notify())
    holders: Mirror[Held] = Mirror("lease/", nobody_reads, Notify())
    members: Mirror[Member] = Mirror("member/", nobody_reads, Notify())
    planners: Mirror[Held] = Mirror("planner/", nobody_reads, Notify())
    topics.items[topic_key(topic.name)] = topic
    members.items[member_key("agent", "ann")] = Member(id="ann", session="s", address="h:1", node=4)
    for number, holder in leaders.items():
        lease = held(topic.name, number, holder)
        holders.items[holder_key(lease.resource)] = lease
    offline: Mirror[OfflinePartition] = Mirror("offline/", nobody_reads, Notify())
    replicas = ReplicaMirrors(
        Mirror("replicas/", nobody_reads, Notify()),
        Mirror("wal-agent/", nobody_reads, Notify()),
        Mirror("node/", nobody_reads, Notify()),
        members,
    )
    return Cluster(topics, holders, members, planners, offline, replicas)


def replicate(cluster: Cluster, topic: Topic, number: int, replicas: str, in_sync: str) -> None:
    """The leader has opened the partition with these replicas: WAL `a` is of ann, node 4, and so on; `d` is nobody's."""
    mirrors = cluster.replica_mirrors
    mirrors.sets.items[replica_set_key(topic.id, number)] = ReplicaSet(
        epoch=7, replicas=tuple(replicas), in_sync=tuple(in_sync)
    )
    mirrors.sets.version += 1
    for agent, node in (("ann", 4), ("bob", 5), ("cat", 6)):
        mirrors.wal_agents.items[wal_agent_key(agent[0])] = agent
        mirrors.nodes.items[NODES + agent] = node


async def test_every_version_lists_replicas_those_in_sync_and_those_offline() -> None:
    topic = Topic(id="ab" * 16, name="orders", partitions=5, created_at_ms=0)
    cluster = made_up(topic, leaders=dict.fromkeys((0, 1, 3, 4), "ann"))
    cluster._members.items[member_key("agent", "bob")] = Member(id="bob", session="s", address="h:2", node=5)
    for number, replicas, in_sync in (
        (0, "abc", "abc"),  # cat is gone: it was in sync
        (1, "bad", "b"),  # a set that is just being opened by ann; nobody knows whose the third WAL was
        (2, "bc", "bc"),  # no leader
        (3, "bc", "b"),  # ann has taken it over and is not in the set that served last
    ):
        replicate(cluster, topic, number, replicas, in_sync)
    for version in versions("Metadata"):
        answer = read(version, encoded(version, cluster, [MetadataTopic(topic)]))
        found = [
            (code(each), each.leader_id, each.replica_nodes, each.isr_nodes, each.offline_replicas)
            if version >= 5
            else (code(each), each.leader_id, each.replica_nodes, each.isr_nodes)
            for each in answer.topics[0].partitions
        ]
        expected = [
            (ErrorCode.NONE, 4, (4, 5, 6), (4, 5), (6,)),
            (ErrorCode.NONE, 4, (5, 4), (4, 5), ()),
            (ErrorCode.LEADER_NOT_AVAILABLE, -1, (5, 6), (5,), (6,)),
            (ErrorCode.NONE, 4, (4, 5, 6), (4, 5), (6,)),
            (ErrorCode.NONE, 4, (4,), (4,), ()),
        ]
        assert found == [each if version >= 5 else each[:4] for each in expected], version
        if version >= 7:
            assert [each.leader_epoch for each in answer.topics[0].partitions] == [7, 7, 7, 7, 7]


async def test_a_cached_topic_is_encoded_again_when_a_replica_falls_behind() -> None:
    topic = Topic(id="ab" * 16, name="orders", partitions=1, created_at_ms=0)
    cluster = made_up(topic, leaders={0: "ann"})
    cluster._members.items[member_key("agent", "bob")] = Member(id="bob", session="s", address="h:2", node=5)
    for in_sync, nodes in (("ab", (4, 5)), ("a", (4,)), ("ab", (4, 5))):
        replicate(cluster, topic, 0, "ab", in_sync)
        answer = read(12, encoded(12, cluster, [MetadataTopic(topic)]))
        assert answer.topics[0].partitions[0].isr_nodes == nodes


def encoded(version: int, cluster: Cluster, topics: list[MetadataTopic]) -> bytes:
    broker = Broker(node=4, host="h", port=1, rack="a")
    known = encode_topics(version, cluster, topics)
    return encode_metadata(version, known, brokers=[broker], cluster_id="c", controller=4, topics=topics)


def read(version: int, data: bytes) -> Any:
    answer, size = entity_reader(load_response_schema(3, version))(data, 0)
    assert size == len(data)
    return answer


async def test_every_version_describes_the_cluster(tmp_path: Path) -> None:
    async with admin_of(tmp_path) as admin:
        for version in versions("DescribeCluster"):
            answer = await admin.ask("DescribeCluster", version, include_cluster_authorized_operations=version > 0)
            assert (code(answer), answer.cluster_id, answer.controller_id) == (ErrorCode.NONE, "tests", admin.node)
            (broker,) = answer.brokers
            assert (broker.broker_id, broker.host, broker.port) == (admin.node, "127.0.0.1", admin.gateway.port)
            assert answer.cluster_authorized_operations == (
                ALL_OPERATIONS[ResourceType.CLUSTER] if version > 0 else AUTHORIZED_OPERATIONS_OMITTED
            )


@pytest.mark.parametrize(
    ("endpoint_type", "refusal"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
async def test_describe_cluster_rejects_other_endpoint_types(
    tmp_path: Path, endpoint_type: int, refusal: ErrorCode
) -> None:
    async with admin_of(tmp_path) as admin:
        answer = await admin.ask("DescribeCluster", endpoint_type=endpoint_type)
        assert (code(answer), answer.brokers) == (refusal, ())
        assert "must be broker (1)" in answer.error_message


async def test_partitions_are_described_page_by_page(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"a": 3, "b": 1, "c": 4}) as admin:
        found: list[tuple[str, int]] = []
        cursor, pages = None, 0
        while True:
            answer = await admin.ask("DescribeTopicPartitions", topics=(), response_partition_limit=2, cursor=cursor)
            pages += 1
            for topic in answer.topics:
                assert code(topic) is ErrorCode.NONE
                found += [(topic.name, each.partition_index) for each in topic.partitions]
                assert all(each.leader_id == admin.node for each in topic.partitions)
            if answer.next_cursor is None:
                break
            cursor = {
                "topic_name": answer.next_cursor.topic_name,
                "partition_index": answer.next_cursor.partition_index,
            }
        assert found == [*(("a", n) for n in range(3)), ("b", 0), *(("c", n) for n in range(4))]
        assert pages == 4


async def test_topics_that_are_described_by_name_may_be_unknown(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"a": 1}) as admin:
        answer = await admin.ask(
            "DescribeTopicPartitions", topics=names("nowhere", "a", "b/c"), response_partition_limit=2000
        )
        assert {topic.name: code(topic) for topic in answer.topics} == {
            "a": ErrorCode.NONE,
            "b/c": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert answer.next_cursor is None
        assert [topic.name for topic in await admin.backend.log.list_topics()] == ["a"], "describing makes nothing"


async def test_two_agents_are_two_brokers_and_each_leads_its_share(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 4}) as admin:
        bob = await admin.gateway.cluster.node("bob", address="[::1]:9", zone="b")
        await async_until(lambda: len(bob.leads()) == 2 and len(admin.gateway.node.leads()) == 2)
        assert bob.agent.member is not None
        other = bob.agent.member.node
        expected = {number: other if number in bob.leads() else admin.node for number in range(4)}
        found = admin.backend.cluster
        await async_until(lambda: {n: leader_of(found, "orders", n).node for n in range(4)} == expected)
        assert found.leaders("orders", 5) == [found.leader("orders", number) for number in range(5)]
        answer = await admin.ask("Metadata", topics=names("orders"))
        assert {(each.node_id, each.host, each.port, each.rack) for each in answer.brokers} == {
            (admin.node, "127.0.0.1", admin.gateway.port, None),
            (other, "::1", 9, "b"),
        }
        leaders = {each.partition_index: each.leader_id for each in answer.topics[0].partitions}
        assert leaders == expected
        assert answer.controller_id == admin.node, "who was there first plans"
        cluster = await admin.ask("DescribeCluster")
        assert {each.broker_id for each in cluster.brokers} == {admin.node, other}
        offsets = await admin.ask(
            "ListOffsets",
            replica_id=-1,
            topics=[{"name": "orders", "partitions": [{"partition_index": n, "timestamp": -1} for n in range(4)]}],
        )
        assert {each.partition_index for each in offsets.topics[0].partitions if code(each) is ErrorCode.NONE} == set(
            admin.gateway.node.leads()
        )
        assert {code(each) for each in offsets.topics[0].partitions} == {
            ErrorCode.NONE,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        }


async def test_an_agent_that_has_left_is_a_broker_of_metadata_for_a_moment_and_leads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departures, "LISTED_MS", 3_600_000)  # longer than any machine takes
    async with admin_of(tmp_path, topics={"orders": 4}) as admin:
        bob = await admin.gateway.cluster.node("bob", address="[::1]:9")
        await async_until(lambda: len(bob.leads()) == 2)
        assert bob.agent.member is not None
        other = bob.agent.member.node
        await bob.stop()
        await async_until(lambda: len(admin.gateway.node.leads()) == 4 and admin.backend.cluster.member("bob") is None)
        answer = await admin.ask("Metadata", topics=names("orders"))
        assert {each.node_id for each in answer.brokers} == {admin.node, other}
        assert {each.leader_id for each in answer.topics[0].partitions} == {admin.node}
        cluster = await admin.ask("DescribeCluster")
        assert {each.broker_id for each in cluster.brokers} == {admin.node}


async def test_a_cluster_without_agents_lists_the_node_itself(tmp_path: Path) -> None:
    async with admin_of(tmp_path) as admin:
        topic = Topic(id="ab" * 16, name="orders", partitions=2, created_at_ms=0)
        alone = made_up(topic, leaders={})
        alone._members.items.clear()
        me = Broker(node=77, host="h", port=1)
        backend = dataclasses.replace(admin.backend, cluster=alone, me=lambda: me)
        assert (brokers(backend), controller(backend)) == ([me], 77)
        # It was a member itself a moment ago: no client is given two brokers of one id.
        before = Member(id="ann", session="s", node=77, address="h:1")
        alone.departures.members_changed([before], backend.clock.boot_ms())
        alone.departures.members_changed([], backend.clock.boot_ms())
        assert listed_brokers(backend) == [me]
        nobody = dataclasses.replace(backend, me=lambda: None)
        assert (brokers(nobody), controller(nobody)) == ([], -1)
