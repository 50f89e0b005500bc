"""Orphans: unreferenced objects, left by uploads that were never committed.

The one rule (docs/safety.md, rule 13): deletion cannot race publication. An old unreferenced object is first marked for deletion,
by a commit; publication requires that it is not. Then it is looked for again: either the publication came before, and the object is
seen to be named; or it comes after, and is refused. Only then it is deleted.

Nothing is deleted that is not this cluster's (rule 20): the objects' owner deletes, after a look at who owns them now. Below
the cluster's id everything is. Release 0.1.0 wrote without the id: there an object is judged only if the store knows the topics it
belongs to. Objects from a time for which nobody vouches that the store still has its history are left for `unproven_keep_ms`.

The mark stays until no late publication can come any more: until every partition the object could belong to was published beyond
it and has changed its record since, or is gone. A publication prepared before then asks for a record that is no longer there. Of a
snapshot the same holds for the partition's list of snapshots.

    doomed/{object key}     {"at_ms": …, "claims": {topic id: [[partition, end offset], …]}}
    sweeper                 {"judged_until_ms": …, "full_at_ms": …}     how far the last sweep came
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from holdfast.contracts.objects import Missing, ObjectInfo
from holdfast.contracts.store import AtVersion, Delete, Entry, Operation, Put
from holdfast.contracts.validation import next_key, prefix_end
from holdfast.kernel.lease import Lease, commit_fenced
from holdfast.log.keys import DELETION_MARKS, deleted_key, deletion_mark_key
from holdfast.log.maintenance.index_objects import INDEXES
from holdfast.log.maintenance.object_references import ListingCache, PartitionOffsetRange, offset_ranges_of
from holdfast.log.maintenance.settings import MaintenanceContext
from holdfast.log.maintenance.trash import in_trash
from holdfast.log.partition_snapshots import SNAPSHOTS, parse_snapshot_key
from holdfast.log.segments.keys import SEGMENTS, SHARED
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.settings import KIB

SWEEPER = "sweeper"  # the lease, and the key

_PAGE = 500
_MARKS_PER_COMMIT = 80
_MARK_BYTES_MAX = 256 * KIB


class SweepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How far the last sweep came: what was written before was checked; `full_at_ms` is when everything was."""

    judged_until_ms: int = 0
    full_at_ms: int = 0


class DeletionMark(msgspec.Struct, frozen=True, kw_only=True):
    """An object marked for deletion: since when, and where it could be published: partitions and end offsets by topic."""

    at_ms: int
    claims: dict[str, list[tuple[int, int]]]


@dataclass(slots=True)
class SweepResult:
    """What a sweep did. `spared`: marked, and then found to be referenced; `unjudged`: their references cannot be checked.

    `unproven`: the store may have lost the history that references them.
    """

    judged: int = 0
    deleted: int = 0
    spared: int = 0
    unjudged: int = 0
    unproven: int = 0


async def sweep_orphans(lease: Lease, context: MaintenanceContext) -> SweepResult:
    """Check every object that was written since the last sweep and is old enough; now and then all of them.

    Once is enough: an object that was referenced when it was old goes through the trash. `FencedError`: another agent sweeps.
    """
    entry = await context.store.get(SWEEPER)
    known = SweepRecord() if entry is None else msgspec.json.decode(entry.value, type=SweepRecord)
    now_ms = context.clock.now_ms()
    until_ms = now_ms - context.settings.orphan_grace_ms
    full = now_ms - known.full_at_ms >= context.settings.orphan_full_interval_ms
    # The object store's clock is not ours: look back once more as far as the grace.
    from_ms = 0 if full else known.judged_until_ms - context.settings.orphan_grace_ms
    await context.owner.check()
    unproven = await context.owner.unproven(keep_ms=context.settings.unproven_keep_ms)
    swept = SweepResult()
    page: list[str] = []
    async for info in _objects(context):
        if not from_ms <= info.modified_ms <= until_ms:
            continue
        if any(span.holds(info.modified_ms) for span in unproven):
            swept.unproven += 1
            continue
        page.append(info.key)
        if len(page) == _PAGE:
            await _sweep(page, lease, context, swept)
            page = []
    await _sweep(page, lease, context, swept)
    record = SweepRecord(judged_until_ms=until_ms, full_at_ms=now_ms if full else known.full_at_ms)
    await _commit([Put(SWEEPER, msgspec.json.encode(record))], lease, context)
    return swept


async def _objects(context: MaintenanceContext) -> AsyncIterator[ObjectInfo]:
    for root in (context.owner.prefix, ""):
        for folder in (SEGMENTS, INDEXES, SHARED, SNAPSHOTS):
            async for info in context.objects.list(root + folder):
                yield info


async def _sweep(keys: Sequence[str], lease: Lease, context: MaintenanceContext, swept: SweepResult) -> None:
    suspects = await _unnamed(keys, context, swept)
    if not suspects:
        return
    # After the look at the lists: whatever is on no list because it was unlinked is in the trash by now, and has its own time.
    waiting = await in_trash(suspects, context)
    suspects = {key: claims for key, claims in suspects.items() if key not in waiting}
    failpoints.reached("maintenance.before-deletion-mark")
    await _mark_for_deletion(suspects, lease, context)
    failpoints.reached("maintenance.deletion-marked")
    listings = ListingCache(context)
    orphans = [key for key, claims in suspects.items() if not await listings.named(key, claims)]
    spared = [key for key in suspects if key not in set(orphans)]
    failpoints.reached("maintenance.before-orphan-deletion")
    await context.owner.delete(orphans)
    failpoints.reached("maintenance.orphans-deleted")
    for at in range(0, len(spared), _MARKS_PER_COMMIT):
        await _commit([Delete(deletion_mark_key(key)) for key in spared[at : at + _MARKS_PER_COMMIT]], lease, context)
    swept.deleted += len(orphans)
    swept.spared += len(spared)


async def _unnamed(
    keys: Sequence[str], context: MaintenanceContext, swept: SweepResult
) -> dict[str, tuple[PartitionOffsetRange, ...]]:
    listings = ListingCache(context)
    unnamed: dict[str, tuple[PartitionOffsetRange, ...]] = {}
    for key in keys:
        claims = await offset_ranges_of(key, context.objects)
        if isinstance(claims, Missing):
            continue
        swept.judged += 1
        if claims is None:
            swept.unjudged += 1
        elif not await listings.named(key, claims):
            if key.startswith(context.owner.prefix) or await _is_known(claims, listings, context):
                unnamed[key] = claims
            else:
                swept.unjudged += 1
    return unnamed


async def _is_known(
    claims: Sequence[PartitionOffsetRange], listings: ListingCache, context: MaintenanceContext
) -> bool:
    """Whether all these partitions are, or were until recently, in this store: ids of topics are random."""
    for claim in claims:
        if (await listings.of(claim)).state is None and await context.store.get(deleted_key(claim.topic_id)) is None:
            return False
    return True


async def _mark_for_deletion(
    suspects: Mapping[str, Sequence[PartitionOffsetRange]], lease: Lease, context: MaintenanceContext
) -> None:
    marks: list[Operation] = []
    size_bytes = 0
    for key, claims in suspects.items():
        by_topic: dict[str, list[tuple[int, int]]] = {}
        for claim in claims:
            by_topic.setdefault(claim.topic_id, []).append((claim.number, claim.end_offset))
        mark = msgspec.json.encode(DeletionMark(at_ms=context.clock.now_ms(), claims=by_topic))
        if marks and (len(marks) == _MARKS_PER_COMMIT or size_bytes + len(mark) > _MARK_BYTES_MAX):
            await _commit(marks, lease, context)
            marks, size_bytes = [], 0
        marks.append(Put(deletion_mark_key(key), mark))
        size_bytes += len(mark)
    if marks:
        await _commit(marks, lease, context)


async def expire_deletion_marks(lease: Lease, context: MaintenanceContext) -> int:
    """Remove marks that no publication can meet any more; how many."""
    start, forgotten = DELETION_MARKS, 0
    while True:
        page = await context.store.scan(start, prefix_end(DELETION_MARKS), limit=_PAGE)
        forgotten += await _expire(page.entries, lease, context)
        if not page.more:
            return forgotten
        start = next_key(page.entries[-1].key)


async def _expire(marks: Sequence[Entry], lease: Lease, context: MaintenanceContext) -> int:
    listings = ListingCache(context)
    forgotten = 0
    for entry in marks:
        mark = msgspec.json.decode(entry.value, type=DeletionMark)
        is_snapshot = parse_snapshot_key(entry.key.removeprefix(DELETION_MARKS)) is not None
        may_be_named = _may_be_listed if is_snapshot else _may_be_published
        for topic_id, places in mark.claims.items():
            late = [
                await may_be_named(
                    PartitionOffsetRange(topic_id, *partition_id, partition_id[1]), entry.version, listings
                )
                for partition_id in places
            ]
            if any(late):
                break
        else:
            await commit_fenced(
                context.store,
                lease,
                clock=context.clock,
                random=context.random,
                require=(AtVersion(entry.key, entry.version),),
                apply=(Delete(entry.key),),
            )
            forgotten += 1
    return forgotten


async def _may_be_published(claim: PartitionOffsetRange, doomed_at: int, listings: ListingCache) -> bool:
    listing = await listings.of(claim)
    if listing.state is None:
        return False
    return listing.state.published < claim.end_offset or listing.state_version < doomed_at


async def _may_be_listed(claim: PartitionOffsetRange, doomed_at: int, listings: ListingCache) -> bool:
    listing = await listings.of(claim)
    if listing.state is None:
        return False
    return listing.snapshots.newest_offset < claim.end_offset or listing.snapshots_version < doomed_at


async def _commit(operations: Sequence[Operation], lease: Lease, context: MaintenanceContext) -> None:
    await commit_fenced(context.store, lease, clock=context.clock, random=context.random, apply=operations)
