"""Ranges read from a real broker: every route gives the same records, also while they are published, compacted or removed."""

import asyncio
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.cimpl import NewTopic
from pyspark.sql.pandas.types import to_arrow_schema
from tests.support.broker import Broker, serving
from tests.support.broker_fixtures import NewBroker
from tests.support.forked import end_in_time
from tests.support.kafka_admin import admin_of
from tests.support.spark_topics import (
    Sent,
    address_of,
    await_published,
    count_rows,
    delete_before,
    noise,
    numbered,
    publish_quickly,
    publish_slowly,
    published_address_of,
    send,
    values,
)
from tests.support.waiting import until

from holdfast.client import loop_thread
from holdfast.client.cluster_address import ClusterAddress
from holdfast.log.topics import UnknownTopicError
from holdfast.spark.arrow_tables import arrow_schema
from holdfast.spark.clusters import discover_urls
from holdfast.spark.ranges import (
    DataLossError,
    PartitionRange,
    Planner,
    ReadCounters,
    TimeBounds,
    TopicChangedError,
    read_range,
)
from holdfast.vocabulary.errors import InvalidError
from pyspark_holdfast import DefaultSource

FOREVER = {"retention.ms": "-1"}  # for records with timestamps of another year
QUICK = {"segment.ms": "100", **FOREVER}  # published a moment after it was written


def all_of(cluster_address: ClusterAddress, whole: PartitionRange, **how: object) -> pa.Table:
    return pa.Table.from_batches(read_range(cluster_address, whole, **how), arrow_schema(True))  # type: ignore[arg-type]


@pytest.mark.parametrize("headers", [False, True])
def test_the_columns_are_those_that_spark_expects(headers: bool) -> None:
    declared = DefaultSource({"includeHeaders": str(headers).lower()}).schema()
    assert to_arrow_schema(declared, timezone="UTC") == arrow_schema(headers)


@pytest.mark.parametrize("packing", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_is_read_from_the_tail_and_from_objects(broker: Broker, packing: str) -> None:
    topic = broker.create_topic("packed")
    sent = [Sent(b"%d " % number * 20, key=b"%d" % number if number % 3 else None) for number in range(3_000)]
    sent[7] = Sent(None, key=b"gone")
    send(broker, topic, sent, **{"compression.type": packing})
    whole = PartitionRange(topic, 0, 0, len(sent))
    tail = all_of(ClusterAddress(bootstrap=broker.bootstrap), whole)
    assert tail.column("value").to_pylist() == [each.value for each in sent]
    assert tail.column("key").to_pylist() == [each.key for each in sent]
    assert tail.column("offset").to_pylist() == list(range(len(sent)))
    publish_quickly(broker, topic)
    await_published(broker, topic)
    assert all_of(published_address_of(broker), whole).equals(tail)
    assert all_of(address_of(broker), whole).equals(tail)


def test_headers_and_times_arrive_as_they_were_sent(broker: Broker) -> None:
    topic = broker.create_topic("headers", config=FOREVER)
    sent = [
        Sent(b"1", timestamp_ms=1_700_000_000_123, headers=[("a", b"x"), ("a", None)]),
        Sent(b"2", timestamp_ms=1_600_000_000_000),
        Sent(b"3", timestamp_ms=1_800_000_000_999, headers=[("ü", b"")]),
    ]
    send(broker, topic, sent)
    found = all_of(address_of(broker), PartitionRange(topic, 0, 0, 3)).to_pylist()
    assert [row["headers"] for row in found] == [
        [{"key": "a", "value": b"x"}, {"key": "a", "value": None}],
        None,
        [{"key": "ü", "value": b""}],
    ]
    assert found[0]["timestamp"] == datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
    assert {row["timestampType"] for row in found} == {0}
    assert {(row["topic"], row["partition"]) for row in found} == {(topic, 0)}
    # A table that begins in the middle of a batch has the headers of its own rows.
    assert [row["headers"] for row in all_of(address_of(broker), PartitionRange(topic, 0, 1, 3)).to_pylist()] == [
        None,
        [{"key": "ü", "value": b""}],
    ]


@pytest.mark.parametrize(
    "way", [address_of, published_address_of, lambda broker: ClusterAddress(bootstrap=broker.bootstrap)]
)
def test_a_range_is_cut_to_the_record(broker: Broker, way: object) -> None:
    topic = broker.create_topic("cut", config=QUICK)
    send(broker, topic, numbered(5_000))
    await_published(broker, topic)
    cluster_address = way(broker)  # type: ignore[operator]
    for start, end in ((0, 1), (17, 18), (4_999, 5_000), (1_234, 4_321), (10, 10)):
        assert values(cluster_address, topic, 0, start, end) == [b"%d" % number for number in range(start, end)]


def test_published_records_come_from_objects_and_the_rest_from_brokers(broker: Broker) -> None:
    topic = broker.create_topic("both", config=QUICK)
    send(broker, topic, numbered(20_000))
    await_published(broker, topic)
    rows, counters = count_rows(address_of(broker), topic, 1)
    assert (rows, counters.bytes_agents) == (20_000, 0)
    assert counters.bytes_objects > 20_000
    rows, counters = count_rows(ClusterAddress(bootstrap=broker.bootstrap), topic, 1)
    assert (rows, counters.bytes_objects) == (20_000, 0)


def test_nothing_is_lost_or_doubled_while_publishing_goes_on(broker: Broker) -> None:
    topic = broker.create_topic("moving", config=QUICK)
    cluster_address, expected = address_of(broker), [b"%d" % number for number in range(12_000)]

    def go_on() -> None:
        for at in range(0, 12_000, 1_500):
            send(broker, topic, numbered(1_500, first=at))

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(go_on)
        counters, looks = ReadCounters(), 0
        while True:
            done = sending.done()
            end = Planner(cluster_address).topic_offsets(topic).ends[0]
            found: list[bytes | None] = []
            for table in read_range(cluster_address, PartitionRange(topic, 0, 0, end), counters=counters):
                found += table.column("value").to_pylist()
            assert found == expected[:end]
            looks += 1
            if done:
                break
        sending.result()
    assert looks > 1
    assert counters.bytes_objects > 0


def test_readers_without_brokers_see_what_is_published(broker: Broker) -> None:
    topic = broker.create_topic("quiet")  # nothing is rolled before a minute has passed
    send(broker, topic, numbered(10))
    assert Planner(address_of(broker)).topic_offsets(topic).ends == (10,)
    assert Planner(published_address_of(broker)).topic_offsets(topic).ends == (0,)
    with pytest.raises(DataLossError, match="bootstrap"):
        values(published_address_of(broker), topic, 0, 0, 10)


@pytest.mark.long  # waits for upkeep; what readers make of gaps is in test_replanning, too
def test_compacted_topics_have_gaps_and_nothing_else_is_missing(broker: Broker) -> None:
    config = {**QUICK, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    topic = broker.create_topic("compacted", config=config)
    cluster_address = address_of(broker)
    for turn in range(3):
        send(broker, topic, [Sent(b"%d" % turn, key=b"%d" % (number % 10)) for number in range(500)])
        await_published(broker, topic)
    end = Planner(cluster_address).topic_offsets(topic).ends[0]

    def compacted() -> bool:
        offsets = all_of(cluster_address, PartitionRange(topic, 0, 0, end)).column("offset").to_pylist()
        assert offsets == sorted(set(offsets))
        return len(offsets) < 500

    until(compacted, within_s=90, what="the topic is compacted")
    kept = all_of(cluster_address, PartitionRange(topic, 0, 0, end)).to_pylist()
    assert {row["key"]: row["value"] for row in kept} == {b"%d" % key: b"2" for key in range(10)}


def test_missing_offsets_are_named_and_the_rest_can_be_read(broker: Broker) -> None:
    topic = broker.create_topic("trimmed", config=QUICK)
    send(broker, topic, numbered(1_000))
    await_published(broker, topic)
    delete_before(broker, topic, 400)
    cluster_address = address_of(broker)
    assert Planner(cluster_address).topic_offsets(topic).starts == (400,)
    for way in (cluster_address, published_address_of(broker), ClusterAddress(bootstrap=broker.bootstrap)):
        with pytest.raises(DataLossError) as lost:
            values(way, topic, 0, 100, 500)
        assert (lost.value.topic, lost.value.requested, lost.value.lost) == (topic, (100, 500), (100, 400))
        kept = all_of(way, PartitionRange(topic, 0, 100, 500), skip_lost=True)
        assert kept.column("value").to_pylist() == [b"%d" % number for number in range(400, 500)]
        with pytest.raises(DataLossError, match="ends"):
            values(ClusterAddress(bootstrap=broker.bootstrap), topic, 0, 900, 1_001)


def test_a_recreated_topic_is_another_one(broker: Broker) -> None:
    topic = broker.create_topic("again")
    send(broker, topic, numbered(5))
    cluster_address = address_of(broker)
    before = Planner(cluster_address).topic_offsets(topic).topic_id
    broker.admin.delete_topics([topic])[topic].result(20)
    with pytest.raises(UnknownTopicError):
        Planner(cluster_address).topic_offsets(topic)
    broker.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
    broker.await_leaders(topic)
    send(broker, topic, numbered(5))
    assert Planner(cluster_address).topic_offsets(topic).topic_id != before
    with pytest.raises(TopicChangedError, match="deleted and recreated"):
        all_of(cluster_address, PartitionRange(topic, 0, 0, 5), topic_id=before)


def test_times_find_offsets_in_objects_and_in_the_tail(broker: Broker) -> None:
    topic = broker.create_topic("times", config=QUICK)
    base = 1_700_000_000_000
    send(broker, topic, [Sent(b"x", timestamp_ms=base + number * 1_000) for number in range(100)])
    await_published(broker, topic)
    for cluster_address in (
        address_of(broker),
        published_address_of(broker),
        ClusterAddress(bootstrap=broker.bootstrap),
    ):
        planner = Planner(cluster_address)
        times = (0, base, base + 1, base + 42_000, base + 99_001)
        assert [planner.offset_at(topic, 0, at) for at in times] == [0, 0, 1, 42, 100]
    quiet = broker.create_topic("times-tail", config=FOREVER)
    send(broker, quiet, [Sent(b"x", timestamp_ms=base + number) for number in range(10)])
    assert Planner(address_of(broker)).offset_at(quiet, 0, base + 5) == 5


def test_a_window_of_time_reads_its_own_segments_alone(new_broker: NewBroker) -> None:
    """A minute out of a day: at most 2 % of the topic's bytes, everything that is read counted. No segment is above 1 MiB."""
    broker = new_broker("--set", "upkeep.merge_bytes_max=1048576")
    topic = broker.create_topic("day", config={"segment.bytes": "1048576", **QUICK})
    midnight, day = 1_700_000_000_000, 86_400
    # 96 MiB that do not shrink, a record every two seconds, some of them a few seconds late.
    records = [Sent(noise(2_200), timestamp_ms=midnight + at * 2_000 - (at * 7_919) % 5_000) for at in range(day // 2)]
    for at in range(0, len(records), 3_600):  # what waits for a publication longer becomes larger segments
        send(broker, topic, records[at : at + 3_600], **{"linger.ms": 20, "batch.size": 65_536})
        await_published(broker, topic)
    cluster_address = address_of(broker)
    whole = PartitionRange(topic, 0, 0, len(records))
    everything = ReadCounters()
    all_of(cluster_address, whole, counters=everything)
    noon = midnight + day * 500
    window = TimeBounds(floor_ms=noon, ceiling_ms=noon + 60_000, disorder_ms=10_000)
    counters = ReadCounters()
    found = all_of(cluster_address, whole, times=window, counters=counters)
    wanted = [at for at, each in enumerate(records) if noon <= each.timestamp_ms <= noon + 60_000]
    assert len(wanted) >= 25
    assert set(wanted) <= set(found.column("offset").to_pylist())
    share = (counters.bytes_objects + counters.bytes_agents) / everything.bytes_objects
    assert share <= 0.02, f"{share:.2%} of {everything.bytes_objects} bytes"
    # By offsets, as startingTimestamp and endingTimestamp have it, nothing has to be known about the order.
    planner = Planner(cluster_address)
    start, end = planner.offset_at(topic, 0, noon), planner.offset_at(topic, 0, noon + 60_000)
    counters = ReadCounters()
    all_of(cluster_address, PartitionRange(topic, 0, start, end), counters=counters)
    assert counters.bytes_objects <= 0.02 * everything.bytes_objects


def test_catching_up_takes_a_hundredth_from_brokers(broker: Broker) -> None:
    topic = broker.create_topic("behind", 2, {"segment.ms": "86400000", "segment.bytes": "1048576"})
    send(broker, topic, [Sent(noise(1_000), at % 2) for at in range(40_000)])
    publish_quickly(broker, topic)
    await_published(broker, topic)
    publish_slowly(broker, topic)
    send(broker, topic, [Sent(noise(1_000), at % 2) for at in range(200)])
    rows, counters = count_rows(address_of(broker), topic, 2)
    assert rows == 40_200
    assert 0 < counters.bytes_agents <= 0.01 * (counters.bytes_agents + counters.bytes_objects)


def test_splitting_is_deterministic_and_loses_nothing(broker: Broker) -> None:
    topic = broker.create_topic("split", config=QUICK)
    for at in range(0, 5_000, 1_000):
        send(broker, topic, numbered(1_000, first=at))
        await_published(broker, topic)
    publish_slowly(broker, topic)
    send(broker, topic, numbered(500, first=5_000))
    planner, whole = Planner(address_of(broker)), PartitionRange(topic, 0, 100, 5_500)
    parts = planner.split(whole, rows_max=700, bytes_max=1 << 30)
    assert parts == planner.split(whole, rows_max=700, bytes_max=1 << 30)
    assert max(part.end - part.start for part in parts) <= 700
    found: list[bytes | None] = []
    for part in parts:
        found += values(address_of(broker), topic, 0, part.start, part.end)
    assert found == [b"%d" % number for number in range(100, 5_500)]
    assert len(planner.split(whole, rows_max=1 << 30, bytes_max=1_000)) > 10


def test_a_reader_that_is_dropped_early_leaves_no_task_behind(broker: Broker) -> None:
    topic = broker.create_topic("left", config=QUICK)
    for at in range(0, 3_000, 1_000):
        send(broker, topic, numbered(1_000, first=at))
        await_published(broker, topic)
    for _ in range(20):
        tables = read_range(address_of(broker), PartitionRange(topic, 0, 0, 3_000))
        assert next(tables).num_rows > 0
        tables.close()  # type: ignore[attr-defined]
    assert len(values(address_of(broker), topic)) == 3_000


def test_a_folder_that_does_not_exist_is_named(broker: Broker, tmp_path: Path) -> None:
    cluster_address = address_of(broker)
    gone = ClusterAddress(store=cluster_address.store, objects=f"file://{tmp_path}/nowhere")
    with pytest.raises(InvalidError, match=r"option objects.*nowhere.*every driver and executor"):
        Planner(gone).topics()
    assert not (tmp_path / "nowhere").exists()
    gone = ClusterAddress(store=f"sqlite:///{tmp_path}/nothing.db", objects=cluster_address.objects)
    with pytest.raises(InvalidError, match=r"option store.*nothing\.db"):
        Planner(gone).topics()
    assert not (tmp_path / "nothing.db").exists()


def test_frozen_brokers_do_not_block_readers_of_what_is_published(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(tmp_path / "frozen") as broker:
        topic = broker.create_topic("frozen", config=QUICK)
        send(broker, topic, numbered(100))
        await_published(broker, topic)
        publish_slowly(broker, topic)
        send(broker, topic, numbered(10, first=100))
        cluster_address = address_of(broker)
        assert Planner(cluster_address).topic_offsets(topic).ends == (110,)
        broker.stop()
        try:
            assert Planner(cluster_address).topic_offsets(topic).ends == (100,)
            assert any("using what is published" in each for each in caplog.messages)
            assert len(values(cluster_address, topic, end=100)) == 100
        finally:
            broker.cont()
        until(lambda: Planner(cluster_address).topic_offsets(topic).ends == (110,), what="the broker is back")


def test_a_reader_fails_when_its_process_closes_the_loop(broker: Broker) -> None:
    topic = broker.create_topic("closed")
    send(broker, topic, numbered(10))
    tables = read_range(address_of(broker), PartitionRange(topic, 0, 0, 10))
    assert next(tables).num_rows == 10
    loop_thread.close()
    assert len(values(address_of(broker), topic)) == 10  # the next use starts a new loop


def test_a_store_of_another_cluster_is_refused(broker: Broker, tmp_path: Path) -> None:
    with serving(tmp_path / "other") as other:
        mixed = ClusterAddress(
            bootstrap=broker.bootstrap, store=address_of(other).store, objects=address_of(other).objects
        )
        with pytest.raises(InvalidError, match="cluster at"):
            Planner(mixed).topics()


async def test_without_advertised_urls_everything_comes_from_the_brokers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with admin_of(tmp_path) as admin:  # its URLs are as if they held secrets
        await admin.ask("CreateTopics", topics=[topic_of("plain")], timeout=timedelta(seconds=20))
        cluster_address = await asyncio.to_thread(
            discover_urls, ClusterAddress(bootstrap=f"127.0.0.1:{admin.gateway.port}")
        )
        assert (cluster_address.store, cluster_address.objects) == ("", "")
        assert any("give the options store and objects" in each for each in caplog.messages)
        assert await asyncio.to_thread(lambda: Planner(cluster_address).topic_offsets("plain").ends) == (0,)


def topic_of(name: str) -> dict[str, object]:
    return {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}


def _child(cluster_address: ClusterAddress, topic: str, answers: "multiprocessing.Queue[object]") -> None:
    end_in_time()
    try:
        answers.put(len(values(cluster_address, topic)))
    except BaseException as error:
        answers.put(repr(error))


def _parent(cluster_address: ClusterAddress, topic: str, answers: "multiprocessing.Queue[object]") -> None:
    """A process whose only other thread is the reader's, as Spark's workers are forked from one."""
    end_in_time()
    assert len(values(cluster_address, topic)) == 100  # it has it open
    parent = loop_thread.loop_thread()
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=_child, args=(cluster_address, topic, answers)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    assert loop_thread.loop_thread() is parent
    assert len(values(cluster_address, topic)) == 100


def test_a_forked_process_reads_on_a_loop_of_its_own(broker: Broker) -> None:
    topic = broker.create_topic("forked", config=QUICK)
    send(broker, topic, numbered(100))
    await_published(broker, topic)
    # Not forked from here: threads of other tests may hold locks that their copies would wait for.
    context = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[object] = context.Queue()
    parent = context.Process(target=_parent, args=(address_of(broker), topic, answers))
    parent.start()
    parent.join(90)
    assert parent.exitcode == 0
    assert [answers.get(timeout=10) for _ in range(2)] == [100, 100]
