"""A replica of one partition: what it promised, what it has, and what it answers. No I/O.

On any message of an epoch below the promise it answers `Reject`; one of a higher epoch raises the promise first. It truncates on
conflict only: a shorter or older message changes nothing.

The caller's duties, in this order: call `handle`; write the step's records behind those of every step before it, in one piece and
without looking at another message in between; when all of them are fsynced, call `durable` and send what it returns. If a write
fails, those behind it have failed, too: call `failed` once, with what came before it of its step. A step without records waits for
those before it like any other: its answer describes what they write.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.log.replication.entry_log import EntryLog, LogSnapshot
from holdfast.log.replication.messages import (
    Ack,
    Announce,
    Answer,
    Append,
    Base,
    Mismatch,
    ReadTail,
    Reject,
    Request,
    Seal,
    Sealed,
    TailEntries,
    WrongWal,
)
from holdfast.log.replication.positions import NOWHERE, PartitionKey, Position, ReplicaEntry
from holdfast.vocabulary.errors import CorruptError


class ReplicaState(NamedTuple):
    """A record: the promise, and where the log begins; the later one counts. `reset`: no entry before it is part of the log."""

    promised: int
    base: Position
    reset: bool = False


class Truncation(NamedTuple):
    """A record: entries before it that lie behind `keep` are no part of the log. They ended at offset `end`."""

    keep: Position
    end: int


Record = ReplicaEntry | Truncation | ReplicaState


def replay(records: Iterable[Record]) -> tuple[int, EntryLog]:
    """The promise and the log that these records leave, in the order in which they were written.

    Entries up to the last base, and what cut some of them off, may be missing or there. Those of an epoch that never opened may
    have a position above a base of an older one: their offset tells. Those above the promise were not written by the replica, but
    by a leader that needed none. `CorruptError`: what follows the base has a hole.
    """
    written = list(records)
    last = next((each for each in reversed(written) if isinstance(each, ReplicaState)), ReplicaState(0, NOWHERE))
    entries: list[ReplicaEntry] = []
    for record in written:
        if isinstance(record, ReplicaState):
            if record.reset:
                entries.clear()
        elif isinstance(record, Truncation):
            while entries and entries[-1].position > record.keep:
                entries.pop()
        elif record.position > last.base and record.base_offset >= last.base.offset and record.epoch <= last.promised:
            entries.append(record)
    return last.promised, EntryLog(last.base, entries)


@dataclass(slots=True, eq=False)
class ReplicaStep:
    """What a message did. `answer` is due when `records`, and those of all steps before, are fsynced."""

    records: tuple[Record, ...]
    answer: Answer | None
    matched: tuple[int, Position] | None = None  # of which epoch's leader, up to where
    hw: int = 0
    undo: tuple[int, LogSnapshot] | None = None

    @property
    def drops(self) -> bool:
        """Whether the log is dropped: nobody counts it, and nobody has asked."""
        return self.answer is None and any(isinstance(each, ReplicaState) and each.reset for each in self.records)

    @property
    def released(self) -> Position | None:
        """The new base: what the WAL has up to it can go once this step is durable."""
        for each in reversed(self.records):
            if isinstance(each, ReplicaState):
                return each.base
        return None


class Replica:
    """One partition on one WAL."""

    def __init__(self, partition: PartitionKey, wal_id: str, *, promised: int = 0, log: EntryLog | None = None) -> None:
        self.partition, self.wal_id = partition, wal_id
        self.promised = promised
        self.log = log if log is not None else EntryLog()
        self.hw = self.log.base.offset  # visible here, an offset
        self._matched = (0, NOWHERE)
        self._steps: deque[ReplicaStep] = deque()  # not durable yet

    @property
    def matched(self) -> Position:
        """Up to here the log is known to equal that of the leader of `promised`."""
        epoch, position = self._matched
        return position if epoch == self.promised else NOWHERE

    def handle(self, message: Request) -> ReplicaStep:
        """Decide on a message, from another agent or from this agent's own leader. `CorruptError`: no leader sends that."""
        undo = (self.promised, self.log.snapshot())
        try:
            step = self._decide(message)
        except CorruptError:
            self.promised = undo[0]
            self.log.restore(undo[1])
            raise
        return self._queued(step, undo)

    def _decide(self, message: Request) -> ReplicaStep:
        if isinstance(message, Append):
            return self._reject(message) if message.epoch < self.promised else self._append(message)
        if isinstance(message, Seal) and message.wal_id != self.wal_id:
            return self._answer(WrongWal(partition=self.partition, epoch=message.epoch, wal_id=self.wal_id))
        if message.epoch < self.promised:
            return self._reject(message)
        if isinstance(message, Seal):
            return self._seal(message)
        if isinstance(message, ReadTail):
            return self._tail(message)
        if isinstance(message, Base):
            return self._base(message)
        return self._announce(message)

    def drop(self, opened_epoch: int, opened_replicas: tuple[str, ...]) -> ReplicaStep | None:
        """Drop the log if the store says that nobody counts it: None if somebody may. The promise stays.

        A recovery under a higher promise may be counting this log at this moment, whatever set is opened.
        """
        if self.wal_id in opened_replicas or self.promised > opened_epoch:
            return None
        undo = (self.promised, self.log.snapshot())
        self.promised = opened_epoch
        self.log.reset(NOWHERE)
        return self._queued(ReplicaStep((ReplicaState(opened_epoch, NOWHERE, reset=True),), None), undo)

    def durable(self) -> Answer | None:
        """The oldest step that was not is durable now. The answer to send, if there is one."""
        step = self._steps.popleft()
        if step.matched is None:
            if step.drops:
                self._matched = (0, NOWHERE)  # whoever asks again is told what is there now
            return step.answer
        self._matched = max(self._matched, step.matched)
        epoch, matched = self._matched
        self.hw = max(self.hw, min(step.hw, matched.offset))
        if isinstance(step.answer, Ack):
            return Ack(partition=self.partition, epoch=epoch, matched=matched)
        return step.answer

    def failed(self, written: Sequence[Record] = ()) -> None:
        """The steps that are not durable were not written, but for `written` of the oldest: be what is on disk, and answer none."""
        while self._steps:
            self.undo_last()
        for record in written:
            self._redo(record)

    def undo_last(self) -> None:
        """Nothing of the last step will be written: be what it was before."""
        undo = self._steps.pop().undo
        assert undo is not None
        self.promised = undo[0]
        self.log.restore(undo[1])

    def _redo(self, record: Record) -> None:
        if isinstance(record, Truncation):
            self.log.truncate(record.keep)
        elif isinstance(record, ReplicaEntry):
            self.log.append(record)
        else:
            self.promised = record.promised
            if record.reset:
                self.log.reset(record.base)
            else:
                self.log.release(record.base)

    def _queued(self, step: ReplicaStep, undo: tuple[int, LogSnapshot]) -> ReplicaStep:
        step.undo = undo
        self._steps.append(step)
        return step

    def _answer(self, answer: Answer | None) -> ReplicaStep:
        return ReplicaStep((), answer)

    def _reject(self, message: Request) -> ReplicaStep:
        return self._answer(Reject(partition=self.partition, epoch=message.epoch, promised=self.promised))

    def _promise(self, epoch: int) -> list[Record]:
        """Raise the promise, if `epoch` does.

        A log without entries begins anew: what a leader without replicas wrote to this WAL was above the promise so far, and would
        not be any more.
        """
        if epoch <= self.promised:
            return []
        self.promised = epoch
        return [ReplicaState(epoch, self.log.base, reset=not len(self.log))]

    def _append(self, message: Append) -> ReplicaStep:
        log = self.log
        if message.previous == log.position and message.epoch == self.promised and message.published <= log.base:
            return self._append_all(message)  # as nearly always: what follows comes to the same
        records = self._promise(message.epoch)
        below_base = message.previous < self.log.base
        if not below_base and not self.log.contains(message.previous):
            return ReplicaStep(tuple(records), self._mismatch(message.epoch))
        # What lies up to the base is published, so it is equal.
        keep = self.log.base if below_base else message.previous
        last = message.previous
        for entry in message.entries:
            last = entry.position
            if last <= self.log.base:
                continue
            if not self.log.contains(last):
                records += self._write(keep, entry)
            keep = last
        records += self._release(message.published)
        matched = max(last, self.log.base)
        ack = Ack(partition=self.partition, epoch=message.epoch, matched=matched)
        return ReplicaStep(tuple(records), ack, (message.epoch, matched), message.hw)

    def _append_all(self, message: Append) -> ReplicaStep:
        """All entries are new, and nothing is truncated or released."""
        log, promised = self.log, self.promised
        for entry in message.entries:
            if entry.epoch > promised:
                raise _above_promise(entry, promised)
            log.append(entry)
        matched = log.position
        ack = Ack(partition=self.partition, epoch=promised, matched=matched)
        return ReplicaStep(message.entries, ack, (promised, matched), message.hw)

    def _write(self, previous: Position, entry: ReplicaEntry) -> list[Record]:
        """Put `entry` behind `previous`; what else follows there conflicts with it, and goes."""
        if entry.epoch > self.promised:  # `replay` would not take it for the replica's
            raise _above_promise(entry, self.promised)
        records: list[Record] = []
        if self.log.position != previous:
            records.append(Truncation(previous, self.log.position.offset))
            self.log.truncate(previous)
        self.log.append(entry)
        return [*records, entry]

    def _release(self, published: Position) -> list[Record]:
        if published <= self.log.base or not self.log.contains(published):
            return []
        self.log.release(published)
        return [ReplicaState(self.promised, published)]

    def _seal(self, message: Seal) -> ReplicaStep:
        records = self._promise(message.epoch)
        log = self.log
        sealed = Sealed(
            partition=self.partition, epoch=message.epoch, base=log.base, position=log.position, epochs=log.epochs
        )
        return ReplicaStep(tuple(records), sealed)

    def _tail(self, message: ReadTail) -> ReplicaStep:
        if message.epoch != self.promised:
            return self._reject(message)
        if not self.log.contains(message.start):
            return self._answer(self._mismatch(message.epoch))
        tail = TailEntries(
            partition=self.partition,
            epoch=message.epoch,
            previous=message.start,
            entries=self.log.after(message.start, message.bytes_max),
            position=self.log.position,
        )
        return self._answer(tail)

    def _mismatch(self, epoch: int) -> Mismatch:
        log = self.log
        return Mismatch(partition=self.partition, epoch=epoch, base=log.base, position=log.position, epochs=log.epochs)

    def _base(self, message: Base) -> ReplicaStep:
        records, published = self._promise(message.epoch), message.published
        if published > self.log.base and not self.log.contains(published):
            self.log.reset(published)
            records.append(ReplicaState(self.promised, published, reset=True))
        matched = max(published, self.log.base)
        ack = Ack(partition=self.partition, epoch=message.epoch, matched=matched)
        return ReplicaStep(tuple(records), ack, (message.epoch, matched), published.offset)

    def _announce(self, message: Announce) -> ReplicaStep:
        """What it says counts only for the log that its leader has matched: an `Append` comes first."""
        if message.epoch != self.promised:
            return self._answer(None)
        released = tuple(self._release(message.published))
        return ReplicaStep(released, None, (message.epoch, NOWHERE), message.hw)


def _above_promise(entry: ReplicaEntry, promised: int) -> CorruptError:
    return CorruptError("replicated log", f"an entry of epoch {entry.epoch} in a message of epoch {promised}")
