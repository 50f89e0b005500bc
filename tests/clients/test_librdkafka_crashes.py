"""confluent-kafka: the broker is killed, frozen and stopped while clients work; nothing is lost, nothing comes twice."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic
from tests.clients.broker import ADMIN_TIMEOUT_S, Broker, until
from tests.clients.group_members import await_committed, await_shared, members, verdict
from tests.clients.librdkafka import CLOCK, Config, consuming, producer, read_all, send_values, take, values
from tests.clients.workload import Item, judge, keyed

PARTITIONS = 3
SAFE = {"enable.idempotence": True, "max.in.flight.requests.per.connection": 5, "linger.ms": 2}
# Batches small enough that many are under way when something happens; retries that come soon.
BUSY = {
    "batch.num.messages": 20,
    "retry.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "message.timeout.ms": 120_000,
}


class Stream:
    """A producer that sends without pause from a thread of its own, and what became of each record."""

    def __init__(self, broker: Broker, topic: str, config: Config) -> None:
        self._client: Producer = producer(broker, {"log_level": 2, **BUSY, **config})
        self._topic = topic
        self._go_on = True
        self._sent = 0
        self.acknowledged: list[bytes] = []
        self.failed: dict[bytes, int] = {}

    def run(self) -> None:
        for item in keyed(10_000_000, keys=30):
            if not self._go_on:
                break
            self._put(item)
        self._client.flush(60)

    def _put(self, item: Item) -> None:
        while True:
            try:
                self._client.produce(self._topic, key=item.key, value=item.value, on_delivery=self._done)
            except BufferError:
                self._client.poll(0.1)
            else:
                break
        self._sent += 1
        # Not more than some thousand ahead: enough to have requests under way at each moment.
        while self._sent - len(self.acknowledged) - len(self.failed) > 2_000:
            self._client.poll(0.05)
        self._client.poll(0)

    def _done(self, error: KafkaError | None, message: Message) -> None:
        value = message.value() or b""
        if error is None:
            self.acknowledged.append(value)
        else:
            self.failed[value] = error.code()

    def more(self, count: int) -> None:
        """Wait until `count` more are acknowledged."""
        goal = len(self.acknowledged) + count
        until(lambda: len(self.acknowledged) >= goal, timeout_s=60, what=f"{goal} acknowledged")

    def stop(self) -> None:
        self._go_on = False


@contextmanager
def streaming(broker: Broker, topic: str, config: Config) -> Iterator[Stream]:
    """Records flow during the body; after it all of them have met their fate."""
    stream = Stream(broker, topic, config)
    thread = threading.Thread(target=stream.run)
    thread.start()
    try:
        stream.more(500)
        yield stream
        stream.more(500)
    finally:
        stream.stop()
        thread.join()


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_an_idempotent_producer_works_through_kills(own_broker: Broker, compression: str) -> None:
    topic = own_broker.create_topic("kills", PARTITIONS)
    with streaming(own_broker, topic, {**SAFE, "compression.type": compression}) as stream:
        for _ in range(3):
            own_broker.restart()
            stream.more(1_000)
    assert not stream.failed
    judged = judge(stream.acknowledged, values(read_all(own_broker, topic, range(PARTITIONS))))
    assert judged.clean, judged


def test_an_idempotent_producer_works_through_freezes(own_broker: Broker) -> None:
    topic = own_broker.create_topic("freezes", PARTITIONS)
    hasty = {"socket.timeout.ms": 1_000, "request.timeout.ms": 1_000}
    with streaming(own_broker, topic, {**SAFE, **hasty}) as stream:
        for _ in range(2):
            own_broker.stop()
            threading.Event().wait(2.5)  # long enough that the client gives up and sends again
            own_broker.cont()
            stream.more(1_000)
    assert not stream.failed
    judged = judge(stream.acknowledged, values(read_all(own_broker, topic, range(PARTITIONS))))
    assert judged.clean, judged


def test_an_idempotent_producer_works_through_polite_restarts(own_broker: Broker) -> None:
    topic = own_broker.create_topic("restarts", PARTITIONS)
    with streaming(own_broker, topic, SAFE) as stream:
        for _ in range(2):
            assert own_broker.terminate() in (0, 143)  # Java answers SIGTERM with 143
            own_broker.start()
            stream.more(1_000)
    assert not stream.failed
    judged = judge(stream.acknowledged, values(read_all(own_broker, topic, range(PARTITIONS))))
    assert judged.clean, judged


def test_holdfast_exits_with_0_when_it_is_told_to_stop(own_broker: Broker) -> None:
    if own_broker.kind != "holdfast":
        pytest.skip("Java answers SIGTERM with 143")
    topic = own_broker.create_topic("polite")
    send_values(own_broker, topic, [b"x"] * 100)
    with consuming(own_broker) as client:
        client.subscribe([topic])
        take(client, 100)
        began_ms = CLOCK.boot_ms()
        assert own_broker.terminate() == 0
        assert CLOCK.boot_ms() - began_ms < 10_000
    own_broker.start()
    assert len(read_all(own_broker, topic)) == 100


@pytest.mark.parametrize("acks", ["1", "all"])
def test_what_was_acknowledged_survives_a_kill(own_broker: Broker, acks: str) -> None:
    topic = own_broker.create_topic("acknowledged", PARTITIONS)
    with streaming(own_broker, topic, {"acks": acks, "retries": 0, "linger.ms": 1}) as stream:
        own_broker.restart()
    found = values(read_all(own_broker, topic, range(PARTITIONS)))
    judged = judge(stream.acknowledged, found, maybe=stream.failed)
    assert not judged.lost, judged
    assert not judged.unknown, judged


def test_offsets_and_topics_are_as_before_after_a_kill(own_broker: Broker) -> None:
    topic, group = own_broker.create_topic("kept", 2, {"retention.ms": "3600000"}), own_broker.unique("kept")
    for partition in range(2):
        send_values(own_broker, topic, [b"%d" % index for index in range(50)], partition=partition)
    with consuming(own_broker, {"group.id": group}) as client:
        offsets = [TopicPartition(topic, 0, 20, metadata="note"), TopicPartition(topic, 1, 30)]
        client.commit(offsets=offsets, asynchronous=False)
    own_broker.restart()
    with consuming(own_broker, {"group.id": group}) as client:
        asked = [TopicPartition(topic, partition) for partition in range(2)]
        found = client.committed(asked, timeout=20)
        assert [(each.offset, each.metadata or "") for each in found] == [(20, "note"), (30, "")]
        client.subscribe([topic])
        assert len(take(client, 50)) == 50
        assert client.poll(0.2) is None


def test_a_group_survives_its_coordinator_without_a_rebalance(own_broker: Broker) -> None:
    topic, group = own_broker.create_topic("calm", PARTITIONS), own_broker.unique("calm")
    patient = {"topic": topic, "group": group, "session_ms": 60_000}
    with members(own_broker.bootstrap, "member_librdkafka.py", **patient) as start:
        both = [start("ann"), start("bob")]
        await_shared(both, PARTITIONS)
        first = values(send_values(own_broker, topic, [b"a:%08d" % index for index in range(100)]))
        await_committed(both, first)
        changes = [len(member.said("assigned")) for member in both]
        own_broker.restart()
        second = values(send_values(own_broker, topic, [b"a:%08d" % index for index in range(100, 200)]))
        await_committed(both, first + second, timeout_s=60)
        assert [len(member.said("assigned")) for member in both] == changes
        judged = verdict(both, first + second)
        assert judged.clean, judged


def test_a_group_recovers_when_the_broker_was_frozen_for_longer_than_a_session(own_broker: Broker) -> None:
    topic, group = own_broker.create_topic("frozen", PARTITIONS), own_broker.unique("frozen")
    doubtful = {"topic": topic, "group": group, "doubt_ms": 2_000}
    with members(own_broker.bootstrap, "member_librdkafka.py", **doubtful) as start:
        both = [start("ann"), start("bob")]
        await_shared(both, PARTITIONS)
        with streaming(own_broker, topic, SAFE) as stream:
            own_broker.stop()
            threading.Event().wait(8)  # longer than the sessions of six seconds
            own_broker.cont()
            stream.more(500)
        await_committed(both, stream.acknowledged, timeout_s=60)
        await_shared(both, PARTITIONS)
        judged = verdict(both, stream.acknowledged)
        assert judged.clean, judged


def test_topics_whose_names_run_into_their_partitions_stay_apart(own_broker: Broker) -> None:
    short = own_broker.unique("orders")
    names = {short: 2, f"{short}-1": 2, f"{short}-1-0": 1, f"{short}-0": 1}
    asked = [NewTopic(name, partitions, 1) for name, partitions in names.items()]
    for created in own_broker.admin.create_topics(asked).values():
        created.result(ADMIN_TIMEOUT_S)
    for name, partitions in names.items():
        for partition in range(partitions):
            send_values(own_broker, name, [f"{name}/{partition}".encode()] * 10, partition=partition)
    own_broker.restart()
    for name, partitions in names.items():
        for partition in range(partitions):
            assert values(read_all(own_broker, name, [partition])) == [f"{name}/{partition}".encode()] * 10


def test_a_consumer_goes_on_after_a_kill_without_gap_or_repetition(own_broker: Broker) -> None:
    topic = own_broker.create_topic("onward")
    with consuming(own_broker, {"reconnect.backoff.max.ms": 500}) as client:
        client.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes] = []
        for turn in range(3):
            send_values(own_broker, topic, [b"%d-%d" % (turn, index) for index in range(50)])
            found += values(take(client, 50))
            own_broker.restart()
    assert found == [b"%d-%d" % (turn, index) for turn in range(3) for index in range(50)]


def test_a_living_group_works_through_a_kill(own_broker: Broker) -> None:
    topic, group = own_broker.create_topic("group", PARTITIONS), own_broker.unique("group")
    with members(own_broker.bootstrap, "member_librdkafka.py", topic=topic, group=group) as start:
        both = [start("ann"), start("bob")]
        await_shared(both, PARTITIONS)
        with streaming(own_broker, topic, SAFE) as stream:
            own_broker.restart()
            stream.more(500)
        await_committed(both, stream.acknowledged, timeout_s=60)
        for member in both:
            member.leave()
        judged = verdict(both, stream.acknowledged)
        assert judged.clean, judged
