"""What a takeover finds of a partition, in the store and in our WAL, and the record it will write. It commits nothing.

Rules (docs/safety.md, rules 7–9): a tail that may exist in another agent's WAL keeps the partition offline, unless the topic allows
an unclean takeover, which starts at the reserved ceiling so that no offset is handed out twice. A recovered tail was fsynced by the
WAL when it was opened, before anything here serves it.
"""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from holdfast.contracts.store import Entry
from holdfast.kernel.lease import Lease
from holdfast.log.errors import TailDamagedError, TailNotLocalError
from holdfast.log.keys import state_key
from holdfast.log.leader_epochs import epoch_at, with_epoch
from holdfast.log.metadata import OffsetGap, PartitionRecord
from holdfast.log.model import QUORUM, PartitionConfig, PartitionId
from holdfast.log.partition.ended_logs import EndedLog
from holdfast.log.partition.resources import PartitionResources
from holdfast.log.partition.tail import Tail
from holdfast.log.partition.tail_recovery import TailHole, cover, recover_tail
from holdfast.log.replication.takeover_run import TakeoverRun
from holdfast.log.segment_list import SegmentList, list_segments
from holdfast.log.wal import Wal, WalFrame
from holdfast.log.wal.recovery import PartitionKey
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.tasks import gather_or_cancel

_log: Final = logging.getLogger(__name__)

# The WAL frames of a partition (topic id, number), oldest first.
FrameSource = Callable[[bytes, int], AsyncIterator[WalFrame]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTakeover:
    """A partition that is to be opened under a new lease. `was_offline`: the store may say under this lease that it cannot be.

    `ended`: the log of an epoch before, if this agent led and ended it.
    """

    partition_id: PartitionId
    lease: Lease
    config: PartitionConfig
    was_offline: bool = True
    ended: EndedLog | None = None

    @property
    def place(self) -> tuple[str, int]:
        """Topic id and number."""
        return self.partition_id.topic_id, self.partition_id.number

    @property
    def wal_key(self) -> PartitionKey:
        """The same, as the WAL has it."""
        return bytes.fromhex(self.partition_id.topic_id), self.partition_id.number


@dataclass(frozen=True, slots=True)
class RecoveredTakeover:
    """What is left to commit: `entry` is the record as it was, `record` as it will be.

    At `quorum` the tail, and what the record says of it, are known once it is replicated: then there is a `run`.
    """

    takeover: PartitionTakeover
    entry: Entry | None
    record: PartitionRecord
    segments: SegmentList
    tail: Tail
    was_replicated: bool = False
    run: TakeoverRun | None = None

    @property
    def replicated(self) -> bool:
        """Whether several agents keep its tail."""
        return self.record.level == QUORUM


async def recover_all(
    takeovers: Sequence[PartitionTakeover],
    entries: Sequence[Sequence[Entry]],
    resources: PartitionResources,
    source: FrameSource,
) -> list[RecoveredTakeover | HoldfastError]:
    """Those whose last records have to be read from the WAL side by side, the others at once."""
    recovered: dict[tuple[str, int], RecoveredTakeover | HoldfastError] = {}
    reading: list[tuple[PartitionTakeover, Sequence[Entry], Entry | None, PartitionRecord]] = []
    for takeover, found in zip(takeovers, entries, strict=True):
        entry = next((each for each in reversed(found) if each.key == state_key(*takeover.place)), None)
        failpoints.reached("takeover.record-read")
        record = PartitionRecord() if entry is None else msgspec.json.decode(entry.value, type=PartitionRecord)
        if record.clean or record.opened_replicas or record.wal != resources.wal_id:
            recovered[takeover.place] = await _recover(takeover, found, entry, record, resources, source)
        else:
            reading.append((takeover, found, entry, record))
    if reading:
        read = await gather_or_cancel(*(_recover(*each, resources, source) for each in reading))
        recovered.update((each[0].place, result) for each, result in zip(reading, read, strict=True))
    return [recovered[takeover.place] for takeover in takeovers]


async def _recover(
    takeover: PartitionTakeover,
    entries: Sequence[Entry],
    entry: Entry | None,
    record: PartitionRecord,
    resources: PartitionResources,
    source: FrameSource,
) -> RecoveredTakeover | HoldfastError:
    """The partition as it will be taken over, or why it cannot be."""
    partition_id, config = takeover.partition_id, takeover.config
    tail = Tail(record.published)
    try:
        if record.clean or record.opened_replicas:
            pass  # there is no tail, in any WAL; or the replicas have it
        elif record.wal == resources.wal_id:
            record, tail = await _recover_own_tail(takeover, record, resources, source)
        else:
            record = _skip_tail(partition_id, record, config)
            tail = Tail(record.published)
    except HoldfastError as error:
        return error
    failpoints.reached("takeover.tail-recovered")
    segments = list_segments(entries, *takeover.place)
    failpoints.reached("takeover.segments-listed")
    opened = msgspec.structs.replace(
        record,
        wal=resources.wal_id,
        wal_repair=resources.wal.repairs.last_repair,
        level=_next_level(record, tail, config),
    )
    if opened.level != QUORUM:
        opened = msgspec.structs.replace(
            opened,
            reserved=tail.end,
            epochs=with_epoch(record.epochs, takeover.lease.epoch, tail.end),
            # Nobody needs what replicas still have. Their promises stay below the epoch of a leader that has none.
            opened_epoch=takeover.lease.epoch - 1 if record.opened_replicas else record.opened_epoch,
            opened_replicas=(),
            in_sync=(),
            unclean_epoch=0,
        )
    return RecoveredTakeover(takeover, entry, opened, segments, tail, was_replicated=bool(record.opened_replicas))


def _next_level(record: PartitionRecord, tail: Tail, config: PartitionConfig) -> str:
    """A tail keeps its level until it is published: what was acknowledged as `local` stays visible, replicas have theirs."""
    if record.opened_replicas and not record.clean:
        return QUORUM
    keeps = tail.size_bytes and (record.level == "local" or config.level == QUORUM)
    return record.level if keeps else config.level


async def _recover_own_tail(
    takeover: PartitionTakeover, record: PartitionRecord, resources: PartitionResources, source: FrameSource
) -> tuple[PartitionRecord, Tail]:
    """The tail is in our WAL, if there is one."""
    partition_id, config, key = takeover.partition_id, takeover.config, takeover.wal_key
    tail = Tail(record.published)
    hole = await recover_tail(tail, record, source(*key))
    repaired = resources.wal.repairs.affect(key, since=record.wal_repair)
    if hole is None and repaired and tail.end < record.reserved:
        hole = TailHole(tail.end, record.reserved, 0, tail.end)
    if hole is not None:
        if not config.unclean_takeover and not repaired:  # a repair is a person's decision, too
            raise _hole_error(hole, record, partition_id, resources.wal)
        record = _go_on_behind(hole, tail, record, partition_id, resources.wal_id)
    if tail.end < record.start:  # all of it was deleted
        record = msgspec.structs.replace(record, published=record.start, published_epoch=0)
        tail = Tail(record.published)
    return record, tail


def _skip_tail(
    partition_id: PartitionId, record: PartitionRecord, partition_config: PartitionConfig
) -> PartitionRecord:
    """Continue at the reserved ceiling, without a tail in another WAL: it was never acknowledged, or may be given up."""
    if record.level == "object":
        return msgspec.structs.replace(record, published=record.reserved, published_epoch=0)
    if not partition_config.unclean_takeover:
        raise TailNotLocalError(str(partition_id), record.wal, record.published, record.reserved)
    gap = OffsetGap(start=record.published, end=record.reserved, wal=record.wal)
    return msgspec.structs.replace(record, published=record.reserved, published_epoch=0, gaps=(*record.gaps, gap))


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


def _hole_error(hole: TailHole, record: PartitionRecord, partition_id: PartitionId, wal: Wal) -> TailDamagedError:
    file = wal.file_of(hole.lsn)
    return TailDamagedError(
        f"WAL {wal.directory}" if file is None else f"WAL file {file}",
        f"offsets {hole.start} to {hole.end - 1} of partition {partition_id} are missing, and LSN {hole.lsn} proves that they were "
        f"written; bring the missing file back, or set unclean_takeover on the topic: it then goes on at offset "
        f"{max(record.reserved, hole.tail_end)}, and what lies behind the hole is set aside",
    )
