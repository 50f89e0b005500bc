"""The trash: objects that no list names any more, until readers whose plan still names them are done.

    trash/{due ms}/{object key}     {"contents": false, "unlisted": false}

The one rule: the key is written by the commit that unlinks the object, and goes after the object has gone. So an object is listed,
or in the trash, or deleted, whatever crashes where.

An object that several partitions share comes here once for each of them, each with its own time. Once it is seen that none of them
lists it any more, it waits for one more grace (`unlisted`): then the last one's is over, whichever that was. To look for keys of
the others instead would be a scan of the whole trash.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from holdfast.contracts.objects import Missing
from holdfast.contracts.store import Delete, Operation, Put
from holdfast.contracts.validation import StoreLimits, next_key, prefix_end
from holdfast.kernel.lease import Lease, commit_fenced
from holdfast.log.keys import TRASH, trash_key
from holdfast.log.maintenance.index_objects import parse_index_key, read_index_object
from holdfast.log.maintenance.object_references import ListingCache, PartitionOffsetRange, ReferenceStatus
from holdfast.log.maintenance.settings import MaintenanceContext
from holdfast.vocabulary import failpoints

_LEFT = (ReferenceStatus.AWAITED, ReferenceStatus.UNKNOWN)  # what stays in the trash
_PAGE = 500
_PER_ROUND = StoreLimits().ops_max - 1  # one is the fence


class TrashRecord(msgspec.Struct, frozen=True):
    """`contents`: it is an index object, and what it lists is no longer listed anywhere else.

    `unlisted`: nobody listed the object any more when this was written.
    """

    contents: bool = False
    unlisted: bool = False


@dataclass(frozen=True, slots=True)
class _TrashEntry:
    """One key of the trash."""

    key: str
    object: str
    contents: bool
    unlisted: bool


@dataclass(slots=True)
class CollectionResult:
    """What a collection did. `kept`: it is still listed; `awaited`: left where it is, a publication may still list it.

    `postponed`: it was shared, and waits for one more grace.
    """

    deleted: int = 0
    kept: int = 0
    awaited: int = 0
    postponed: int = 0

    def count(self, verdict: ReferenceStatus) -> ReferenceStatus:
        """Note a verdict, and pass it on."""
        self.deleted += verdict is ReferenceStatus.FREE
        self.kept += verdict is ReferenceStatus.NAMED
        self.awaited += verdict in _LEFT
        self.postponed += verdict is ReferenceStatus.FREE_SHARED
        return verdict


def to_trash(object_key: str, due_ms: int, *, contents: bool = False, unlisted: bool = False) -> Put:
    """The operation that belongs into the commit that unlinks the object."""
    return Put(trash_key(object_key, due_ms), msgspec.json.encode(TrashRecord(contents, unlisted)))


async def in_trash(objects: Mapping[str, Sequence[PartitionOffsetRange]], context: MaintenanceContext) -> set[str]:
    """Which of these objects are in the trash, due or not: by a key of their own, or in the range of an index that is.

    Page by page: the trash may hold more than RAM.
    """
    by_partition: dict[tuple[str, int], list[tuple[int, str]]] = {}
    for key, claims in objects.items():
        for claim in claims:
            by_partition.setdefault((claim.topic_id, claim.number), []).append((claim.base_offset, key))
    start, waiting = TRASH, set[str]()
    while True:
        page = await context.store.scan(start, prefix_end(TRASH), limit=_PAGE)
        for entry in page.entries:
            waste = _trash_entry(entry.key, entry.value)
            if waste.object in objects:
                waiting.add(waste.object)
            index = parse_index_key(waste.object) if waste.contents else None
            if index is not None:
                claimed = by_partition.get((index.topic_id, index.partition), ())
                waiting.update(key for base, key in claimed if index.base_offset <= base < index.end_offset)
        if not page.more:
            return waiting
        start = next_key(page.entries[-1].key)


async def collect_trash(lease: Lease, context: MaintenanceContext) -> CollectionResult:
    """Delete what is due. Resumable: a crash anywhere leaves keys that the next collection finds again."""
    collected = CollectionResult()
    until = trash_key("", context.clock.now_ms() + 1)
    start, claims = TRASH, dict[str, tuple[PartitionOffsetRange, ...]]()
    while True:
        found = await context.store.scan(start, until, limit=_PER_ROUND)
        if not found.entries:
            return collected
        wastes = [_trash_entry(entry.key, entry.value) for entry in found.entries]
        await _collect(wastes, ListingCache(context, claims), lease, context, collected)
        start = next_key(found.entries[-1].key)  # what is still awaited stays behind


async def _collect(
    wastes: Sequence[_TrashEntry],
    listings: ListingCache,
    lease: Lease,
    context: MaintenanceContext,
    collected: CollectionResult,
) -> None:
    done: list[Operation] = []
    free: list[str] = []
    postponed: set[str] = set()
    for waste in wastes:
        # An index goes after all that it lists: a crash in between leaves the list to begin again with.
        if waste.contents and not await _collect_contents(waste.object, lease, listings, context, collected):
            continue
        verdict = collected.count(await _verdict(waste.object, listings, context, unlisted=waste.unlisted))
        if verdict is ReferenceStatus.FREE:
            free.append(waste.object)
        elif verdict is ReferenceStatus.FREE_SHARED:
            postponed.add(waste.object)
        if verdict not in _LEFT:
            done.append(Delete(waste.key))
    await _postpone(postponed.difference(free), lease, context)
    failpoints.reached("maintenance.before-trash-deletion")
    await context.owner.delete(free)
    failpoints.reached("maintenance.trash-deleted")
    if done:
        await commit_fenced(context.store, lease, clock=context.clock, random=context.random, apply=done)
        failpoints.reached("maintenance.trash-record-removed")


async def _collect_contents(
    index_object: str, lease: Lease, listings: ListingCache, context: MaintenanceContext, collected: CollectionResult
) -> bool:
    """Delete what an index object lists; False: some of it has to wait."""
    entries = await read_index_object(index_object, context.objects)
    if isinstance(entries, Missing):
        return True
    verdicts = {entry.object: collected.count(await _verdict(entry.object, listings, context)) for entry in entries}
    await _postpone([key for key, each in verdicts.items() if each is ReferenceStatus.FREE_SHARED], lease, context)
    failpoints.reached("maintenance.before-content-deletion")
    await context.owner.delete([key for key, verdict in verdicts.items() if verdict is ReferenceStatus.FREE])
    failpoints.reached("maintenance.contents-deleted")
    return not any(verdict in _LEFT for verdict in verdicts.values())


async def _verdict(
    key: str, listings: ListingCache, context: MaintenanceContext, *, unlisted: bool = False
) -> ReferenceStatus:
    """What is to become of an object; `unlisted`: it has waited for the last grace of those who shared it."""
    verdict = await listings.verdict(key)
    if verdict is ReferenceStatus.FREE_SHARED and (unlisted or not context.settings.grace_ms):
        return ReferenceStatus.FREE
    return verdict


async def _postpone(keys: Collection[str], lease: Lease, context: MaintenanceContext) -> None:
    """Nobody lists these shared objects any more, so no grace is longer than one that begins now."""
    due_ms = context.due_ms()
    waiting = [to_trash(key, due_ms, unlisted=True) for key in keys]
    for at in range(0, len(waiting), _PER_ROUND):
        await commit_fenced(
            context.store, lease, clock=context.clock, random=context.random, apply=waiting[at : at + _PER_ROUND]
        )
        failpoints.reached("maintenance.trash-postponed")


def _trash_entry(key: str, value: bytes) -> _TrashEntry:
    record = msgspec.json.decode(value, type=TrashRecord)
    return _TrashEntry(key, _object_of(key), record.contents, record.unlisted)


def _object_of(key: str) -> str:
    return key.removeprefix(TRASH).partition("/")[2]
