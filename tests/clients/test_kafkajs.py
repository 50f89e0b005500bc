"""kafkajs: scenarios in JavaScript, judged here."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place
from tests.support.broker import Broker
from tests.support.clients.group_members import await_committed, await_shared, committed, verdict
from tests.support.clients.kafkajs_scenarios import Scenarios, installed, message
from tests.support.record_shapes import COMPRESSIONS, KEEP, SHAPES, Shape
from tests.support.waiting import until
from tests.support.workload import judge, keyed

from holdfast.vocabulary.clock import RealClock

CLOCK = RealClock()
SENDABLE = [
    shape for shape in SHAPES if all(value is not None for _, value in shape.headers)
]  # it knows no null header


@pytest.fixture(scope="session")
def modules() -> Path:
    return installed()


@pytest.fixture
def scenarios(modules: Path, broker: Broker) -> Scenarios:
    return Scenarios(modules, broker)


@pytest.fixture
def own_scenarios(modules: Path, own_broker: Broker) -> Scenarios:
    return Scenarios(modules, own_broker)


def of_shape(shape: Shape) -> dict[str, Any]:
    return message(shape.key, shape.value, headers=shape.headers, timestamp_ms=shape.timestamp_ms)


def assert_as_sent(read: list[dict[str, Any]], shapes: list[Shape]) -> None:
    assert [record["offset"] for record in read] == list(range(len(shapes)))
    for record, shape in zip(read, shapes, strict=True):
        wanted = of_shape(shape)
        found = {name: record[name] for name in ("key", "value")}
        assert found == {name: wanted[name] for name in ("key", "value")}, shape.name
        # A header that comes again is a list in this client: the order between names is not its to tell.
        assert dict(record["headers"]) == dict(wanted["headers"]), shape.name
        if shape.timestamp_ms is not None:
            assert record["timestamp"] == shape.timestamp_ms, shape.name


def fill(broker: Broker, topic: str, count: int, partitions: int = 1) -> None:
    """Numbers below `count` into every partition, from another client."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition in range(partitions):
        for number in range(count):
            producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(30) == 0


def values_of(broker: Broker, topic: str, partitions: int) -> list[bytes]:
    """Everything in a topic, read by another client."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    places = [Place(topic, number, 0) for number in range(partitions)]
    left = sum(consumer.get_watermark_offsets(place, timeout=20)[1] for place in places)
    consumer.assign(places)
    values: list[bytes] = []
    try:
        while len(values) < left:
            got = consumer.poll(20)
            assert got is not None, f"{len(values)} of {left}"
            assert got.error() is None
            values.append(got.value() or b"")
    finally:
        consumer.close()
    return values


@pytest.mark.parametrize(
    ("compression", "together"),
    [
        pytest.param(each, together, marks=() if together or each == "gzip" else pytest.mark.long)
        for each in COMPRESSIONS
        for together in (False, True)
    ],
)
def test_every_shape_comes_back(broker: Broker, scenarios: Scenarios, compression: str, together: bool) -> None:
    topic = broker.create_topic("shapes", config=KEEP)
    shapes = [shape for shape in SENDABLE if not together or len(shape.value or b"") < 10_000]
    batches = [shapes] if together else [[shape] for shape in shapes]
    sends = [
        {
            "compression": compression,
            "topicMessages": [{"topic": topic, "messages": [of_shape(each) for each in batch]}],
        }
        for batch in batches
    ]
    sent = scenarios("records.produce", sends=sends)
    assert [each["answers"][0]["errorCode"] for each in sent] == [0] * len(batches)
    read = scenarios("records.consume", topic=topic, group=broker.unique("reads"), count=len(shapes))
    assert_as_sent(read, shapes)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_what_librdkafka_wrote_is_read(broker: Broker, scenarios: Scenarios, compression: str) -> None:
    topic = broker.create_topic("foreign", config=KEEP)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": compression, "linger.ms": 20})
    timed = [shape for shape in SHAPES if shape.timestamp_ms != 0]  # librdkafka takes a zero for "now"
    for shape in timed:
        at_ms = shape.timestamp_ms or 0
        producer.produce(topic, shape.value, shape.key, 0, headers=list(shape.headers), timestamp=at_ms)
    assert producer.flush(30) == 0
    read = scenarios("records.consume", topic=topic, group=broker.unique("reads"), count=len(timed))
    assert_as_sent(read, timed)


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_acks(broker: Broker, scenarios: Scenarios, acks: int) -> None:
    topics = [broker.create_topic("acks", 2), broker.create_topic("acks", 2)]
    messages = [message(None, b"%d" % number, partition=number % 2) for number in range(6)]
    sends = [{"acks": acks, "topicMessages": [{"topic": topic, "messages": messages} for topic in topics]}] * 3
    sent = scenarios("records.produce", sends=sends)
    if acks == 0:
        assert [each["answers"] for each in sent] == [[]] * 3
    else:
        places = [(topic, partition) for topic in sorted(topics) for partition in (0, 1)]
        for turn, each in enumerate(sent):
            answers = sorted(
                (a["topicName"], a["partition"], a["errorCode"], int(a["baseOffset"])) for a in each["answers"]
            )
            assert answers == [(*place, 0, 3 * turn) for place in places]
    wanted = sorted([b"%d" % number for number in range(6)] * 3)
    for topic in topics:
        until(lambda topic=topic: sorted(values_of(broker, topic, 2)) == wanted, what=f"everything is in {topic}")  # type: ignore[misc]


def test_append_time_is_the_brokers(broker: Broker, scenarios: Scenarios) -> None:
    topic = broker.create_topic("append", config={**KEEP, "message.timestamp.type": "LogAppendTime"})
    before_ms = CLOCK.now_ms()
    messages = [message(None, b"now", timestamp_ms=1_000 + number) for number in range(3)]
    (sent,) = scenarios("records.produce", sends=[{"topicMessages": [{"topic": topic, "messages": messages}]}])
    (answer,) = sent["answers"]
    read = scenarios("records.consume", topic=topic, group=broker.unique("reads"), count=3)
    for record in read:
        assert before_ms <= record["timestamp"] <= CLOCK.now_ms()
        assert record["timestamp"] == int(answer["logAppendTime"])


def test_an_idempotent_producer_repeats_nothing(broker: Broker, scenarios: Scenarios) -> None:
    topic = broker.create_topic("idempotent", 3)
    scenarios("records.workload", topic=topic, count=1_500, keys=50, chunk=50)
    judged = judge([item.value for item in keyed(1_500, keys=50)], values_of(broker, topic, 3))
    assert judged.clean, judged


def test_keys_go_where_every_client_sends_them(broker: Broker, scenarios: Scenarios) -> None:
    topic = broker.create_topic("hashed", 7)
    keys = [f"key-{number}" for number in range(30)]
    scenarios("records.partitions", topic=topic, keys=keys)
    foreign = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        foreign.produce(topic, b"foreign", key)
    assert foreign.flush(30) == 0
    homes: dict[str, set[int]] = {}
    for record in scenarios("records.consume", topic=topic, group=broker.unique("reads"), count=60):
        homes.setdefault(bytes.fromhex(record["key"]).decode(), set()).add(record["partition"])
    assert sorted(homes) == sorted(keys)
    assert {len(partitions) for partitions in homes.values()} == {1}


def test_an_oversized_message_is_refused_and_the_next_is_taken(broker: Broker, scenarios: Scenarios) -> None:
    topic = broker.create_topic("oversized", config={"max.message.bytes": "20000"})
    small, large, after = scenarios("records.refuse", topic=topic, sizes=[10, 30_000, 15_000])
    assert (small["error"], large["error"], after["error"]) == (None, "MESSAGE_TOO_LARGE", None)
    assert after["answers"][0]["baseOffset"] == "1"


def test_an_unknown_topic_gets_an_error_without_auto_creation(broker: Broker, scenarios: Scenarios) -> None:
    topic = broker.unique("unknown")
    (tried,) = scenarios("records.refuse", topic=topic, sizes=[10])
    assert tried["error"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert topic not in broker.admin.list_topics(timeout=10).topics


def test_a_slow_consumer_takes_small_bites_and_misses_nothing(broker: Broker, scenarios: Scenarios) -> None:
    topic = broker.create_topic("bites")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 2_000})
    for number in range(60):
        producer.produce(topic, b"%03d" % number + b"." * 300, partition=0)
    producer.produce(topic, b"x" * 200_000, partition=0)  # larger than the bite, and comes nevertheless
    assert producer.flush(30) == 0
    small = {"maxBytesPerPartition": 1_000, "maxBytes": 1_500}
    read = scenarios("records.consume", topic=topic, group=broker.unique("reads"), count=61, settings=small)
    assert [record["offset"] for record in read] == list(range(61))
    assert len(read[-1]["value"]) == 400_000


def test_a_consumer_seeks_anywhere(broker: Broker, scenarios: Scenarios) -> None:
    topic = broker.create_topic("seek")
    fill(broker, topic, 30)
    said = scenarios.facts("reading.seek", topic=topic, group=broker.unique("seeks"), offsets=[17, 3, 29, 0])
    assert said["found"]["offsets"] == [17, 3, 29, 0]


@pytest.mark.parametrize("from_beginning", [True, False], ids=["earliest", "latest"])
def test_a_position_out_of_range_is_reset(broker: Broker, scenarios: Scenarios, from_beginning: bool) -> None:
    topic = broker.create_topic("reset")
    fill(broker, topic, 10)
    told = {"topic": topic, "group": broker.unique("resets"), "offset": 1_000, "fromBeginning": from_beginning}
    said = scenarios.facts("reading.reset", **told)
    assert said["found"]["offset"] == 0 if from_beginning else said["found"]["offset"] >= said["end"]["high"]


def test_a_paused_partition_is_silent_until_it_is_resumed(broker: Broker, scenarios: Scenarios) -> None:
    topic = broker.create_topic("pause", 2)
    fill(broker, topic, 10, partitions=2)
    said = scenarios.facts("reading.pause", topic=topic, group=broker.unique("pauses"), count=10)
    order = said["order"]["order"]
    assert order.count(1) == 10
    assert order[-5:] == [0] * 5  # what was silent comes last


def test_a_long_poll_is_woken_by_a_record(broker: Broker, scenarios: Scenarios) -> None:
    topic = broker.create_topic("poll")
    fill(broker, topic, 1)
    said = scenarios.facts("reading.longPoll", topic=topic, group=broker.unique("polls"), turns=3)
    assert said["slowest"]["ms"] < 5_000


def test_beginnings_ends_and_offsets_by_time(broker: Broker, scenarios: Scenarios) -> None:
    topic = broker.create_topic("times", config=KEEP)
    sends = [
        {"topicMessages": [{"topic": topic, "messages": [message(None, b"x", timestamp_ms=at_ms)]}]}
        for at_ms in (1_000, 2_000, 2_000, 5_000)
    ]
    scenarios("records.produce", sends=sends)
    wanted = {1_000: 0, 1_001: 1, 2_000: 1, 4_000: 3, 6_000: 4}  # this client tells the end where no record is so late
    said = scenarios("reading.offsets", topic=topic, times=list(wanted))
    assert said[0]["ends"] == [[0, 0, 4]]
    assert {each["time"]: each["offset"] for each in said[1:]} == wanted


def test_a_group_starts_where_it_committed(broker: Broker, scenarios: Scenarios) -> None:
    topic = broker.create_topic("resumed")
    fill(broker, topic, 20)
    group = broker.unique("group")
    said = scenarios.facts("groups.resume", topic=topic, group=group, first=7, metadata="sieben – 七")
    assert said["committed"]["partitions"] == [{"partition": 0, "offset": 7, "metadata": "sieben – 七"}]
    assert said["resumed"]["offset"] == 7


def test_offsets_are_committed_by_themselves(broker: Broker, scenarios: Scenarios) -> None:
    topic = broker.create_topic("auto")
    fill(broker, topic, 5)
    said = scenarios.facts("groups.auto", topic=topic, group=broker.unique("group"), count=5)
    assert said["committed"]["offsets"] == [5]


def send_items(broker: Broker, topic: str, count: int, start: int = 0) -> list[bytes]:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    items = list(keyed(count, keys=30, start=start))
    for item in items:
        producer.produce(topic, item.value, item.key)
    assert producer.flush(60) == 0
    return [item.value for item in items]


@pytest.mark.long  # as kafka-python, librdkafka and Java
def test_a_group_outlives_members_that_join_freeze_and_die(broker: Broker, scenarios: Scenarios) -> None:
    topic, group = broker.create_topic("lives", 6), broker.unique("group")
    with scenarios.running("groups.member", topic=topic, group=group) as start:
        those = [start("ann"), start("bob", hold_at=2), start("eve")]
        await_shared(those, 6)
        ann, bob, eve = those
        sent = send_items(broker, topic, 600)
        until(lambda: bob.events_of("holding"), what="bob holds what he has read")
        bob.freeze()
        eve.kill()
        sent += send_items(broker, topic, 300, start=600)
        dan = start("dan")
        those.append(dan)
        await_shared([ann, dan], 6)
        await_committed(those, sent)
        bob.thaw()
        bob.go()  # what he commits now was read and committed by the others
        until(lambda: bob.events_of("refused"), what="bob's late commit is refused")
        await_shared([ann, bob, dan], 6)
        sent += send_items(broker, topic, 300, start=900)
        await_committed(those, sent)
        ann.leave()
        await_shared([bob, dan], 6)
        sent += send_items(broker, topic, 300, start=1_200)
        await_committed(those, sent)
        for member in (bob, dan):
            member.leave()
        judged = verdict(those, sent)
        assert judged.clean, judged
        assert committed([bob])[0]


def test_an_idempotent_producer_survives_a_killed_broker_without_gap_or_duplicate(
    own_broker: Broker, own_scenarios: Scenarios
) -> None:
    topic = own_broker.create_topic("killed", 3)
    told = {"topic": topic, "count": 6_000, "keys": 60, "chunk": 20}
    with own_scenarios.running("records.workload", **told) as start:
        producer = start("producer")
        until(lambda: producer.events_of("begun"), what="the first are acknowledged")
        own_broker.restart()
        until(lambda: producer.events_of("done") or not producer.running, within_s=90, what="all are acknowledged")
        assert producer.events_of("done"), producer.complaints
    judged = judge([item.value for item in keyed(6_000, keys=60)], values_of(own_broker, topic, 3))
    assert judged.clean, judged


@pytest.mark.long  # as librdkafka, Java and aiokafka
def test_members_of_a_group_carry_on_when_the_broker_comes_back(own_broker: Broker, own_scenarios: Scenarios) -> None:
    topic, group = own_broker.create_topic("carried", 2), own_broker.unique("group")
    with own_scenarios.running("groups.member", topic=topic, group=group) as start:
        ann = start("ann")
        await_shared([ann], 2)
        sent = send_items(own_broker, topic, 200)
        await_committed([ann], sent)
        own_broker.restart()
        sent += send_items(own_broker, topic, 200, start=200)
        await_committed([ann], sent, timeout_s=60)
        ann.leave()
        judged = verdict([ann], sent)
        assert judged.clean, judged


def test_topics_are_created_described_and_deleted(broker: Broker, scenarios: Scenarios) -> None:
    said = scenarios.facts("admin.topics", topic=broker.unique("made"))
    assert (said["created"]["created"], said["again"]["created"], said["listed"]["listed"]) == (True, False, True)
    partitions = said["described"]["partitions"]
    assert [number for number, _ in partitions] == [0, 1, 2]
    assert {leader for _, leader in partitions} == set(broker.admin.list_topics(timeout=10).brokers)
    assert said["fewer"]["error"] == "INVALID_PARTITIONS"
    assert said["unknown"]["error"] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_partitions_are_added(broker: Broker, scenarios: Scenarios) -> None:
    topic = broker.create_topic("grown", 2)
    said = scenarios.facts("admin.partitions", topic=topic, count=4)
    assert said["more"]["error"] is None


def test_a_wrong_topic_is_refused(broker: Broker, scenarios: Scenarios) -> None:
    wrong = {
        "none": {"numPartitions": 0, "replicationFactor": 1, "error": "INVALID_PARTITIONS"},
        "copies": {"numPartitions": 1, "replicationFactor": 99, "error": "INVALID_REPLICATION_FACTOR"},
        "a name/with#what is forbidden": {
            "numPartitions": 1,
            "replicationFactor": 1,
            "error": "INVALID_TOPIC_EXCEPTION",
        },
    }
    told = [{"topic": name, **facts} for name, facts in wrong.items()]
    said = scenarios("admin.wrong", topics=told)
    assert {each["topic"]: each["error"] for each in said} == {name: facts["error"] for name, facts in wrong.items()}


def test_settings_are_described_and_altered(broker: Broker, scenarios: Scenarios) -> None:
    topic = broker.create_topic("settings", config={"retention.ms": "86400000"})
    changed = {"retention.ms": "3600000", "max.message.bytes": "50000"}
    said = scenarios.facts("admin.configs", topic=topic, changed=changed)
    assert said["before"]["configs"]["retention.ms"] == "86400000"
    assert {name: said["after"]["configs"][name] for name in changed} == changed
    assert said["bad"]["error"] == "INVALID_CONFIG"


def test_the_cluster_is_described(broker: Broker, scenarios: Scenarios) -> None:
    said = scenarios.facts("admin.cluster")["cluster"]
    host, _, port = broker.bootstrap.rpartition(":")
    assert [(each["host"], each["port"]) for each in said["brokers"]] == [(host, int(port))]
    assert said["controller"] == said["brokers"][0]["nodeId"]
    assert said["clusterId"]


def test_deleted_records_are_gone(broker: Broker, scenarios: Scenarios) -> None:
    topic = broker.create_topic("trimmed")
    fill(broker, topic, 10)
    said = scenarios.facts("admin.trim", topic=topic, offset=4)
    assert (said["trimmed"]["low"], said["trimmed"]["high"]) == (4, 10)
    assert said["beyond"]["error"] is not None
    read = scenarios("records.consume", topic=topic, group=broker.unique("reads"), count=6)
    assert [record["offset"] for record in read] == list(range(4, 10))


@pytest.mark.long
def test_offsets_of_a_group_are_moved_from_outside(broker: Broker, scenarios: Scenarios) -> None:
    topic = broker.create_topic("moved")
    fill(broker, topic, 4)
    said = scenarios.facts("admin.moved", topic=topic, group=broker.unique("group"))
    assert (said["set"]["offset"], said["reset"]["offset"]) == (1, 0)


def test_groups_are_listed_described_and_deleted(broker: Broker, scenarios: Scenarios) -> None:
    topic, group = broker.create_topic("grouped"), broker.unique("group")
    fill(broker, topic, 4)
    said = scenarios.facts("admin.groups", topic=topic, group=group, count=4)
    described = said["described"]
    assert (described["errorCode"], described["state"], described["protocolType"]) == (0, "Stable", "consumer")
    assert (described["protocol"], described["members"]) == ("RoundRobinAssigner", ["holdfast-suite"])
    assert said["busy"]["error"] is not None
    assert said["listed"]["found"] == {"groupId": group, "protocolType": "consumer"}
    assert said["committed"]["offset"] == 4
    assert (said["deleted"]["errorCode"], said["deleted"]["left"]) == (0, [])
    assert said["unknown"]["error"] is not None
