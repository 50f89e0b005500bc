"""confluent-kafka: after the broker was stopped and started, everything is read from where it is kept, as it was sent."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import ConsumerGroupState, TopicPartition
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic
from tests.support.broker import ADMIN_TIMEOUT_S, Broker, owned, serving
from tests.support.librdkafka_client import OFFSETS, consuming, read_all, send, send_values, take, values
from tests.support.record_shapes import COMPRESSIONS, KEEP, SHAPES, Shape
from tests.support.workload import judge, keyed

SENT = [shape for shape in SHAPES if shape.timestamp_ms != 0]
START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Kept:
    """A broker in its second life, and what was made in its first."""

    broker: Broker
    shapes: dict[str, str]
    timed: str
    wide: str
    shortened: str
    group: str
    alike: dict[str, int]


@pytest.fixture(scope="module", params=[pytest.param("stopped", marks=pytest.mark.long), "killed"])
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    if not owned():
        pytest.skip("the broker belongs to somebody else: it cannot be stopped")
    with serving(tmp_path_factory.mktemp("kept")) as broker:
        made = make(broker)
        if request.param == "stopped":
            broker.terminate()
        else:
            broker.kill()
        broker.start()
        for topic in (*made.shapes.values(), *made.alike, made.timed, made.wide, made.shortened):
            broker.await_leaders(topic)
        yield made


def make(broker: Broker) -> Kept:
    shapes = {compression: broker.create_topic("shapes", 1, KEEP) for compression in COMPRESSIONS}
    for compression, topic in shapes.items():
        send(broker, topic, SENT, {"compression.type": compression, "linger.ms": 50})
    timed = broker.create_topic("timed", 1, KEEP)
    for hour in (3, 0, 7, 5, 1):
        times = [START_MS + hour * HOUR_MS + second * 1_000 for second in range(50)]
        send(broker, timed, [Shape(name="", timestamp_ms=time_ms) for time_ms in times], {"linger.ms": 20})
    wide = broker.create_topic("wide", 6)
    items = [Shape(name="", key=item.key, value=item.value) for item in keyed(3_000, keys=40)]
    send(broker, wide, items, {"batch.num.messages": 50, "enable.idempotence": True})
    shortened = broker.create_topic("shortened", 1, {"retention.ms": "86400000"})
    send_values(broker, shortened, [b"%d" % index for index in range(100)], {"batch.num.messages": 7})
    partition = TopicPartition(shortened, 0, 40)
    broker.admin.delete_records([partition])[partition].result(ADMIN_TIMEOUT_S)
    group = broker.unique('группа with spaces / and "quotes"')
    with consuming(broker, {"group.id": group}) as client:
        client.commit(offsets=[TopicPartition(shortened, 0, 77, metadata="here")], asynchronous=False)
    return Kept(broker, shapes, timed, wide, shortened, group, make_alike(broker))


def make_alike(broker: Broker) -> dict[str, int]:
    """Topics whose names run into the numbers of their partitions, and how many each has."""
    short = broker.unique("orders")
    names = {short: 2, f"{short}-1": 2, f"{short}-1-0": 1, f"{short}-0": 1}
    for created in broker.admin.create_topics([NewTopic(name, count, 1) for name, count in names.items()]).values():
        created.result(ADMIN_TIMEOUT_S)
    for name, count in names.items():
        for partition in range(count):
            send_values(broker, name, [f"{name}/{partition}".encode()] * 10, partition=partition)
    return names


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_shape_is_as_it_was_sent(kept: Kept, compression: str) -> None:
    found = read_all(kept.broker, kept.shapes[compression])
    assert [message.offset for message in found] == list(range(len(SENT)))
    for message, shape in zip(found, SENT, strict=True):
        assert (message.key, message.value, message.headers) == (shape.key, shape.value, shape.headers)
        assert message.timestamp_ms == (shape.timestamp_ms or message.timestamp_ms)


def test_reading_begins_in_the_middle_of_batches(kept: Kept) -> None:
    topic = kept.shapes["lz4"]
    for offset in range(len(SENT)):
        found = read_all(kept.broker, topic, start=offset, config={"max.partition.fetch.bytes": 1_000})
        assert [message.offset for message in found] == list(range(offset, len(SENT)))


def test_times_are_still_found(kept: Kept) -> None:
    # In the order of writing: hour 3 is at 0, hour 0 at 50, hour 7 at 100, hour 5 at 150, hour 1 at 200.
    wanted = {0: 0, 3: 0, 4: 100, 5: 100, 7: 100}
    with consuming(kept.broker) as client:
        for hour, offset in wanted.items():
            asked = TopicPartition(kept.timed, 0, START_MS + hour * HOUR_MS)
            assert client.offsets_for_times([asked], timeout=10)[0].offset == offset
        asked = TopicPartition(kept.timed, 0, START_MS + 3 * HOUR_MS + 20_500)
        assert client.offsets_for_times([asked], timeout=10)[0].offset == 21
        asked = TopicPartition(kept.timed, 0, START_MS + 7 * HOUR_MS + 49_000)
        assert client.offsets_for_times([asked], timeout=10)[0].offset == 149
    partition = TopicPartition(kept.timed, 0)
    answer = kept.broker.admin.list_offsets({partition: OFFSETS.max_timestamp()})[partition].result(ADMIN_TIMEOUT_S)
    assert (answer.offset, answer.timestamp) == (149, START_MS + 7 * HOUR_MS + 49_000)


def test_partitions_are_whole_and_in_order(kept: Kept) -> None:
    found = values(read_all(kept.broker, kept.wide, range(6)))
    judged = judge([item.value for item in keyed(3_000, keys=40)], found)
    assert judged.clean, judged


def test_topics_whose_names_run_into_their_partitions_stay_apart(kept: Kept) -> None:
    for name, count in kept.alike.items():
        for partition in range(count):
            assert values(read_all(kept.broker, name, [partition])) == [f"{name}/{partition}".encode()] * 10


def test_deleted_records_stay_deleted(kept: Kept, request: pytest.FixtureRequest) -> None:
    if kept.broker.kind == "apache" and "killed" in request.node.name:
        pytest.skip("Apache Kafka notes the start of a log once a minute: a kill brings deleted records back")
    assert values(read_all(kept.broker, kept.shortened))[:60] == [b"%d" % index for index in range(40, 100)]
    with consuming(kept.broker) as client:
        low, high = client.get_watermark_offsets(TopicPartition(kept.shortened, 0), timeout=10)
    assert low == 40
    assert high >= 100


def test_settings_stay_set(kept: Kept) -> None:
    resource = ConfigResource("topic", kept.shortened)
    found = kept.broker.admin.describe_configs([resource])[resource].result(ADMIN_TIMEOUT_S)
    assert found["retention.ms"].value == "86400000"


def test_groups_stay_where_they_were(kept: Kept) -> None:
    told = kept.broker.admin.describe_consumer_groups([kept.group])[kept.group].result(ADMIN_TIMEOUT_S)
    assert told.state == ConsumerGroupState.EMPTY
    with consuming(kept.broker, {"group.id": kept.group}) as client:
        (found,) = client.committed([TopicPartition(kept.shortened, 0)], timeout=10)
        assert (found.offset, found.metadata) == (77, "here")
        client.subscribe([kept.shortened])
        assert [message.offset for message in take(client, 23)] == list(range(77, 100))


def test_writing_goes_on_at_the_end(kept: Kept) -> None:
    before = read_all(kept.broker, kept.shortened)[-1].offset
    assert send_values(kept.broker, kept.shortened, [b"next"])[0].offset == before + 1
    assert read_all(kept.broker, kept.shortened)[-1].value == b"next"
