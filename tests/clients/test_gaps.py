"""Offsets that a takeover skipped: clients read over them and reach the end (docs/safety.md, rule 22)."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import TopicPartition
from tests.support import aiokafka_client, kafka_python_client
from tests.support.broker import CHOICE, Broker, serving
from tests.support.clients.java import runner
from tests.support.kafka_python_import import TopicPartition as KafkaPythonPartition
from tests.support.librdkafka_client import consuming, read_all, send_values, values
from tests.support.waiting import async_until, until

from holdfast.client.brokers import BrokerClient
from holdfast.client.cluster_access import ClusterAccess
from holdfast.client.cluster_address import ClusterAddress
from holdfast.client.range_planner import RangePlanner
from holdfast.client.range_reader import RangeReader, ReadRequest
from holdfast.client.types import PartitionRange
from holdfast.log.batches import decode
from holdfast.vocabulary.errors import UnavailableError

pytestmark = pytest.mark.xdist_group("gaps")  # one broker that lost its WAL serves them all

KCAT = shutil.which("kcat") or shutil.which("kafkacat")
UNCLEAN = {"holdfast.unclean.takeover": "true"}


@dataclass(frozen=True)
class Gaps:
    """A broker that lost its WAL: `ended` ends with a gap, `inner` has records before and behind one, `bare` has nothing else."""

    broker: Broker
    ended: str
    inner: str
    bare: str


@pytest.fixture(scope="module")
def gaps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gaps]:
    if CHOICE != "holdfast":
        pytest.skip("made from the inside of Holdfast's data directory")
    # A process without the old WAL has to wait until the session of the killed one ends: let that be soon.
    soon = ("--set", "session.ttl_ms=8000", "--set", "session.renew_ms=1000", "--set", "session.margin_ms=1000")
    with serving(tmp_path_factory.mktemp("gaps"), *soon) as broker:
        ended, inner, bare = (broker.create_topic(name, 1, UNCLEAN) for name in ("ended", "inner", "bare"))
        for topic in (ended, inner):
            send_values(broker, topic, [b"1", b"2"])
        assert broker.terminate() == 0  # which publishes them
        broker.start()
        for topic in (ended, inner, bare):
            broker.await_leaders(topic)
            send_values(broker, topic, [b"lost with its disk"])
        broker.kill()
        (wal,) = {path.parent for path in broker.server.directory.rglob("identity")}
        shutil.rmtree(wal)
        broker.start()
        for topic in (ended, inner, bare):
            broker.await_leaders(topic)
        send_values(broker, inner, [b"3"])
        yield Gaps(broker, ended, inner, bare)


def end_of(broker: Broker, topic: str) -> int:
    with consuming(broker) as client:
        return client.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)[1]


def test_librdkafka_reaches_the_end_of_each_partition(gaps: Gaps) -> None:
    assert end_of(gaps.broker, gaps.ended) > 1_000
    assert values(read_all(gaps.broker, gaps.ended)) == [b"1", b"2"]
    assert values(read_all(gaps.broker, gaps.inner)) == [b"1", b"2", b"3"]
    assert values(read_all(gaps.broker, gaps.bare)) == []


@pytest.mark.parametrize("start", [2, 500])
def test_librdkafka_reads_on_from_inside_a_gap(gaps: Gaps, start: int) -> None:
    assert values(read_all(gaps.broker, gaps.ended, start=start)) == []
    assert values(read_all(gaps.broker, gaps.inner, start=start)) == [b"3"]


@pytest.mark.skipif(KCAT is None, reason="kcat is not installed")
def test_kcat_ends_at_the_end(gaps: Gaps) -> None:
    for topic, lines in ((gaps.ended, b"1\n2\n"), (gaps.inner, b"1\n2\n3\n"), (gaps.bare, b"")):
        argv = [str(KCAT), "-b", gaps.broker.bootstrap, "-C", "-q", "-e", "-t", topic]
        assert subprocess.run(argv, capture_output=True, timeout=30, check=True).stdout == lines


def test_kafka_python_moves_its_position_to_the_end(gaps: Gaps) -> None:
    for topic in (gaps.ended, gaps.inner, gaps.bare):
        with kafka_python_client.consuming(gaps.broker) as consumer:
            partition = KafkaPythonPartition(topic, 0)
            consumer.assign([partition])
            end = consumer.end_offsets([partition])[partition]

            def at_end(consumer=consumer, partition=partition, end=end) -> bool:  # type: ignore[no-untyped-def]
                consumer.poll(timeout_ms=100)
                return bool(consumer.position(partition) == end)

            until(at_end, what=f"the end of {topic}")


async def test_aiokafka_moves_its_position_to_the_end(gaps: Gaps) -> None:
    from aiokafka import TopicPartition as Partition

    for topic in (gaps.ended, gaps.inner, gaps.bare):
        async with aiokafka_client.consuming(gaps.broker) as consumer:
            partition = Partition(topic, 0)
            consumer.assign([partition])
            end = (await consumer.end_offsets([partition]))[partition]

            async def at_end(consumer=consumer, partition=partition, end=end) -> bool:  # type: ignore[no-untyped-def]
                await consumer.getmany(partition, timeout_ms=100)
                return bool(await consumer.position(partition) == end)

            await async_until(at_end, what=f"the end of {topic}")


async def test_a_range_over_gaps_is_read_from_brokers(gaps: Gaps) -> None:
    brokers = BrokerClient(gaps.broker.bootstrap)
    try:
        cluster = ClusterAccess(ClusterAddress(bootstrap=gaps.broker.bootstrap), None, brokers)
        for topic, found in ((gaps.ended, [b"1", b"2"]), (gaps.inner, [b"1", b"2", b"3"]), (gaps.bare, [])):
            offsets = await RangePlanner(cluster).topic_offsets(topic)
            wanted = PartitionRange(topic, 0, 0, offsets.ends[0])
            chunks = [chunk async for chunk in RangeReader(cluster, ReadRequest(range=wanted)).chunks()]
            records = [record for chunk in chunks for data in chunk.batches for record in decode(data)]
            assert [record.value for record in records] == found
    finally:
        await brokers.close()


@pytest.mark.timeout(120)
def test_javas_consumer_commits_the_end(gaps: Gaps) -> None:
    try:
        tools = runner.Tools()
    except UnavailableError as missing:
        pytest.skip(str(missing))
    group, end = gaps.broker.unique("java"), end_of(gaps.broker, gaps.ended)
    argv = ("--bootstrap-server", gaps.broker.bootstrap, "--topic", gaps.ended, "--from-beginning", "--group", group)
    try:
        for timeout_ms in ("4000", "10000", "20000"):  # a busy machine needs longer to join the group
            tools.run("ConsoleConsumer", *argv, "--timeout-ms", timeout_ms)
            with consuming(gaps.broker, {"group.id": group}) as client:
                (committed,) = client.committed([TopicPartition(gaps.ended, 0)], timeout=20)
            if committed.offset == end:
                break
    finally:
        tools.close()
    assert committed.offset == end
