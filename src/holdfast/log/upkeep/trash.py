"""The trash: objects that no list names any more, until readers whose plan still names them are done.

    trash/{due ms}/{object key}     {"contents": false}

The one rule: the key is written by the commit that unlinks the object, and goes after the object has gone. So an object is listed,
or in the trash, or deleted, whatever crashes where. An object that several partitions share comes here once for each of them, and
is deleted by the one that comes last.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from holdfast.contracts.checks import StoreLimits, prefix_end
from holdfast.contracts.objects import Missing
from holdfast.contracts.store import Delete, Operation, Put
from holdfast.kernel.lease import Lease, commit_fenced
from holdfast.log.keys import TRASH, trash_key
from holdfast.log.upkeep.index_objects import read_index_object
from holdfast.log.upkeep.references import Listings, Verdict
from holdfast.log.upkeep.settings import Kit

_LEFT = (Verdict.AWAITED, Verdict.UNKNOWN)  # what stays in the trash
_PER_ROUND = StoreLimits().ops_max - 1  # one is the fence


class TrashRecord(msgspec.Struct, frozen=True):
    """`contents`: it is an index object, and what it lists is no longer listed anywhere else."""

    contents: bool = False


@dataclass(frozen=True, slots=True)
class _Waste:
    """One key of the trash."""

    key: str
    object: str
    contents: bool


@dataclass(slots=True)
class Collected:
    """What a collection did. `kept`: somebody still lists it; `awaited`: left where it is, somebody may be about to publish it."""

    deleted: int = 0
    kept: int = 0
    awaited: int = 0

    def count(self, verdict: Verdict) -> Verdict:
        """Note a verdict, and pass it on."""
        self.deleted += verdict is Verdict.FREE
        self.kept += verdict is Verdict.NAMED
        self.awaited += verdict in _LEFT
        return verdict


def to_trash(object_key: str, due_ms: int, *, contents: bool = False) -> Put:
    """The operation that belongs into the commit that unlinks the object."""
    return Put(trash_key(object_key, due_ms), msgspec.json.encode(TrashRecord(contents)))


async def in_trash(kit: Kit) -> set[str]:
    """Every object in the trash, due or not."""
    found = await kit.store.scan(TRASH, prefix_end(TRASH))
    return {_waste(entry.key, entry.value).object for entry in found.entries}


async def collect_trash(lease: Lease, kit: Kit) -> Collected:
    """Delete what is due. Resumable: a crash anywhere leaves keys that the next collection finds again."""
    collected = Collected()
    until = trash_key("", kit.clock.now_ms() + 1)
    start = TRASH
    while True:
        found = await kit.store.scan(start, until, limit=_PER_ROUND)
        if not found.entries:
            return collected
        await _collect([_waste(entry.key, entry.value) for entry in found.entries], lease, kit, collected)
        start = found.entries[-1].key + " "  # what is still awaited stays behind


async def _collect(wastes: Sequence[_Waste], lease: Lease, kit: Kit, collected: Collected) -> None:
    listings = Listings(kit)
    done: list[Operation] = []
    free: list[str] = []
    for waste in wastes:
        # An index goes after all that it lists: a crash in between leaves the list to begin again with.
        if waste.contents and not await _collect_contents(waste.object, listings, kit, collected):
            continue
        verdict = collected.count(await listings.verdict(waste.object))
        if verdict is Verdict.FREE:
            free.append(waste.object)
        if verdict not in _LEFT:
            done.append(Delete(waste.key))
    kit.steps("before deleting trash")
    await kit.objects.delete(free)
    kit.steps("trash deleted")
    if done:
        await commit_fenced(kit.store, lease, clock=kit.clock, chance=kit.chance, apply=done)
        kit.steps("trash forgotten")


async def _collect_contents(index_object: str, listings: Listings, kit: Kit, collected: Collected) -> bool:
    """Delete what an index object lists; False: some of it has to wait."""
    entries = await read_index_object(index_object, kit.objects)
    if isinstance(entries, Missing):
        return True
    verdicts = {entry.object: collected.count(await listings.verdict(entry.object)) for entry in entries}
    kit.steps("before deleting contents")
    await kit.objects.delete([key for key, verdict in verdicts.items() if verdict is Verdict.FREE])
    kit.steps("contents deleted")
    return not any(verdict in _LEFT for verdict in verdicts.values())


def _waste(key: str, value: bytes) -> _Waste:
    record = msgspec.json.decode(value, type=TrashRecord)
    return _Waste(key, key.removeprefix(TRASH).partition("/")[2], record.contents)
