"""Orphans: objects nobody names, left behind by uploads whose commit never came.

The one rule (SAFETY 13): deletion cannot race publication. An object that is old and named by nobody is first doomed, by a commit;
publication requires that it is not. Then it is looked for again: either the publication came before, and the object is seen to
be named; or it comes after, and is refused. Only then it is deleted.

The doom stays until no late publication can come any more: until every partition the object could belong to was published beyond
it and has changed its record since, or is gone. A publication prepared before then asks for a record that is no longer there.

    doomed/{object key}     {"at_ms": …, "claims": {topic id: [[partition, end offset], …]}}
    sweeper                 {"judged_until_ms": …, "full_at_ms": …}     how far the last sweep came
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from holdfast.contracts.checks import prefix_end
from holdfast.contracts.objects import Missing, ObjectInfo
from holdfast.contracts.store import AtVersion, Delete, Operation, Put
from holdfast.kernel.lease import Lease, commit_fenced
from holdfast.log.keys import DOOMED, doomed_key
from holdfast.log.segments.keys import SEGMENTS, SHARED
from holdfast.log.upkeep.index_objects import INDEXES
from holdfast.log.upkeep.references import Claim, Listings, claims_of
from holdfast.log.upkeep.settings import Kit
from holdfast.log.upkeep.trash import in_trash
from holdfast.vocabulary.settings import KIB

SWEEPER = "sweeper"  # the lease, and the key

_PAGE = 500
_DOOMS_PER_COMMIT = 80
_DOOM_BYTES_MAX = 256 * KIB


class SweepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How far the last sweep came: what was written before was judged; `full_at_ms` is when everything was."""

    judged_until_ms: int = 0
    full_at_ms: int = 0


class DoomRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A doomed object: since when, and where it could be published: partitions and end offsets by topic."""

    at_ms: int
    claims: dict[str, list[tuple[int, int]]]


@dataclass(slots=True)
class Swept:
    """What a sweep did. `spared`: doomed, and then found to be named; `unjudged`: nobody can tell whose they are."""

    judged: int = 0
    deleted: int = 0
    spared: int = 0
    unjudged: int = 0


async def sweep_orphans(lease: Lease, kit: Kit) -> Swept:
    """Judge every object that was written since the last sweep and is old enough; now and then all of them.

    Once is enough: an object that was named when it was old is unlinked through the trash. `FencedError`: somebody else sweeps.
    """
    entry = await kit.store.get(SWEEPER)
    known = SweepRecord() if entry is None else msgspec.json.decode(entry.value, type=SweepRecord)
    now_ms = kit.clock.now_ms()
    until_ms = now_ms - kit.settings.orphan_grace_ms
    full = now_ms - known.full_at_ms >= kit.settings.orphan_full_interval_ms
    # The object store's clock is not ours: look back once more as far as the grace.
    from_ms = 0 if full else known.judged_until_ms - kit.settings.orphan_grace_ms
    swept = Swept()
    page: list[str] = []
    async for info in _objects(kit):
        if from_ms <= info.modified_ms <= until_ms:
            page.append(info.key)
        if len(page) == _PAGE:
            await _sweep(page, lease, kit, swept)
            page = []
    await _sweep(page, lease, kit, swept)
    record = SweepRecord(judged_until_ms=until_ms, full_at_ms=now_ms if full else known.full_at_ms)
    await _commit([Put(SWEEPER, msgspec.json.encode(record))], lease, kit)
    return swept


async def _objects(kit: Kit) -> AsyncIterator[ObjectInfo]:
    for prefix in (SEGMENTS, INDEXES, SHARED):
        async for info in kit.objects.list(prefix):
            yield info


async def _sweep(keys: Sequence[str], lease: Lease, kit: Kit, swept: Swept) -> None:
    suspects = await _unnamed(keys, kit, swept)
    if not suspects:
        return
    # After the look at the lists: whatever is on no list because it was unlinked is in the trash by now, and has its own time.
    waiting = await in_trash(kit)
    suspects = {key: claims for key, claims in suspects.items() if key not in waiting}
    kit.steps("before dooming")
    await _doom(suspects, lease, kit)
    kit.steps("doomed")
    listings = Listings(kit)
    orphans = [key for key, claims in suspects.items() if not await listings.named(key, claims)]
    spared = [key for key in suspects if key not in set(orphans)]
    kit.steps("before deleting orphans")
    await kit.objects.delete(orphans)
    kit.steps("orphans deleted")
    for at in range(0, len(spared), _DOOMS_PER_COMMIT):
        await _commit([Delete(doomed_key(key)) for key in spared[at : at + _DOOMS_PER_COMMIT]], lease, kit)
    swept.deleted += len(orphans)
    swept.spared += len(spared)


async def _unnamed(keys: Sequence[str], kit: Kit, swept: Swept) -> dict[str, tuple[Claim, ...]]:
    listings = Listings(kit)
    unnamed: dict[str, tuple[Claim, ...]] = {}
    for key in keys:
        claims = await claims_of(key, kit.objects)
        if isinstance(claims, Missing):
            continue
        swept.judged += 1
        if claims is None:
            swept.unjudged += 1
        elif not await listings.named(key, claims):
            unnamed[key] = claims
    return unnamed


async def _doom(suspects: Mapping[str, Sequence[Claim]], lease: Lease, kit: Kit) -> None:
    dooms: list[Operation] = []
    size_bytes = 0
    for key, claims in suspects.items():
        by_topic: dict[str, list[tuple[int, int]]] = {}
        for claim in claims:
            by_topic.setdefault(claim.topic_id, []).append((claim.number, claim.end_offset))
        doom = msgspec.json.encode(DoomRecord(at_ms=kit.clock.now_ms(), claims=by_topic))
        if dooms and (len(dooms) == _DOOMS_PER_COMMIT or size_bytes + len(doom) > _DOOM_BYTES_MAX):
            await _commit(dooms, lease, kit)
            dooms, size_bytes = [], 0
        dooms.append(Put(doomed_key(key), doom))
        size_bytes += len(doom)
    if dooms:
        await _commit(dooms, lease, kit)


async def forget_dooms(lease: Lease, kit: Kit) -> int:
    """Take back dooms that no publication can meet any more; how many."""
    listings = Listings(kit)
    forgotten = 0
    for entry in (await kit.store.scan(DOOMED, prefix_end(DOOMED))).entries:
        doom = msgspec.json.decode(entry.value, type=DoomRecord)
        for topic_id, places in doom.claims.items():
            late = [await _may_come(Claim(topic_id, *place, place[1]), entry.version, listings) for place in places]
            if any(late):
                break
        else:
            await commit_fenced(
                kit.store,
                lease,
                clock=kit.clock,
                chance=kit.chance,
                require=(AtVersion(entry.key, entry.version),),
                apply=(Delete(entry.key),),
            )
            forgotten += 1
    return forgotten


async def _may_come(claim: Claim, doomed_at: int, listings: Listings) -> bool:
    listing = await listings.of(claim)
    if listing.state is None:
        return False
    return listing.state.published < claim.end_offset or listing.state_version < doomed_at


async def _commit(operations: Sequence[Operation], lease: Lease, kit: Kit) -> None:
    await commit_fenced(kit.store, lease, clock=kit.clock, chance=kit.chance, apply=operations)
