"""A replica's records as frames of the WAL, and back. Pure. `docs/formats/wal.md` describes them.

The one rule: records are replayed in the order in which they were written. A frame that was copied forward keeps the LSN it had
first, and counts there, so that a copy never brings back what was cut off since.

Entries and truncations are released by offset, like all frames of a partition. A truncation reaches as far as what it cut off, so
that it stays for as long as that may be found; an epoch-start entry counts as one offset, so that releasing what lies below its
offset leaves it there. Replica states have a number of their own in the place of offsets: the last one is enough.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from holdfast.log.replication.entry_log import EntryLog
from holdfast.log.replication.positions import PartitionKey, Position, ReplicaEntry
from holdfast.log.replication.replica import Record, ReplicaState, Truncation, replay
from holdfast.log.wal.frames import DATA, EPOCH_START, REPLICA_STATE, STATE_BIT, TRUNCATION, WalFrame
from holdfast.vocabulary.errors import CorruptError

_STATE: Final = Struct(">QQQQQB")


class StateFrame(NamedTuple):
    """The payload of a replica state.

    `void_below`: entries with a lower LSN are no part of the log. `repairs`: how often the WAL was repaired before.
    """

    promised: int
    base: Position
    void_below: int
    repairs: int
    reset: bool

    def encode(self) -> bytes:
        return _STATE.pack(self.promised, *self.base, self.void_below, self.repairs, self.reset)

    @classmethod
    def decode(cls, frame: WalFrame) -> "StateFrame":
        data = b"".join(frame.payload)
        if len(data) != _STATE.size:
            raise CorruptError(f"replica state at LSN {frame.lsn}", f"{len(data)} bytes, not {_STATE.size}")
        promised, epoch, offset, void_below, repairs, reset = _STATE.unpack(data)
        return cls(promised, Position(epoch, offset), void_below, repairs, bool(reset))


def state_key(partition: PartitionKey) -> PartitionKey:
    """Under which number the WAL keeps the states of a replica."""
    return partition[0], partition[1] | STATE_BIT


def state_frame(partition: PartitionKey, number: int, state: StateFrame) -> WalFrame:
    """The replica state number `number` as a frame."""
    return WalFrame(*state_key(partition), state.promised, number, 1, (state.encode(),), REPLICA_STATE)


def record_frame(partition: PartitionKey, record: ReplicaEntry | Truncation) -> WalFrame:
    """An entry or a truncation as a frame."""
    if isinstance(record, Truncation):
        keep = record.keep
        return WalFrame(*partition, keep.epoch, keep.offset, record.end + 1 - keep.offset, (), TRUNCATION)
    epoch, base, count, payload, checksum = record
    if not count:
        return WalFrame(*partition, epoch, base, 1, (), EPOCH_START)
    topic_id, number = partition
    return WalFrame(topic_id, number, epoch, base, count, payload, DATA, 0, checksum)


def frame_record(frame: WalFrame) -> Record | None:
    """The record in a frame; None: it is of something else."""
    if frame.kind == DATA:
        return ReplicaEntry(frame.epoch, frame.base_offset, frame.count, frame.payload)
    if frame.kind == EPOCH_START:
        return ReplicaEntry(frame.epoch, frame.base_offset, 0)
    if frame.kind == TRUNCATION:
        return Truncation(Position(frame.epoch, frame.base_offset), frame.end_offset - 1)
    if frame.kind == REPLICA_STATE:
        state = StateFrame.decode(frame)
        return ReplicaState(state.promised, state.base, state.reset)
    return None


class RecoveredReplica(NamedTuple):
    """What a WAL has of a replica. `last_state`: the number of its last state; 0: there is none."""

    promised: int
    log: EntryLog
    last_state: int
    void_below: int
    stale: bool  # there are entries that are no part of the log, and nothing says so yet


def recover(frames: Iterable[WalFrame], repairs: int) -> RecoveredReplica:
    """Rebuild a replica from its frames, in any order and some of them perhaps twice. `CorruptError`: something is missing.

    A WAL that was repaired is another replica: what is left of the one before may lack what it has acknowledged.
    """
    written = {frame.origin_lsn or frame.lsn: frame for frame in frames}
    states = [frame for _, frame in sorted(written.items()) if frame.kind == REPLICA_STATE]
    if not states:
        return RecoveredReplica(0, EntryLog(), 0, 0, stale=bool(written))
    last, number = StateFrame.decode(states[-1]), states[-1].base_offset
    if last.repairs != repairs:
        return RecoveredReplica(0, EntryLog(), number, 0, stale=True)
    void_below = max(last.void_below, max((lsn for lsn, each in written.items() if _resets(each)), default=0))
    found = (frame_record(frame) for lsn, frame in sorted(written.items()) if lsn >= last.void_below)
    promised, log = replay(record for record in found if record is not None)
    return RecoveredReplica(promised, log, number, void_below, stale=False)


def recover_unreadable(frames: Iterable[WalFrame], repairs: int) -> tuple[RecoveredReplica, int]:
    """Of a replica whose log cannot be read: its promise, without the log; and the newest epoch of what it may have had."""
    written = {frame.origin_lsn or frame.lsn: frame for frame in frames}
    states = [frame for _, frame in sorted(written.items()) if frame.kind == REPLICA_STATE]
    if not states:
        return RecoveredReplica(0, EntryLog(), 0, 0, stale=True), 0
    last = StateFrame.decode(states[-1])
    if last.repairs != repairs:
        return RecoveredReplica(0, EntryLog(), states[-1].base_offset, 0, stale=True), 0
    entries = (each.epoch for lsn, each in written.items() if lsn >= last.void_below and each.kind != REPLICA_STATE)
    newest = max(last.base.epoch, *entries, 0)
    return RecoveredReplica(last.promised, EntryLog(), states[-1].base_offset, last.void_below, stale=True), newest


def _resets(frame: WalFrame) -> bool:
    return frame.kind == REPLICA_STATE and StateFrame.decode(frame).reset
