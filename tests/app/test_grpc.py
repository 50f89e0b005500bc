"""gRPC at a real server, by stock clients: what is written is what others read, and limits hold whoever is slow, large or gone."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import httpx
import pytest
from confluent_kafka import Consumer
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tests.app.test_several_nodes import number
from tests.support.server_process import BROKER_ONLY, ServeProcess, leaders, started
from tests.support.waiting import WAIT_S, until

from holdfast.v1 import (
    cluster_service_pb2,
    cluster_service_pb2_grpc,
    consumer_group_service_pb2,
    consumer_group_service_pb2_grpc,
    fetch_service_pb2,
    fetch_service_pb2_grpc,
    produce_service_pb2,
    produce_service_pb2_grpc,
    topic_service_pb2,
    topic_service_pb2_grpc,
)
from holdfast.v1.position_pb2 import EDGE_LATEST, Position
from holdfast.v1.record_pb2 import Header, NewRecord

LIMITS = (
    "wal.file_bytes=8388608",
    "grpc.message_bytes_max=1048576",
    "grpc.fetches_max=4",
    "grpc.produce_requests_max=4",
)


class Client:
    """Stubs of one channel."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel
        self.topics = topic_service_pb2_grpc.TopicServiceStub(channel)
        self.producing = produce_service_pb2_grpc.ProduceServiceStub(channel)
        self.fetching = fetch_service_pb2_grpc.FetchServiceStub(channel)
        self.groups = consumer_group_service_pb2_grpc.ConsumerGroupServiceStub(channel)
        self.cluster = cluster_service_pb2_grpc.ClusterServiceStub(channel)

    def create(self, name: str, partitions: int = 1) -> str:
        self.topics.CreateTopic(topic_service_pb2.CreateTopicRequest(name=name, partitions=partitions), timeout=WAIT_S)
        return name

    def produce(self, topic: str, *values: bytes, **more: object) -> list[int]:
        records = [NewRecord(value=value) for value in values]
        request = produce_service_pb2.ProduceRequest(topic=topic, records=records, **more)  # type: ignore[arg-type]
        return list(self.producing.Produce(request, timeout=WAIT_S).appended.offsets)

    def values(self, topic: str, **more: object) -> list[bytes]:
        request = fetch_service_pb2.FetchRequest(topic=topic, stop_at_end=True, **more)  # type: ignore[arg-type]
        return [record.value for each in self.fetching.Fetch(request, timeout=WAIT_S) for record in each.records]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    options = ("--roles", "api,agent", "--grpc", "127.0.0.1:0", *(word for each in LIMITS for word in ("--set", each)))
    running = ServeProcess(tmp_path_factory.mktemp("grpc"), *options)
    with started(running):
        yield running


@pytest.fixture
def client(node: ServeProcess) -> Iterator[Client]:
    with grpc.insecure_channel(node.grpc) as channel:
        yield Client(channel)


def refused(error: grpc.RpcError) -> tuple[grpc.StatusCode, str]:
    metadata: Any = error.trailing_metadata()
    return error.code(), str(dict(metadata or ()).get("holdfast-reason", ""))


def metric(node: ServeProcess, name: str) -> float:
    lines = httpx.get(f"{node.http}/metrics", timeout=WAIT_S).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def test_a_topics_life(client: Client) -> None:
    request = topic_service_pb2.CreateTopicRequest(name="life", partitions=2, config={"retention.ms": "60000"})
    assert client.topics.CreateTopic(request, timeout=WAIT_S).topic.partitions == 2
    with pytest.raises(grpc.RpcError) as taken:
        client.topics.CreateTopic(request, timeout=WAIT_S)
    assert refused(taken.value) == (grpc.StatusCode.ALREADY_EXISTS, "TOPIC_EXISTS")
    with pytest.raises(grpc.RpcError) as invalid:
        client.create("no/name")
    assert refused(invalid.value) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID")
    assert "life" in [each.name for each in client.topics.ListTopics(topic_service_pb2.ListTopicsRequest()).topics]
    described = client.topics.GetTopic(topic_service_pb2.GetTopicRequest(name="life")).topic
    assert (described.config["retention.ms"], list(described.overrides)) == ("60000", ["retention.ms"])
    altered = client.topics.AlterTopic(
        topic_service_pb2.AlterTopicRequest(
            name="life", partitions=3, set_config={"cleanup.policy": "compact"}, reset_config=["retention.ms"]
        ),
        timeout=WAIT_S,
    ).topic
    assert (altered.partitions, list(altered.overrides)) == (3, ["cleanup.policy"])
    rows = client.topics.DescribePartitions(topic_service_pb2.DescribePartitionsRequest(topic="life")).partitions
    assert [(row.partition, row.end_offset, row.offline) for row in rows] == [(0, 0, ""), (1, 0, ""), (2, 0, "")]
    client.topics.DeleteTopic(topic_service_pb2.DeleteTopicRequest(name="life"), timeout=WAIT_S)
    with pytest.raises(grpc.RpcError) as gone:
        client.topics.GetTopic(topic_service_pb2.GetTopicRequest(name="life"))
    assert refused(gone.value) == (grpc.StatusCode.NOT_FOUND, "UNKNOWN_TOPIC")


def test_records_come_back_as_they_went_in_also_to_kafkas_clients(client: Client, node: ServeProcess) -> None:
    client.create("shapes")
    records = [
        NewRecord(key=b"", value=b"", timestamp_ms=5, headers=[Header(name="h"), Header(name="h", value=b"")]),
        NewRecord(key=b"k"),
        NewRecord(value=b"\xff" * 1_000, partition=0),
    ]
    request = produce_service_pb2.ProduceRequest(topic="shapes", records=records)
    assert list(client.producing.Produce(request).appended.offsets) == [0, 1, 2]
    asked = fetch_service_pb2.FetchRequest(topic="shapes", stop_at_end=True)
    (response,) = client.fetching.Fetch(asked, timeout=WAIT_S)
    first, second, third = response.records
    assert (first.HasField("key"), first.HasField("value"), first.timestamp_ms) == (True, True, 5)
    assert [(each.name, each.HasField("value")) for each in first.headers] == [("h", False), ("h", True)]
    assert (second.key, second.HasField("value"), third.HasField("key")) == (b"k", False, False)
    assert (response.next_offset, response.end_offset) == (3, 3)
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["shapes"])
    read = consumer.consume(3, timeout=WAIT_S)
    consumer.close()
    assert [(each.key(), each.value()) for each in read] == [(b"", b""), (b"k", None), (None, b"\xff" * 1_000)]


def test_an_idempotency_key_appends_once(client: Client) -> None:
    client.create("once", 3)
    assert client.produce("once", b"a", b"b", idempotency_key="k") == [0, 1]
    assert client.produce("once", b"a", b"b", idempotency_key="k") == [0, 1]
    with pytest.raises(grpc.RpcError) as other:
        client.produce("once", b"other", b"b", idempotency_key="k")
    assert refused(other.value)[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert client.values("once") == [b"a", b"b"]


def test_a_stream_appends_in_order_and_acknowledges_every_request(client: Client) -> None:
    client.create("flow")

    def requests() -> Iterator[produce_service_pb2.ProduceStreamRequest]:
        for at in range(200):
            topic = "flow" if not at else ""
            yield produce_service_pb2.ProduceStreamRequest(
                request_id=at, topic=topic, records=[NewRecord(value=b"%d" % at)]
            )
        yield produce_service_pb2.ProduceStreamRequest(request_id=900)
        yield produce_service_pb2.ProduceStreamRequest(request_id=901, topic="none", records=[NewRecord()])

    answers = {each.request_id: each for each in client.producing.ProduceStream(requests(), timeout=WAIT_S)}
    assert [answers[at].appended.offsets[0] for at in range(200)] == list(range(200))
    assert [(answers[at].error.code, answers[at].error.reason) for at in (900, 901)] == [
        (grpc.StatusCode.INVALID_ARGUMENT.value[0], "INVALID"),
        (grpc.StatusCode.NOT_FOUND.value[0], "UNKNOWN_TOPIC"),
    ]
    assert client.values("flow", max_records=30) == [b"%d" % at for at in range(200)]


def test_positions(client: Client) -> None:
    client.create("places", 2)
    for at in range(3):
        record = NewRecord(value=b"%d" % at, partition=1, timestamp_ms=1_000 * (at + 1))
        client.producing.Produce(produce_service_pb2.ProduceRequest(topic="places", records=[record]))
    assert client.values("places") == [b"0", b"1", b"2"]
    start = fetch_service_pb2.PartitionStart(partition=1, start=Position(offset=2))
    assert client.values("places", partitions=[start]) == [b"2"]
    assert client.values("places", start=Position(timestamp_ms=1_500)) == [b"1", b"2"]
    assert client.values("places", start=Position(edge=EDGE_LATEST)) == []
    for wrong, code in ((Position(offset=-1), "INVALID"), (Position(offset=99), "OFFSET_OUT_OF_RANGE")):
        asked = fetch_service_pb2.FetchRequest(
            topic="places", partitions=[fetch_service_pb2.PartitionStart(partition=1, start=wrong)]
        )
        with pytest.raises(grpc.RpcError) as error:
            list(client.fetching.Fetch(asked, timeout=WAIT_S))
        assert refused(error.value)[1] == code


def test_a_fetch_follows_beats_and_is_freed_when_it_is_cancelled(client: Client, node: ServeProcess) -> None:
    client.create("tail")
    before = metric(node, "holdfast_grpc_streams")
    call = client.fetching.Fetch(fetch_service_pb2.FetchRequest(topic="tail", heartbeat_ms=20), timeout=WAIT_S)
    beat = next(call)
    assert not beat.HasField("partition")
    client.produce("tail", b"late")
    found = next(each for each in call if each.records)
    assert [record.value for record in found.records] == [b"late"]
    assert metric(node, "holdfast_grpc_streams") == before + 1
    call.cancel()
    until(lambda: metric(node, "holdfast_grpc_streams") == before)


def test_a_slow_reader_is_read_ahead_for_no_more_than_it_takes(client: Client, node: ServeProcess) -> None:
    client.create("slow")
    for _ in range(24):
        client.produce("slow", *[bytes(50_000)] * 16)
    before = metric(node, "holdfast_grpc_records_read_total")
    asked = fetch_service_pb2.FetchRequest(topic="slow", max_bytes=200_000, heartbeat_ms=50, stop_at_end=True)
    with grpc.insecure_channel(node.grpc, [("grpc.http2.bdp_probe", 0)]) as channel:
        call = Client(channel).fetching.Fetch(asked, timeout=WAIT_S)
        read = len(next(call).records)
        ahead = metric(node, "holdfast_grpc_records_read_total") - before
        assert ahead < 24 * 16 - read  # flow control holds the rest back
        read += sum(len(each.records) for each in call)
    assert read == 24 * 16


def test_streams_that_last_are_limited(client: Client, node: ServeProcess) -> None:
    client.create("many")
    until(lambda: metric(node, "holdfast_grpc_streams") == 0)
    asked = fetch_service_pb2.FetchRequest(topic="many", heartbeat_ms=10)
    calls = [client.fetching.Fetch(asked, timeout=WAIT_S) for _ in range(4)]
    for call in calls:
        next(call)
    with pytest.raises(grpc.RpcError) as error:
        next(client.fetching.Fetch(asked, timeout=WAIT_S))
    assert refused(error.value) == (grpc.StatusCode.UNAVAILABLE, "UNAVAILABLE")
    for call in calls:
        call.cancel()
    until(lambda: metric(node, "holdfast_grpc_streams") == 0)


def test_a_message_that_is_too_large_is_refused_and_the_connection_goes_on(client: Client) -> None:
    client.create("large")
    with pytest.raises(grpc.RpcError) as error:
        client.produce("large", bytes(2_000_000))
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert client.produce("large", b"small") == [0]


def test_connections_that_say_nothing_or_nonsense_hold_up_nobody(client: Client, node: ServeProcess) -> None:
    host, _, port = node.grpc.rpartition(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(20)]
    with socket.create_connection((host, int(port))) as nonsense:
        nonsense.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" + bytes(range(256)) * 10)
        client.create("among")
        assert client.produce("among", b"1") == [0]
    for each in silent:
        each.close()


def test_groups_are_committed_moved_listed_and_deleted(client: Client) -> None:
    client.create("read")
    client.produce("read", b"1", b"2", b"3")
    pb = consumer_group_service_pb2
    offset = pb.PartitionOffset(topic="read", partition=0, offset=1)
    (move,) = client.groups.CommitOffsets(pb.CommitOffsetsRequest(group="team", offsets=[offset])).moves
    assert (move.HasField("from_offset"), move.to_offset) == (False, 1)
    assert client.groups.GetConsumerGroupLag(pb.GetConsumerGroupLagRequest(group="team")).total_lag == 2
    described = client.groups.DescribeConsumerGroup(pb.DescribeConsumerGroupRequest(group="team"))
    assert (described.group.state, described.partitions[0].committed_offset) == ("empty", 1)
    assert "team" in [each.group for each in client.groups.ListConsumerGroups(pb.ListConsumerGroupsRequest()).groups]
    seek = pb.SeekOffsetRequest(group="team", topic="read", partition=0, to=Position(edge=EDGE_LATEST))
    assert client.groups.SeekOffset(seek).move.to_offset == 3
    reset = pb.ResetOffsetsRequest(group="team", topics=["read"], shift=-1)
    assert [each.to_offset for each in client.groups.ResetOffsets(reset).moves] == [2]
    with pytest.raises(grpc.RpcError) as neither:
        client.groups.ResetOffsets(pb.ResetOffsetsRequest(group="team", topics=["read"]))
    assert refused(neither.value)[0] is grpc.StatusCode.INVALID_ARGUMENT
    client.groups.DeleteConsumerGroup(pb.DeleteConsumerGroupRequest(group="team"))
    with pytest.raises(grpc.RpcError) as gone:
        client.groups.DescribeConsumerGroup(pb.DescribeConsumerGroupRequest(group="team"))
    assert refused(gone.value)[0] is grpc.StatusCode.NOT_FOUND


def test_the_cluster_is_listed(client: Client) -> None:
    client.create("listed", 2)
    pb = cluster_service_pb2
    (agent,) = client.cluster.ListAgents(pb.ListAgentsRequest()).agents
    assert agent.live
    assert client.cluster.GetAgent(pb.GetAgentRequest(id=agent.id)).agent.node == agent.node
    with pytest.raises(grpc.RpcError) as unknown:
        client.cluster.GetAgent(pb.GetAgentRequest(id="nobody"))
    assert refused(unknown.value) == (grpc.StatusCode.NOT_FOUND, "UNKNOWN_AGENT")
    rows = client.cluster.ListPartitions(pb.ListPartitionsRequest(topic="listed")).partitions
    assert [(row.partition, row.leader, row.epoch >= 1) for row in rows] == [(0, agent.id, True), (1, agent.id, True)]
    leases = client.cluster.ListLeases(pb.ListLeasesRequest(prefix="partition/listed/", page_size=1))
    assert [each.holder for each in leases.leases] == [agent.id]
    assert leases.next_page_token
    assert not client.cluster.ListTransfers(pb.ListTransfersRequest()).leases


def test_health_and_reflection(client: Client) -> None:
    check = health_pb2_grpc.HealthStub(client.channel).Check
    for service in ("", "holdfast.v1.TopicService"):
        found = check(health_pb2.HealthCheckRequest(service=service)).status
        assert found == health_pb2.HealthCheckResponse.SERVING
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = reflection_pb2_grpc.ServerReflectionStub(client.channel).ServerReflectionInfo(iter([asked]))
    names = {each.name for each in answer.list_services_response.service}
    assert {"holdfast.v1.ProduceService", "holdfast.v1.CoordinationService", "grpc.health.v1.Health"} <= names


async def test_a_client_of_asyncio(node: ServeProcess) -> None:
    async with grpc.aio.insecure_channel(node.grpc) as channel:
        request = topic_service_pb2.CreateTopicRequest(name="async", partitions=1)
        await topic_service_pb2_grpc.TopicServiceStub(channel).CreateTopic(request, timeout=WAIT_S)
        stream = produce_service_pb2_grpc.ProduceServiceStub(channel).ProduceStream()
        sent = produce_service_pb2.ProduceStreamRequest(request_id=7, topic="async", records=[NewRecord(value=b"x")])
        await stream.write(sent)
        answer = await stream.read()  # acknowledged while the stream stays open
        assert (answer.request_id, list(answer.appended.offsets)) == (7, [0])
        await stream.done_writing()


def test_any_node_answers_and_streams_end_with_their_server(tmp_path: Path) -> None:
    shared = ("--store", f"sqlite:///{tmp_path}/store.db", "--objects", f"file://{tmp_path}/objects")
    options = (*BROKER_ONLY, "--grpc", "127.0.0.1:0", *shared)
    nodes = [ServeProcess(tmp_path / name, "--agent-id", name, *options) for name in ("ann", "bob")]
    with started(*nodes), grpc.insecure_channel(nodes[0].grpc) as one, grpc.insecure_channel(nodes[1].grpc) as other:
        ann, bob = Client(one), Client(other)
        ann.create("both", 2)
        until(lambda: len(set(leaders(nodes[0].kafka, "both").values()) - {-1}) == 2)
        for client in (ann, bob):
            records = [NewRecord(value=b"1", partition=0), NewRecord(value=b"2", partition=1)]
            client.producing.Produce(produce_service_pb2.ProduceRequest(topic="both", records=records), timeout=WAIT_S)
        assert sorted(ann.values("both")) == sorted(bob.values("both")) == [b"1", b"1", b"2", b"2"]
        call = bob.fetching.Fetch(fetch_service_pb2.FetchRequest(topic="both", heartbeat_ms=20), timeout=WAIT_S)
        next(call)
        assert nodes[1].terminate() == 0
        with pytest.raises(grpc.RpcError) as stopped:
            list(call)
        assert stopped.value.code() is grpc.StatusCode.UNAVAILABLE
        until(lambda: set(leaders(nodes[0].kafka, "both").values()) == {number(nodes[0])})
        assert sorted(ann.values("both")) == [b"1", b"1", b"2", b"2"]
