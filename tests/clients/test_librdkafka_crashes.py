"""confluent-kafka: the broker is killed, frozen and stopped while clients work; nothing is lost, nothing comes twice."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from tests.support.broker import CHOICE, Broker, owned, serving
from tests.support.clients.group_members import await_committed, await_shared, members, verdict
from tests.support.librdkafka_client import CLOCK, Config, consuming, producer, read_all, send_values, take, values
from tests.support.waiting import until
from tests.support.workload import Item, judge, keyed

PARTITIONS = 3
SAFE = {"enable.idempotence": True, "max.in.flight.requests.per.connection": 5, "linger.ms": 2}
# Batches small enough that many are under way when something happens; retries that come soon.
BUSY = {
    "batch.num.messages": 20,
    "retry.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "message.timeout.ms": 120_000,
}


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that the tests of this file kill, one after the other: to start it takes longer than most of them."""
    if not owned():
        pytest.skip(f"the broker at {CHOICE} belongs to somebody else: it cannot be killed")
    with serving(tmp_path_factory.mktemp("mortal")) as running:
        yield running


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
        until(lambda: len(self.acknowledged) >= goal, within_s=60, what=f"{goal} acknowledged")

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


@pytest.mark.parametrize(
    ("compression", "kills"), [("lz4", 2), pytest.param("none", 8, marks=[pytest.mark.long, pytest.mark.timeout(400)])]
)
def test_an_idempotent_producer_works_through_kills(mortal: Broker, compression: str, kills: int) -> None:
    topic = mortal.create_topic("kills", PARTITIONS)
    with streaming(mortal, topic, {**SAFE, "compression.type": compression}) as stream:
        for _ in range(kills):
            mortal.restart()
            stream.more(1_000)
    assert not stream.failed
    judged = judge(stream.acknowledged, values(read_all(mortal, topic, range(PARTITIONS))))
    assert judged.clean, judged


def test_an_idempotent_producer_works_through_freezes(mortal: Broker) -> None:
    topic = mortal.create_topic("freezes", PARTITIONS)
    hasty = {"socket.timeout.ms": 1_000, "request.timeout.ms": 1_000}
    with streaming(mortal, topic, {**SAFE, **hasty}) as stream:
        for _ in range(2):
            mortal.stop()
            threading.Event().wait(2.5)  # long enough that the client gives up and sends again
            mortal.cont()
            stream.more(1_000)
    assert not stream.failed
    judged = judge(stream.acknowledged, values(read_all(mortal, topic, range(PARTITIONS))))
    assert judged.clean, judged


def test_an_idempotent_producer_works_through_a_polite_restart(mortal: Broker) -> None:
    topic = mortal.create_topic("restarts", PARTITIONS)
    with streaming(mortal, topic, SAFE) as stream, consuming(mortal) as client:
        client.subscribe([topic])
        take(client, 100)
        began_ms = CLOCK.boot_ms()
        code = mortal.terminate()
        assert CLOCK.boot_ms() - began_ms < 20_000
        mortal.start()
        stream.more(1_000)
    assert code == (143 if mortal.kind == "apache" else 0)  # so Java answers SIGTERM
    assert not stream.failed
    judged = judge(stream.acknowledged, values(read_all(mortal, topic, range(PARTITIONS))))
    assert judged.clean, judged


@pytest.mark.parametrize("acks", ["1", pytest.param("all", marks=pytest.mark.long)])
def test_what_was_acknowledged_survives_a_kill(mortal: Broker, acks: str) -> None:
    topic = mortal.create_topic("acknowledged", PARTITIONS)
    with streaming(mortal, topic, {"acks": acks, "retries": 0, "linger.ms": 1}) as stream:
        mortal.restart()
    found = values(read_all(mortal, topic, range(PARTITIONS)))
    judged = judge(stream.acknowledged, found, maybe=stream.failed)
    assert not judged.lost, judged
    assert not judged.unknown, judged


def test_a_group_survives_its_coordinator_without_a_rebalance(mortal: Broker) -> None:
    topic, group = mortal.create_topic("calm", PARTITIONS), mortal.unique("calm")
    patient = {"topic": topic, "group": group, "session_ms": 60_000}
    with members(mortal.bootstrap, "librdkafka_member.py", **patient) as start:
        both = [start("ann"), start("bob")]
        await_shared(both, PARTITIONS)
        first = values(send_values(mortal, topic, [b"a:%08d" % index for index in range(100)]))
        await_committed(both, first)
        changes = [len(member.events_of("assigned")) for member in both]
        mortal.restart()
        second = values(send_values(mortal, topic, [b"a:%08d" % index for index in range(100, 200)]))
        await_committed(both, first + second, timeout_s=60)
        assert [len(member.events_of("assigned")) for member in both] == changes
        judged = verdict(both, first + second)
        assert judged.clean, judged


@pytest.mark.long
def test_a_group_recovers_when_the_broker_was_frozen_for_longer_than_a_session(mortal: Broker) -> None:
    topic, group = mortal.create_topic("frozen", PARTITIONS), mortal.unique("frozen")
    doubtful = {"topic": topic, "group": group, "doubt_ms": 2_000}
    with members(mortal.bootstrap, "librdkafka_member.py", **doubtful) as start:
        both = [start("ann"), start("bob")]
        await_shared(both, PARTITIONS)
        with streaming(mortal, topic, SAFE) as stream:
            mortal.stop()
            threading.Event().wait(8)  # longer than the sessions of six seconds
            mortal.cont()
            stream.more(500)
        await_committed(both, stream.acknowledged, timeout_s=60)
        await_shared(both, PARTITIONS)
        judged = verdict(both, stream.acknowledged)
        assert judged.clean, judged


def test_a_consumer_goes_on_after_a_kill_without_gap_or_repetition(mortal: Broker) -> None:
    topic = mortal.create_topic("onward")
    with consuming(mortal, {"reconnect.backoff.max.ms": 500}) as client:
        client.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes] = []
        for turn in range(2):
            send_values(mortal, topic, [b"%d-%d" % (turn, index) for index in range(50)])
            found += values(take(client, 50))
            mortal.restart()
    assert found == [b"%d-%d" % (turn, index) for turn in range(2) for index in range(50)]


def test_a_living_group_works_through_a_kill(mortal: Broker) -> None:
    topic, group = mortal.create_topic("group", PARTITIONS), mortal.unique("group")
    # A commit may be carried out, its answer die with the broker, and the client send it again: then it is refused.
    doubtful = {"topic": topic, "group": group, "doubt_ms": 500}
    with members(mortal.bootstrap, "librdkafka_member.py", **doubtful) as start:
        both = [start("ann"), start("bob")]
        await_shared(both, PARTITIONS)
        with streaming(mortal, topic, SAFE) as stream:
            mortal.restart()
            stream.more(500)
        await_committed(both, stream.acknowledged, timeout_s=60)
        for member in both:
            member.leave()
        judged = verdict(both, stream.acknowledged)
        assert judged.clean, judged
