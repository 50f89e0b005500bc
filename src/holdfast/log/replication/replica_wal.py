"""A replica on the agent's WAL: what it decides is written, and answered when it is durable. Group commit is the WAL's.

The one rule: an answer is given when every frame queued before it is fsynced, in the order of the messages. Messages of one
partition are handled on one loop, without an await between a decision and its frames.

Frames that the partition had in this WAL before it was replicated are no part of the log: the first state that is written says so.

What a caller must do: `await wal.room(bytes)` before `handle`; leave the memory of a message's entries unchanged for as long as
they are in the log. A `CorruptError` of the WAL ends the process, as everywhere.
"""

from collections import deque
from dataclasses import dataclass, field

from holdfast.log.replication.messages import Append, Request
from holdfast.log.replication.network import OnAnswer
from holdfast.log.replication.positions import PartitionKey, ReplicaEntry
from holdfast.log.replication.replica import Record, Replica, ReplicaState, ReplicaStep
from holdfast.log.replication.replica_frames import (
    StateFrame,
    record_frame,
    recover,
    recover_unreadable,
    state_frame,
    state_key,
)
from holdfast.log.wal import Wal, WalFrame
from holdfast.log.wal.frames import checked_bytes
from holdfast.vocabulary.errors import InvalidError


@dataclass(slots=True, eq=False)
class _PendingStep:
    """A step on its way to the disk. `written`: those of its records that are there."""

    step: ReplicaStep
    on_answer: OnAnswer | None
    records_left: int
    written: list[Record] = field(default_factory=list)


class ReplicaWal:
    """One partition. `open` is the way in."""

    def __init__(self, wal: Wal, replica: Replica, *, last_state: int, void_below: int, stale: bool) -> None:
        self.replica = replica
        self._wal, self._last_state, self._void_below = wal, last_state, void_below
        self._reset_state = 0  # the last durable state that resets the log
        self._stale = stale  # the next state has to reset the log
        self._stale_pending = False  # such a state is on its way
        self._pending: deque[_PendingStep] = deque()
        self._failures = 0
        self._bytes_max = wal.replicated_bytes_max
        self._release()

    @property
    def pending(self) -> int:
        """Steps that are not durable yet."""
        return len(self._pending)

    @classmethod
    async def open(cls, wal: Wal, wal_id: str, partition: PartitionKey) -> "ReplicaWal":
        """The replica as a crash or a stop left it: its promise and what was fsynced. `CorruptError`: something is missing.

        `wal_id`: the name under which it is counted, by `replica_id`.
        """
        found = recover(await _frames_of(wal, partition), wal.repairs.last_repair)
        replica = Replica(partition, wal_id, promised=found.promised, log=found.log)
        stale = found.stale or not found.last_state  # frames since this WAL was opened are not among the recovered
        return cls(wal, replica, last_state=found.last_state, void_below=found.void_below, stale=stale)

    @classmethod
    async def begin_anew(
        cls, wal: Wal, wal_id: str, partition: PartitionKey, *, opened_epoch: int, counted: bool, published: int
    ) -> "ReplicaWal | None":
        """A replica whose log cannot be read, with its promise and no log; None: somebody may need what it had.

        `counted`: it is one of the set of the epoch that was opened last. If it has nothing of that epoch, it has acknowledged
        nothing in it, and lacks no more than one that was slow. `CorruptError`: not even its promise can be read.
        """
        found, newest = recover_unreadable(await _frames_of(wal, partition), wal.repairs.last_repair)
        if newest >= opened_epoch if counted else found.promised > opened_epoch:
            return None
        replica = Replica(partition, wal_id, promised=found.promised)
        mine = cls(wal, replica, last_state=found.last_state, void_below=found.void_below, stale=True)
        mine.drop(max(opened_epoch, found.promised), (), published)
        return mine

    def handle(self, message: Request, on_answer: OnAnswer) -> None:
        """Decide on a message; `on_answer` is called once: when its answer is due, with None if it has none or the write failed.

        `InvalidError`: the WAL cannot take an entry, or a truncation; nothing was changed, and nobody is called.
        """
        if isinstance(message, Append):
            bytes_max = self._bytes_max
            for entry in message.entries:
                if entry.size_bytes > bytes_max:
                    raise InvalidError("entry bytes", entry.size_bytes, f"at most {bytes_max} in this WAL")
        self._write(self.replica.handle(message), on_answer)

    def drop(self, opened_epoch: int, opened_replicas: tuple[str, ...], published: int) -> bool:
        """Drop the log if the store says that nobody counts it; see `Replica.drop`. `published`: as in `release_published`."""
        step = self.replica.drop(opened_epoch, opened_replicas)
        if step is not None:
            self._write(step, lambda _: self.release_published(published))
        return step is not None

    def release_published(self, published: int) -> None:
        """Let the WAL reuse the space of a dropped log, up to what is published.

        No further: a leader that needs no replicas may have written what follows, in this WAL and under the same offsets.
        """
        if not len(self.replica.log) and not self._pending:
            self._wal.release(*self.replica.partition, published)

    def discard(self) -> None:
        """The topic was deleted: nothing of the replica is needed any more, not even its promise."""
        for key in (self.replica.partition, state_key(self.replica.partition)):
            end = self._wal.unreleased().get(key)
            if end is not None:
                self._wal.release(*key, end)

    def _write(self, step: ReplicaStep, on_answer: OnAnswer) -> None:
        records = step.records
        if len(records) == 1 and isinstance(records[0], ReplicaEntry):
            self._write_entry(step, records[0], on_answer)
            return
        try:
            frames = [self._checked_frame(record) for record in step.records]
        except InvalidError:  # before anything is queued: those before it are valid, and reach the disk
            self.replica.undo_last()
            raise
        pending = _PendingStep(step, on_answer, len(step.records))
        self._pending.append(pending)
        try:
            for record, frame in zip(step.records, frames, strict=True):
                self._append(record, frame, pending)
        except BaseException:  # the WAL is closed or has failed, and with it whatever is pending
            pending.on_answer = None
            self._fail()
            raise
        self._settle()

    def _write_entry(self, step: ReplicaStep, entry: ReplicaEntry, on_answer: OnAnswer) -> None:
        """`_write` of one entry, as nearly always. `handle` has checked its size; what else the WAL refuses is not queued."""
        pending = _PendingStep(step, on_answer, 1)
        self._pending.append(pending)
        try:
            self._append(entry, record_frame(self.replica.partition, entry), pending)
        except InvalidError:
            self._pending.pop()
            self.replica.undo_last()
            raise
        except BaseException:  # as in `_write`
            pending.on_answer = None
            self._fail()
            raise

    def _checked_frame(self, record: Record) -> WalFrame | None:
        """The frame of a record; None: of a state, which is made when it is appended. `InvalidError`: the WAL would refuse it."""
        if isinstance(record, ReplicaState):
            return None
        frame = record_frame(self.replica.partition, record)
        checked_bytes(frame, self._bytes_max)
        return frame

    def _append(self, record: Record, frame: WalFrame | None, pending: _PendingStep) -> None:
        failures, state, number = self._failures, None, self._last_state + 1
        if isinstance(record, ReplicaState):
            state = self._next_state(record)
            frame = state_frame(self.replica.partition, number, state)
        assert frame is not None

        def on_durable(error: BaseException | None) -> None:
            if failures != self._failures:
                return  # one before it has failed, and so has this one
            if error is not None:
                self._fail()
                return
            if state is not None:
                self._on_state(state, number)
            pending.written.append(record)
            pending.records_left -= 1
            self._settle()

        self._wal.append_with_callback(frame, on_durable)

    def _next_state(self, record: ReplicaState) -> StateFrame:
        reset = record.reset or self._stale
        self._stale, self._stale_pending = False, self._stale_pending or self._stale
        self._last_state += 1
        return StateFrame(record.promised, record.base, self._void_below, self._wal.repairs.last_repair, reset)

    def _on_state(self, state: StateFrame, number: int) -> None:
        """A state is durable: those before it are of no use, but for one that has reset the log and that it does not know of."""
        if state.reset:
            self._void_below, self._reset_state, self._stale_pending = self._wal.synced_lsn, number, False
        covers = state.reset or state.void_below >= self._void_below
        self._wal.release(*state_key(self.replica.partition), number if covers else self._reset_state)

    def _settle(self) -> None:
        """Answer what is durable, in order."""
        while self._pending and not self._pending[0].records_left:
            done = self._pending.popleft()
            answer = self.replica.durable()
            if done.step.released is not None:
                self._release()
            if done.on_answer is not None:
                done.on_answer(answer)

    def _fail(self) -> None:
        """The disk is full: be what is on it. Nobody is answered; who needs an answer asks again."""
        self._failures += 1
        failed = list(self._pending)
        self._pending.clear()
        self.replica.failed(failed[0].written)
        self._stale, self._stale_pending = self._stale or self._stale_pending, False
        for pending in failed:
            if pending.on_answer is not None:
                pending.on_answer(None)

    def _release(self) -> None:
        """Let the WAL reuse the space of what lies below the base, which is durable, and published."""
        self._wal.release(*self.replica.partition, self.replica.log.base.offset)


async def _frames_of(wal: Wal, partition: PartitionKey) -> list[WalFrame]:
    frames = [frame async for frame in wal.recovered.of(*partition)]
    return frames + [frame async for frame in wal.recovered.of(*state_key(partition))]


def replica_id(wal_id: str, repairs: int) -> str:
    """The name under which a WAL is counted as a replica: once it was repaired, it is another one."""
    return f"{wal_id}.{repairs}" if repairs else wal_id
