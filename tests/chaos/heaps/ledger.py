"""What the log of a heap partition says: every lease with its beginning and end, every time a message was ready. Pure.

A second reading of docs/formats/heap-records.md, which knows nothing of `heap.partition_state`. The one rule: a record that does
not fit what was before is noted, and changes nothing.
"""

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tests.chaos.heaps.operations import LeaseName, Place

from holdfast.heap.batch.model import Resolved
from holdfast.heap.records import (
    Ack,
    Cancel,
    Enqueue,
    Grant,
    GrantBasis,
    Move,
    Op,
    Operation,
    ProducerSequence,
    Purge,
    Ready,
    Reprioritise,
    Reserve,
    Retry,
)


class LogRecord(NamedTuple):
    """One record of a partition."""

    offset: int
    timestamp_ms: int
    operation: Operation


@dataclass(slots=True)
class LeaseSpan:
    """A lease: from its GRANT to the record that ended it, if one did. `basis`: of the pop of a spine that it was granted by."""

    name: LeaseName
    epoch: int
    consumer: str
    rank: int
    granted_ms: int
    basis: GrantBasis | None
    ended_at: int = -1
    ended_by: str = ""


@dataclass(slots=True)
class ReadySpan:
    """A time in which a message could be granted, with one rank. `cause`: the operation that made it ready."""

    place: Place
    rank: int
    since: int
    since_ms: int
    cause: str
    until: int = -1
    until_ms: int = -1
    left_by: str = ""


class Mismatch(NamedTuple):
    """A record that does not fit: which rule it breaks, and how."""

    rule: str
    text: str


@dataclass(slots=True)
class _Message:
    rank: int
    ready: ReadySpan | None = None
    lease: LeaseSpan | None = None


@dataclass(slots=True)
class Ledger:
    """One partition, read to the end."""

    topic: str
    partition: int
    messages: dict[int, Enqueue] = field(default_factory=dict)  # by offset
    leases: dict[LeaseName, LeaseSpan] = field(default_factory=dict)
    ready: list[ReadySpan] = field(default_factory=list)
    bases: list[tuple[int, GrantBasis]] = field(default_factory=list)  # with their time
    gone: dict[int, str] = field(default_factory=dict)  # by offset: the operation that removed it
    moves: list[Move] = field(default_factory=list)
    mismatches: list[Mismatch] = field(default_factory=list)
    _waiting: dict[int, _Message] = field(default_factory=dict)
    _least: list[tuple[int, int]] = field(default_factory=list)  # (rank, offset) of what is ready, in order

    @property
    def left(self) -> set[int]:
        """The offsets of messages that were not removed."""
        return set(self._waiting)


ORDER: Final = {"min": 1, "max": -1}


def read_ledger(topic: str, partition: int, records: Iterable[LogRecord], mode: str = "min") -> Ledger:
    """Read the records of a partition, from its first one on, in order."""
    reading = _Reading(Ledger(topic, partition), ORDER[mode])
    for record in records:
        reading.read(record)
    return reading.ledger


class _Reading:
    def __init__(self, ledger: Ledger, sign: int) -> None:
        self.ledger, self._sign = ledger, sign
        self._basis: GrantBasis | None = None  # of the grants that follow it
        self._epoch = 0
        self._reserved: dict[str, list[tuple[int, Enqueue]]] = {}  # messages of batches that are not resolved

    def read(self, record: LogRecord) -> None:
        operation = record.operation
        match operation:
            case GrantBasis():
                self._basis = operation
                self.ledger.bases.append((record.timestamp_ms, operation))
                return
            case Grant():
                self._grant(record, operation)
                return
            case Enqueue():
                self._enqueue(record, record.offset, operation, "ENQUEUE")
            case Reserve():
                self._reserved.setdefault(operation.batch, []).append((record.offset, operation.enqueue))
            case Resolved():
                for offset, enqueue in self._reserved.pop(operation.batch, ()):
                    if operation.committed:
                        self._enqueue(record, offset, enqueue, "RESOLVE")
            case Ack() | Cancel():
                name = "ACK" if isinstance(operation, Ack) else "CANCEL"
                for offset in operation.offsets:
                    self._remove(record, offset, name)
            case Move():
                if self._remove(record, operation.offset, "MOVE"):
                    self.ledger.moves.append(operation)
            case Retry():
                for offset, ready_ms in operation.entries:
                    self._return(record, offset, operation.op, ready_ms)
            case Ready():
                for offset, priority in operation.entries:
                    self._end_delay(record, offset, priority)
            case Reprioritise():
                for offset, priority in operation.entries:
                    self._reprioritise(record, offset, priority)
            case Purge():
                for offset in [each for each in self.ledger.left if each < operation.below]:
                    self._remove(record, offset, "PURGE")
            case _:
                pass
        self._basis = None

    def _place(self, offset: int) -> Place:
        return Place(self.ledger.topic, self.ledger.partition, offset)

    def _mismatch(self, rule: str, record: LogRecord, text: str) -> None:
        ledger = self.ledger
        ledger.mismatches.append(Mismatch(rule, f"{ledger.topic}-{ledger.partition}@{record.offset}: {text}"))

    def _make_ready(self, record: LogRecord, offset: int, message: _Message, cause: str) -> None:
        message.ready = ReadySpan(self._place(offset), message.rank, record.offset, record.timestamp_ms, cause)
        self.ledger.ready.append(message.ready)
        insort(self.ledger._least, (message.rank, offset))

    def _leave(self, record: LogRecord, offset: int, message: _Message, left_by: str) -> None:
        if message.ready is not None:
            message.ready.until, message.ready.until_ms = record.offset, record.timestamp_ms
            message.ready.left_by, message.ready = left_by, None
            self.ledger._least.remove((message.rank, offset))

    def _end_lease(self, record: LogRecord, message: _Message, ended_by: str) -> bool:
        if message.lease is None:
            return False
        message.lease.ended_at, message.lease.ended_by, message.lease = record.offset, ended_by, None
        return True

    def _enqueue(self, record: LogRecord, offset: int, operation: Enqueue, cause: str) -> None:
        self.ledger.messages[offset] = operation
        message = self.ledger._waiting[offset] = _Message(self._sign * operation.priority)
        if not operation.not_before_ms:
            self._make_ready(record, offset, message, cause)

    def _grant(self, record: LogRecord, operation: Grant) -> None:
        if operation.epoch < self._epoch:
            self._mismatch("epoch went back", record, f"a grant of epoch {operation.epoch} after one of {self._epoch}")
        self._epoch = max(self._epoch, operation.epoch)
        for offset, priority in operation.entries:
            message, what = self.ledger._waiting.get(offset), f"message {offset} for {operation.consumer}"
            if message is None:
                gone = self.ledger.gone.get(offset, "nothing")
                self._mismatch("granted when gone", record, f"{what}, removed by {gone}")
            elif message.lease is not None:
                holder = f"{message.lease.consumer} by {message.lease.name.granted_at}"
                self._mismatch("two live leases", record, f"{what}, leased to {holder}")
            elif message.ready is None:
                self._mismatch("granted while delayed", record, what)
            else:
                self._begin_lease(record, operation, offset, priority, message)

    def _begin_lease(self, record: LogRecord, operation: Grant, offset: int, priority: int, message: _Message) -> None:
        best = self.ledger._least[0][0]
        if message.rank != self._sign * priority:
            told = f"message {offset} with priority {priority} instead of {self._sign * message.rank}"
            self._mismatch("another priority", record, told)
        if best < message.rank:
            self._mismatch("not the best", record, f"message {offset} of rank {message.rank}, {best} was ready")
        self._leave(record, offset, message, "GRANT")
        name = LeaseName(*self._place(offset), record.offset)
        message.lease = LeaseSpan(
            name, operation.epoch, operation.consumer, message.rank, record.timestamp_ms, self._basis
        )
        self.ledger.leases[name] = message.lease

    def _remove(self, record: LogRecord, offset: int, name: str) -> bool:
        message = self.ledger._waiting.pop(offset, None)
        if message is None:
            return False
        if name == "ACK" and message.lease is None:
            self._mismatch("acknowledged without a lease", record, f"message {offset}")
        self._leave(record, offset, message, name)
        self._end_lease(record, message, name)
        self.ledger.gone[offset] = name
        return True

    def _return(self, record: LogRecord, offset: int, op: Op, ready_ms: int) -> None:
        message = self.ledger._waiting.get(offset)
        if message is None or not self._end_lease(record, message, op.name):
            self._mismatch("returned without a lease", record, f"message {offset} by {op.name}")
        elif not ready_ms:
            self._make_ready(record, offset, message, op.name)

    def _end_delay(self, record: LogRecord, offset: int, priority: int) -> None:
        message = self.ledger._waiting.get(offset)
        if message is not None and message.ready is None and message.lease is None:
            message.rank = self._sign * priority
            self._make_ready(record, offset, message, "READY")

    def _reprioritise(self, record: LogRecord, offset: int, priority: int) -> None:
        message = self.ledger._waiting.get(offset)
        if message is None:
            return
        was_ready = message.ready is not None
        self._leave(record, offset, message, "REPRIORITISE")
        message.rank = self._sign * priority
        if was_ready:
            self._make_ready(record, offset, message, "REPRIORITISE")


def producers(ledger: Ledger) -> Iterable[tuple[ProducerSequence, int]]:
    """The sequence number and the offset of every message that has one."""
    return ((each.producer, at) for at, each in ledger.messages.items() if each.producer is not None)
