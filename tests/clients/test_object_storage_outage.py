"""Object storage goes away under a producer: what is acknowledged stays, what does not fit waits, and the log says why."""

from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from tests.support.broker import Broker, serving
from tests.support.object_engines.s3 import s3_url
from tests.support.object_engines.seaweedfs import SeaweedServer, weed
from tests.support.waiting import until

PARTITIONS = 3
VALUE_BYTES = 4_000
FULL_BYTES = 16 << 20
FIRST = 1_000


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[SeaweedServer]:
    try:
        weed()
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    with SeaweedServer(tmp_path / "s3").running() as server:
        yield server


@pytest.fixture
def node(tmp_path: Path, s3: SeaweedServer) -> Iterator[Broker]:
    settings = ("--set", f"agent.tail_bytes_max={FULL_BYTES}", "--set", "agent.publish_slow_ms=1000")
    with serving(tmp_path / "node", "--objects", s3_url(s3.port, "away"), "--roles", "api,agent", *settings) as broker:
        yield broker


class Sending:
    """A producer that sends the first thousand, and after `go_on` without end; the numbers acknowledged, by partition."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.acknowledged: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.failed: list[str] = []
        self._topic, self._more, self._enough = topic, Event(), Event()
        self._producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self._thread = Thread(target=self._send, daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged))

    def go_on(self) -> None:
        self._more.set()

    def end(self) -> None:
        self._enough.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert not self.failed

    def _send(self) -> None:
        number = 0
        while not self._enough.is_set():
            if number >= FIRST and not self._more.is_set():
                self._producer.poll(0.05)
                continue
            try:
                value = b"%012d" % number + bytes(VALUE_BYTES)
                self._producer.produce(self._topic, value, partition=number % PARTITIONS, on_delivery=self._told)
                number += 1
            except BufferError:
                self._producer.poll(0.1)
            self._producer.poll(0.0002)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        value, partition = message.value(), message.partition()
        assert value is not None
        assert partition is not None
        self.acknowledged[partition].append(int(value[:12]))


def read(broker: Broker, topic: str, partition: int, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reading", "log_level": 0})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[int] = []

    def all_read() -> bool:
        found.extend(int(each.value()[:12]) for each in consumer.consume(10_000, 0.2))  # type: ignore[index]
        return len(found) >= count

    until(all_read, within_s=60, what=f"{count} records of partition {partition}")
    consumer.close()
    return found


@pytest.mark.parametrize("how", ["killed", pytest.param("frozen", marks=pytest.mark.long)])
def test_a_producer_waits_while_object_storage_is_away_and_loses_nothing(
    node: Broker, s3: SeaweedServer, how: str
) -> None:
    topic = node.create_topic("away", PARTITIONS)
    sending = Sending(node, topic)
    until(lambda: sending.count == FIRST, what="records are acknowledged")
    if how == "killed":
        s3.kill()
    else:
        s3.freeze()
    sending.go_on()
    until(lambda: sending.count * VALUE_BYTES > FULL_BYTES // 2, what="without object storage there is the WAL")
    until(lambda: "does not answer" in node.log, what="the log says what is waited for")
    if how == "killed":
        node.kill()  # what is only in the WAL comes back from there
        s3.start()
        node.start()
    else:
        s3.thaw()
    again = sending.count
    until(lambda: sending.count > again + 2_000, within_s=60, what="it goes on")
    sending.end()
    for partition, sent in enumerate(sending.acknowledged):
        assert sent == sorted(sent)
        assert read(node, topic, partition, len(sent)) == sent
