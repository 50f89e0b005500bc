"""Opening a partition under a new lease: what the store says, what our WAL still holds, and where the next offset is.

Rules (SAFETY 7–9): a tail that may exist in somebody else's WAL keeps the partition offline, unless the topic allows an unclean
takeover, which starts at the reserved ceiling so that no offset is handed out twice. A recovered tail was fsynced by the WAL when
it was opened, before anything here serves it.
"""

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.contracts.objects import Missing, Objects
from holdfast.contracts.store import Absent, AtVersion, Conflict, Entry, Put, Requirement, Store
from holdfast.kernel.lease import Lease, commit_fenced
from holdfast.kernel.session import HeldSession
from holdfast.log.batches import BatchLimits, split
from holdfast.log.keys import state_key
from holdfast.log.partition.epochs import begun, epoch_at
from holdfast.log.partition.leading import LeadingPartition, Place
from holdfast.log.partition.producers import Producers
from holdfast.log.partition.records import PartitionRecord
from holdfast.log.partition.segments import Segments, load_segments
from holdfast.log.partition.tail import Tail, TailBatch
from holdfast.log.segments import SegmentReader
from holdfast.log.settings import LogSettings
from holdfast.log.wal import Wal, WalFrame
from holdfast.vocabulary.clock import Chance, Clock
from holdfast.vocabulary.errors import CorruptError, FencedError, HoldfastError

Tails = Mapping[tuple[bytes, int], Sequence[WalFrame]]  # what the WAL held when it was opened


class TailElsewhereError(HoldfastError):
    """The partition's last records may be in another agent's WAL. Bring that agent back, or allow an unclean takeover."""

    def __init__(self, partition: str, wal: str, published: int, reserved: int) -> None:
        super().__init__(partition, wal, published, reserved)
        self.partition, self.wal, self.published, self.reserved = partition, wal, published, reserved

    def __str__(self) -> str:
        return (
            f"partition {self.partition} is offline: records between offsets {self.published} and {self.reserved} may be in WAL "
            f"{self.wal}, which is not here; start the agent that has it, or set unclean_takeover on the topic"
        )


async def open_partition(
    place: Place,
    *,
    lease: Lease,
    session: HeldSession,
    store: Store,
    objects: Objects,
    wal: Wal,
    tails: Tails,
    clock: Clock,
    chance: Chance,
    settings: LogSettings,
    level: str = "local",
    unclean_takeover: bool = False,
) -> LeadingPartition:
    """Recover and take over. `TailElsewhereError`: it stays offline. `FencedError`: somebody was faster."""
    key = state_key(place.topic_id, place.number)
    entry = await store.get(key)
    record = PartitionRecord() if entry is None else msgspec.json.decode(entry.value, type=PartitionRecord)
    tail = Tail(record.published)
    if record.wal == wal.id:
        recover_tail(tail, record, tails.get((bytes.fromhex(place.topic_id), place.number), ()))
    elif not record.clean:
        if not unclean_takeover:
            raise TailElsewhereError(str(place), record.wal, record.published, record.reserved)
        record = msgspec.structs.replace(record, published=record.reserved)
        tail = Tail(record.published)
    segments = await load_segments(store, place.topic_id, place.number)
    producers = await _producers(segments, objects, tail)
    opened = msgspec.structs.replace(
        record,
        wal=wal.id,
        reserved=max(tail.end, record.published) + settings.reserve_offsets,
        epochs=begun(record.epochs, lease.epoch, tail.end),
    )
    version = await _take(store, lease, key, entry, opened, clock=clock, chance=chance)
    return LeadingPartition(
        place,
        lease=lease,
        session=session,
        store=store,
        wal=wal,
        clock=clock,
        chance=chance,
        settings=settings,
        level=level,
        record=opened,
        record_version=version,
        segments=segments,
        producers=producers,
        tail=tail,
    )


def recover_tail(tail: Tail, record: PartitionRecord, frames: Sequence[WalFrame]) -> None:
    """Put back on the tail what follows on from it, in the order it was written.

    A frame that does not follow belongs to something that was published, or to an append that failed and was taken back; a frame
    whose epoch was not in charge of its offset belongs to a lost leadership. Neither was ever acknowledged from here on.
    """
    for frame in frames:
        if frame.base_offset != tail.end or frame.epoch != epoch_at(record.epochs, frame.base_offset):
            continue
        for part in frame.payload:
            for header, data in split(part, limits=BatchLimits(), stored=True):
                tail.append(TailBatch(header.base_offset, header.last_offset + 1, data, header))


async def _producers(segments: Segments, objects: Objects, tail: Tail) -> Producers:
    """From the newest footer, then what the tail adds."""
    producers = Producers()
    newest = segments.recent[-1] if segments.recent else None
    if newest is not None:
        reader = SegmentReader(objects, newest.object, newest.start, newest.end)
        snapshots = await reader.producers()
        if isinstance(snapshots, Missing):
            raise CorruptError(f"object {newest.object}", "it is named by the store and is not there")
        producers = Producers(snapshots)
    for batch in tail.between(tail.start, tail.end):
        producers.append(batch.header, batch.base_offset, batch.header.max_timestamp)
    return producers


async def _take(
    store: Store, lease: Lease, key: str, entry: Entry | None, record: PartitionRecord, *, clock: Clock, chance: Chance
) -> int:
    unmoved: Requirement = Absent(key) if entry is None else AtVersion(key, entry.version)
    outcome = await commit_fenced(
        store, lease, clock=clock, chance=chance, require=(unmoved,), apply=(Put(key, msgspec.json.encode(record)),)
    )
    if isinstance(outcome, Conflict):
        # Only the lease's holder writes the record, and the lease is ours: a former owner's last commit came in between.
        raise FencedError(lease.resource, lease.epoch, lease.epoch)
    return outcome.version
