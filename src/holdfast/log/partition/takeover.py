"""Taking over a partition under a new lease: its record in the store, its tail in our WAL, and the next offset.

Rules (docs/safety.md, rules 7–9): a tail that may exist in another agent's WAL keeps the partition offline, unless the topic allows
an unclean takeover, which starts at the reserved ceiling so that no offset is handed out twice. A recovered tail was fsynced by the
WAL when it was opened, before anything here serves it.
"""

import logging
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec

from holdfast.contracts.store import Absent, AtVersion, Conflict, Delete, Entry, Put, Requirement
from holdfast.kernel.lease import Lease, commit_fenced
from holdfast.log.errors import TailNotLocalError
from holdfast.log.keys import deleted_key, offline_key, state_key
from holdfast.log.leader_epochs import epoch_at, with_epoch
from holdfast.log.metadata import OffsetGap, PartitionRecord
from holdfast.log.model import PartitionConfig, PartitionId
from holdfast.log.partition.fenced_record import FencedRecord
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.left_out_tails import set_aside_gaps
from holdfast.log.partition.partition_reads import PartitionReads
from holdfast.log.partition.resources import PartitionResources, RecoveredPartition
from holdfast.log.partition.tail import Tail
from holdfast.log.partition.tail_recovery import TailHole, cover, recover_tail
from holdfast.log.segment_list import list_segments
from holdfast.log.wal import Wal, WalFrame
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import ClosedError, CorruptError, UnavailableError

_log: Final = logging.getLogger(__name__)

# The WAL frames of a partition (topic id, number), oldest first.
FrameSource = Callable[[bytes, int], AsyncIterator[WalFrame]]


async def open_partition(
    partition_id: PartitionId,
    lease: Lease,
    resources: PartitionResources,
    *,
    config: PartitionConfig | None = None,
    frames: FrameSource | None = None,
) -> LeadingPartition:
    """Recover a partition and take it over. `frames`: where its WAL frames are read from, by default what the WAL recovered.

    `TailNotLocalError`, `CorruptError`: it stays offline. `FencedError`: a newer epoch owns it.
    """
    config = config or PartitionConfig()
    store, wal_id = resources.store, resources.wal_id
    source, key = frames or resources.wal.recovered.of, (bytes.fromhex(partition_id.topic_id), partition_id.number)
    # The record and what it lists, as of one commit.
    entries = await (resources.reads or PartitionReads(store)).read(partition_id.topic_id, partition_id.number)
    entry = next(
        (each for each in reversed(entries) if each.key == state_key(partition_id.topic_id, partition_id.number)), None
    )
    failpoints.reached("takeover.record-read")
    record = PartitionRecord() if entry is None else msgspec.json.decode(entry.value, type=PartitionRecord)
    tail = Tail(record.published)
    if record.clean:
        pass  # there is no tail, in any WAL
    elif record.wal == wal_id:
        hole = await recover_tail(tail, record, source(*key))
        repaired = resources.wal.repairs.affect(key, since=record.wal_repair)
        if hole is None and repaired and tail.end < record.reserved:
            hole = TailHole(tail.end, record.reserved, 0, tail.end)
        if hole is not None:
            if not config.unclean_takeover and not repaired:  # a repair is a person's decision, too
                raise _hole_error(hole, record, partition_id, resources.wal)
            record = _go_on_behind(hole, tail, record, partition_id, wal_id)
        if tail.end < record.start:  # all of it was deleted
            record = msgspec.structs.replace(record, published=record.start)
            tail = Tail(record.published)
    else:
        record = _skip_tail(partition_id, record, config)
        tail = Tail(record.published)
    failpoints.reached("takeover.tail-recovered")
    segments = list_segments(entries, partition_id.topic_id, partition_id.number)
    failpoints.reached("takeover.segments-listed")
    opened = msgspec.structs.replace(
        record,
        wal=wal_id,
        wal_repair=resources.wal.repairs.last_repair,
        # A tail that was acknowledged as `local` stays visible, and is not skipped, until it is published.
        level="local" if tail.size_bytes and record.level == "local" else config.level,
        reserved=tail.end,
        epochs=with_epoch(record.epochs, lease.epoch, tail.end),
    )
    version = await _commit_takeover(partition_id, lease, entry, opened, resources)
    failpoints.reached("takeover.committed")
    if any(gap.wal == wal_id for gap in opened.gaps):  # before a publication releases the frames
        await set_aside_gaps(
            partition_id,
            opened,
            source(*key),
            directory=resources.wal.directory,
            wal_id=wal_id,
            now_ms=resources.clock.now_ms(),
        )
    fenced = FencedRecord(
        partition_id, lease, opened, version, store=store, clock=resources.clock, random=resources.random
    )
    state = RecoveredPartition(record=fenced, segments=segments, tail=tail, config=config)
    return LeadingPartition(partition_id, lease, state, resources)


def _skip_tail(
    partition_id: PartitionId, record: PartitionRecord, partition_config: PartitionConfig
) -> PartitionRecord:
    """Continue at the reserved ceiling, without a tail in another WAL: it was never acknowledged, or may be given up."""
    if record.level == "object":
        return msgspec.structs.replace(record, published=record.reserved)
    if not partition_config.unclean_takeover:
        raise TailNotLocalError(str(partition_id), record.wal, record.published, record.reserved)
    gap = OffsetGap(start=record.published, end=record.reserved, wal=record.wal)
    return msgspec.structs.replace(record, published=record.reserved, gaps=(*record.gaps, gap))


def _go_on_behind(
    hole: TailHole, tail: Tail, record: PartitionRecord, partition_id: PartitionId, wal_id: str
) -> PartitionRecord:
    """Keep what precedes the hole, and continue at the reserved ceiling."""
    ceiling = max(record.reserved, hole.tail_end)
    _log.warning(
        "partition %s goes on at offset %d without offsets %d to %d of its tail: the WAL was damaged",
        partition_id,
        ceiling,
        hole.start,
        ceiling - 1,
    )
    cover(tail, ceiling, epoch_at(record.epochs, ceiling - 1))
    return msgspec.structs.replace(record, gaps=(*record.gaps, OffsetGap(start=hole.start, end=ceiling, wal=wal_id)))


def _hole_error(hole: TailHole, record: PartitionRecord, partition_id: PartitionId, wal: Wal) -> CorruptError:
    file = wal.file_of(hole.lsn)
    return CorruptError(
        f"WAL {wal.directory}" if file is None else f"WAL file {file}",
        f"offsets {hole.start} to {hole.end - 1} of partition {partition_id} are missing, and LSN {hole.lsn} proves that they were "
        f"written; bring the missing file back, or set unclean_takeover on the topic: it then goes on at offset "
        f"{max(record.reserved, hole.tail_end)}, and what lies behind the hole is set aside",
    )


async def _commit_takeover(
    partition_id: PartitionId,
    lease: Lease,
    entry: Entry | None,
    record: PartitionRecord,
    resources: PartitionResources,
) -> int:
    key = state_key(partition_id.topic_id, partition_id.number)
    # Not deleted: this agent may not have seen yet that the topic was.
    unchanged: Requirement = Absent(key) if entry is None else AtVersion(key, entry.version)
    outcome = await commit_fenced(
        resources.store,
        lease,
        clock=resources.clock,
        random=resources.random,
        require=(unchanged, Absent(deleted_key(partition_id.topic_id))),
        apply=(Put(key, msgspec.json.encode(record)), Delete(offline_key(lease.resource))),
    )
    if isinstance(outcome, Conflict):
        if outcome.found.get(deleted_key(partition_id.topic_id)) is not None:
            raise ClosedError(f"partition {partition_id} of a deleted topic")
        # The lease is ours, so it was an earlier attempt of our own, whose answer was lost.
        raise UnavailableError(f"partition {partition_id}", "its record changed while it was opened")
    return outcome.version
