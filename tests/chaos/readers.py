"""Readers of a chaos run: consumers that read everything from the first offset on, and members of groups that commit.

A reader with a zone asks for replicas there (`client.rack`). The one rule: what a client is given is written down as it comes.
"""

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from tests.chaos.history import Recorder

BATCH: Final = 500
COMMON: Final = {
    "auto.offset.reset": "error",
    "enable.auto.commit": False,
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 50,
    "log_level": 0,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 2_000,
    "socket.timeout.ms": 8_000,
}
# What tells a client that its position is lost; everything else is tried again.
LOST: Final = frozenset({KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION})


class ChaosReader:
    """Reads every partition, in a thread of its own while it is started."""

    def __init__(
        self, name: str, bootstrap: str, topic: str, *, partitions: int, zone: str = "", record: Recorder
    ) -> None:
        self.name, self._topic, self._record = name, topic, record
        self._positions = dict.fromkeys(range(partitions), 0)
        self._ends: dict[int, int] = {}
        self.unfinished = set(range(partitions))
        settings = {**COMMON, "bootstrap.servers": bootstrap, "group.id": f"{name}-nobody"}
        self._client = Consumer({**settings, **({"client.rack": zone} if zone else {})})
        self._client.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        record(name, "ok", "begin", kind="reader", zone=zone)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self, ends: dict[int, int]) -> None:
        """Read up to these ends."""
        self._ends = dict(ends)

    def end(self) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while self.unfinished and not self._ending.is_set():
                for partition, records in taken(self._client, self.name, self._record).items():
                    self._record(self.name, "ok", "read", partition=partition, records=records)
                    self._positions[partition] = records[-1][0] + 1
                if self._ends:
                    self._check_ends()
        finally:
            self._client.close()

    def _check_ends(self) -> None:
        # What lies before the end may be offsets without records: the client's own position tells.
        for each in self._client.position([TopicPartition(self._topic, number) for number in self.unfinished]):
            reached = max(each.offset, self._positions[each.partition])
            if reached >= self._ends[each.partition]:
                self._record(self.name, "ok", "done", partition=each.partition, end=self._ends[each.partition])
                self.unfinished.discard(each.partition)


class ChaosMember:
    """A member of a group: reads what is assigned to it, and commits it."""

    def __init__(self, name: str, group: str, bootstrap: str, topic: str, *, record: Recorder) -> None:
        self.name, self._record = name, record
        settings = {**COMMON, "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        self._client = Consumer({**settings, "session.timeout.ms": 6_000, "heartbeat.interval.ms": 500})
        self._topic = topic
        self.positions: dict[int, int] = {}  # by partition: what it has read, and was given next
        record(name, "ok", "begin", kind="member", group=group)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
            for each in partitions:
                self._record(self.name, "ok", "assign", partition=each.partition)

        self._client.subscribe([self._topic], on_assign=assigned)
        try:
            while not self._ending.is_set():
                for partition, records in taken(self._client, self.name, self._record).items():
                    self._record(self.name, "ok", "read", partition=partition, records=records)
                    self._commit(partition, records[-1][0] + 1)
                self._look()
        finally:
            self._client.close()

    def _look(self) -> None:
        # Offsets without records are passed over by the client alone.
        for each in self._client.position(self._client.assignment()):
            self.positions[each.partition] = max(each.offset, self.positions.get(each.partition, 0))

    def _commit(self, partition: int, offset: int) -> None:
        self._record(self.name, "invoke", "commit", partition=partition, offset=offset)
        try:
            answers = self._client.commit(offsets=[TopicPartition(self._topic, partition, offset)], asynchronous=False)
            refused = [each.error for each in answers or [] if each.error is not None]
        except KafkaException as error:
            refused = [error.args[0]]
        outcome = "info" if refused else "ok"
        self._record(self.name, outcome, "commit", partition=partition, offset=offset)  # type: ignore[arg-type]


def taken(client: Consumer, name: str, record: Recorder) -> dict[int, list[list[Any]]]:
    """What there is, by partition: [offset, value, leader epoch]."""
    records: dict[int, list[list[Any]]] = defaultdict(list)
    for message in client.consume(BATCH, timeout=0.1):
        error, partition = message.error(), message.partition()
        if error is None:
            assert partition is not None
            records[partition].append([message.offset(), _value(message), _epoch(message)])
        elif error.code() in LOST:
            where = {"partition": -1 if partition is None else partition, "offset": message.offset()}
            record(name, "fail", "refuse", **where, error=error.name(), reason=error.str())
    return records


def _value(message: Message) -> str:
    value = message.value()
    return "" if value is None else value.decode(errors="replace")


def _epoch(message: Message) -> int:
    epoch: Callable[[], int | None] = message.leader_epoch
    found = epoch()
    return -1 if found is None else found
