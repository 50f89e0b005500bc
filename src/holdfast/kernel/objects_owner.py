"""The owner of the objects below a prefix: one cluster, and one history of its store.

    in object storage   owner/{number}.json    `OwnerMark`; the highest number counts, earlier ones are removed
                        {cluster id}/…         everything the cluster writes
    in the store        cluster/objects        the same mark, and times that no sweeper vouches for

The one rule (docs/safety.md, rule 20): nothing is deleted, and no server starts, unless the highest mark in object storage is that
of this store. A mark is recorded in the store, then put if absent, under the number after the highest: of two clusters, or two
copies of one store, one gets the number, and the other finds it taken.

A store that was restored from a backup finds a higher number than its own, as soon as a mark was put after the backup. The sweeper
puts one every minute. A backup taken after the last mark is not found out that way. So a process vouches only for the time before
the last mark that it found, and for the time since it opened the store, which cannot go backwards under it unnoticed (rule 3). The
span in between is recorded, and orphans from it are left alone for a long while.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.objects import Missing, Objects
from holdfast.contracts.store import Absent, AtVersion, Committed, Delete, Entry, Put, Requirement, Store
from holdfast.contracts.validation import next_key
from holdfast.kernel.cluster_identity import cluster_identity, read_cluster_identity
from holdfast.kernel.cluster_move import MOVED_KEY, ClusterMovedError, decode_moved
from holdfast.kernel.lease_fencing import free_all_leases
from holdfast.kernel.owner_mark import (
    CLAIMED,
    NotOwnerError,
    OwnerMark,
    Ownership,
    TimeSpan,
    judge_owner,
    merge_spans,
)
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError, UnavailableError, UsageError
from holdfast.vocabulary.random import Random

MARKS: Final = "owner/"
RECORD_KEY: Final = "cluster/objects"
PLACE: Final = "object storage"
SKEW_MS: Final = 600_000
"""How far the clocks of agents and of object storage may differ."""
ACTIVE_MS: Final = 300_000
"""An owner whose mark is younger than this is probably running: it puts one every minute."""

_MARK: Final = re.compile(rf"{MARKS}(\d{{12}})\.json", re.ASCII)
_MARKS_KEPT: Final = 3
_ATTEMPTS_MAX: Final = 20
_CHECK_MS_MAX: Final = 60_000  # far less than `ACTIVE_MS`


class OwnerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The value of `cluster/objects`. `unproven`: what may have been published then, this store may have lost."""

    mark: OwnerMark
    unproven: tuple[TimeSpan, ...] = ()


def mark_key(number: int) -> str:
    """The object of a mark."""
    return f"{MARKS}{number:012d}.json"


async def read_mark(objects: Objects) -> OwnerMark | None:
    """The highest mark in object storage."""
    while True:
        highest = ""
        async for info in objects.list(MARKS):
            if _MARK.fullmatch(info.key):
                highest = max(highest, info.key)
        if not highest:
            return None
        body = await objects.get(highest)
        if isinstance(body, Missing):
            continue  # removed meanwhile: there is a higher one
        try:
            return msgspec.json.decode(body, type=OwnerMark)
        except msgspec.MsgspecError as error:
            raise CorruptError(f"object {highest}", str(error)) from None


async def read_marks(objects: Objects) -> list[OwnerMark]:
    """All marks in object storage that can be read, lowest first."""
    keys = [info.key async for info in objects.list(MARKS) if _MARK.fullmatch(info.key)]
    bodies = [await objects.get(key) for key in sorted(keys)]
    return [msgspec.json.decode(body, type=OwnerMark) for body in bodies if not isinstance(body, Missing)]


async def read_record(store: Store) -> tuple[Entry | None, int]:
    """The record of the owner in the store, and the store's version."""
    found = await store.scan(RECORD_KEY, next_key(RECORD_KEY))
    return (found.entries[0] if found.entries else None), found.version


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerView:
    """Both marks, what they mean together, and the store's version at that moment."""

    ownership: Ownership
    found: OwnerMark | None
    record: OwnerRecord | None
    record_version: int
    store_version: int

    @property
    def recorded(self) -> OwnerMark | None:
        """The store's mark."""
        return None if self.record is None else self.record.mark


class ObjectsOwner:
    """The cluster of a store, as the owner of its objects. Made by `claim_objects` or `verify_objects`."""

    def __init__(
        self, store: Store, objects: Objects, *, cluster: str, clock: Clock, random: Random, place: str = PLACE
    ) -> None:
        self.cluster, self.place = cluster, place
        self._store, self._objects, self._clock, self._random = store, objects, clock, random
        self._opened_ms = clock.now_ms()

    @property
    def prefix(self) -> str:
        """Where everything lies that this cluster writes."""
        return f"{self.cluster}/"

    async def view(self) -> OwnerView:
        """Whose the objects are now."""
        while True:
            found = await read_mark(self._objects)  # first: the store only gets further meanwhile
            entry, version = await read_record(self._store)
            record = None if entry is None else msgspec.json.decode(entry.value, type=OwnerRecord)
            ownership = judge_owner(self.cluster, None if record is None else record.mark, found)
            # Marks that were put since the first look make the store appear to be ahead.
            if ownership is Ownership.OBJECTS_BEHIND and await read_mark(self._objects) != found:
                continue
            return OwnerView(
                ownership=ownership,
                found=found,
                record=record,
                record_version=0 if entry is None else entry.version,
                store_version=version,
            )

    async def check(self) -> None:
        """`NotOwnerError` unless the objects are this store's, now."""
        view = await self.view()
        # Begun: another process of this cluster is between its two steps, and the mark before it is ours.
        if view.ownership is not Ownership.OURS and (view.ownership is not Ownership.BEGUN or view.found is None):
            raise self.refusal(view)

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, if they are still ours. `NotOwnerError`: nothing was deleted.

        A process that was suspended after the check looks again before it deletes.
        """
        if not keys:
            return
        for _ in range(_ATTEMPTS_MAX):
            started_ms = self._clock.boot_ms()
            await self.check()
            failpoints.reached("owner.checked")
            if self._clock.boot_ms() - started_ms <= _CHECK_MS_MAX:
                await self._objects.delete(keys)
                return
        raise UnavailableError(self.place, f"its owner could not be checked within {_CHECK_MS_MAX} ms")

    async def unproven(self, *, keep_ms: int) -> Sequence[TimeSpan]:
        """The times, less than `keep_ms` ago, for which nobody vouches that this store has everything that was published then."""
        record = (await self.view()).record
        return () if record is None else self._unproven(record, keep_ms)

    async def raise_mark(self, *, unproven_keep_ms: int) -> None:
        """Put the next mark: what is published from now on is lost to any earlier state of this store. `NotOwnerError`."""
        view = await self._finished()
        assert view.record is not None
        spans = self._unproven(view.record, unproven_keep_ms)
        if await self._commit_mark(view.record.mark.number + 1, view, spans):
            await self._finished()
            await self._remove_marks()

    async def claim(self) -> None:
        """Make the objects ours, unless somebody else has. `NotOwnerError`."""
        for _ in range(_ATTEMPTS_MAX):
            view = await self.view()
            if view.ownership is Ownership.UNCLAIMED:
                # What lies there already is from a release without marks: nobody knows which history it belongs to.
                before = [] if await self._nothing_there() else [TimeSpan(0, self._clock.now_ms() + SKEW_MS)]
                await self._commit_mark(CLAIMED - 1, view, before)
            elif view.ownership is Ownership.BEGUN and view.record is not None:
                await self._put(view.record.mark)
            elif view.ownership is Ownership.OURS and view.record is not None:
                if view.record.mark.number >= CLAIMED:
                    return
                await self._commit_mark(CLAIMED, view, view.record.unproven)
            else:
                raise self.refusal(view)
        raise UnavailableError(self.place, "its marks changed again and again while it was claimed")

    async def leave(self, *, moved_to: str, token: str) -> OwnerMark:
        """Put the mark that the cluster has moved, with a copy of these objects. The store has no such mark: it is refused here.

        `NotOwnerError`: they are not this store's. A repetition finds the mark.
        """
        for _ in range(_ATTEMPTS_MAX):
            view = await self.view()
            if view.ownership is Ownership.MOVED and view.found is not None and view.found.token == token:
                return view.found
            view = await self._finished()
            assert view.record is not None
            await self._put(
                OwnerMark(
                    cluster=self.cluster,
                    number=view.record.mark.number + 1,
                    token=token,
                    store_version=view.store_version,
                    at_ms=self._clock.now_ms(),
                    moved_to=moved_to,
                )
            )
        raise UnavailableError(self.place, "its marks changed again and again while it was left")

    async def adopt(self, *, force: bool = False) -> OwnerMark:
        """Take the objects over from whoever had them; the new mark. `UsageError`: their owner seems to be running."""
        view = await self.view()
        left = await self._store.get(MOVED_KEY)
        if not force and left is not None:
            raise ClusterMovedError(moved=decode_moved(left), migration=None)
        if not force and view.ownership is Ownership.MOVED:
            raise self.refusal(view)
        if view.ownership not in (Ownership.UNCLAIMED, Ownership.BEGUN, Ownership.OURS):
            now_ms = self._clock.now_ms()
            if view.found is not None and now_ms - view.found.at_ms < ACTIVE_MS and not force:
                raise UsageError(
                    f"cluster {view.found.cluster} marked {self.place} {max(0, now_ms - view.found.at_ms) // 1000} s ago: stop "
                    f"all its processes, wait {ACTIVE_MS // 60_000} minutes and run this again, or pass --force if you are sure "
                    "that none of them runs"
                )
            since_ms = 0 if view.record is None else view.record.mark.at_ms - SKEW_MS
            spans = [TimeSpan(since_ms, now_ms + SKEW_MS), *(() if view.record is None else view.record.unproven)]
            number = max(view.found.number if view.found is not None else 0, CLAIMED - 1) + 1
            await self._commit_mark(number, view, spans)
            record = (await self.view()).record
            assert record is not None
            await self._put(record.mark)
        await self.claim()
        if left is not None:
            await self._return(left)
        mark = (await self.view()).recorded
        assert mark is not None
        return mark

    async def _return(self, left: Entry) -> None:
        """The cluster is here again. Last of all, and only if the migration has not been finished meanwhile."""
        await free_all_leases(self._store, clock=self._clock, random=self._random)
        outcome = await commit_resolved(
            self._store,
            clock=self._clock,
            random=self._random,
            require=(AtVersion(MOVED_KEY, left.version),),
            apply=(Delete(MOVED_KEY),),
        )
        if not isinstance(outcome, Committed):
            raise UsageError("a `holdfast migrate` of this store runs: end it, then run this again")
        await free_all_leases(self._store, clock=self._clock, random=self._random)  # those it fenced meanwhile

    def _unproven(self, record: OwnerRecord, keep_ms: int) -> Sequence[TimeSpan]:
        spans = list(record.unproven)
        if record.mark.at_ms < self._opened_ms:
            spans.append(TimeSpan(record.mark.at_ms - SKEW_MS, self._opened_ms + SKEW_MS))
        ended_ms = self._clock.now_ms() - keep_ms + SKEW_MS
        return [span for span in merge_spans(spans) if span.until_ms > ended_ms]

    async def _finished(self) -> OwnerView:
        """The marks, once ours is in both places."""
        for _ in range(_ATTEMPTS_MAX):
            view = await self.view()
            if view.ownership is Ownership.OURS:
                return view
            if view.ownership is not Ownership.BEGUN or view.found is None or view.record is None:
                raise self.refusal(view)
            await self._put(view.record.mark)
        raise UnavailableError(self.place, "its marks changed again and again")

    async def _commit_mark(self, number: int, view: OwnerView, unproven: Sequence[TimeSpan]) -> bool:
        """Record the mark `number` in the store; False: another process of this cluster has written the record since."""
        mark = OwnerMark(
            cluster=self.cluster,
            number=number,
            token=self._random.token(),
            store_version=view.store_version,
            at_ms=self._clock.now_ms(),
        )
        value = msgspec.json.encode(OwnerRecord(mark=mark, unproven=merge_spans(unproven)))
        unchanged: Requirement = (
            Absent(RECORD_KEY) if view.record is None else AtVersion(RECORD_KEY, view.record_version)
        )
        outcome = await commit_resolved(
            self._store, clock=self._clock, random=self._random, require=(unchanged,), apply=(Put(RECORD_KEY, value),)
        )
        failpoints.reached("owner.recorded")
        return isinstance(outcome, Committed)

    async def _put(self, mark: OwnerMark) -> None:
        # Already there: our own put, repeated, or that of whoever else wanted the number. The next look tells.
        await self._objects.put(mark_key(mark.number), [msgspec.json.encode(mark)])
        failpoints.reached("owner.marked")

    async def _remove_marks(self) -> None:
        listed = [info.key async for info in self._objects.list(MARKS) if _MARK.fullmatch(info.key)]
        if len(listed) > _MARKS_KEPT:
            await self._objects.delete(sorted(listed)[:-_MARKS_KEPT])

    async def _nothing_there(self) -> bool:
        async for _ in self._objects.list(""):
            return False
        return True

    def refusal(self, view: OwnerView) -> NotOwnerError:
        """The error that says why these objects are not this store's."""
        return NotOwnerError(
            self.place,
            view.ownership,
            cluster=self.cluster,
            store_version=view.store_version,
            recorded=view.recorded,
            found=view.found,
        )


async def claim_objects(
    store: Store, objects: Objects, *, clock: Clock, random: Random, place: str = PLACE
) -> ObjectsOwner:
    """For a server: the objects, claimed for the cluster of this store if nobody has claimed them yet. `NotOwnerError`."""
    cluster = await cluster_identity(store, clock=clock, random=random)
    owner = ObjectsOwner(store, objects, cluster=cluster, clock=clock, random=random, place=place)
    await owner.claim()
    return owner


async def verify_objects(
    store: Store, objects: Objects, *, clock: Clock, random: Random, place: str = PLACE
) -> ObjectsOwner:
    """For a reader: writes nothing. `NotOwnerError` if somebody else has claimed the objects."""
    owner = await owner_of(store, objects, clock=clock, random=random, place=place)
    view = await owner.view()
    if view.ownership not in (Ownership.UNCLAIMED, Ownership.BEGUN, Ownership.OURS):
        raise owner.refusal(view)
    return owner


async def owner_of(store: Store, objects: Objects, *, clock: Clock, random: Random, place: str = PLACE) -> ObjectsOwner:
    """The cluster of this store, unchecked. Writes nothing."""
    cluster = await read_cluster_identity(store)
    return ObjectsOwner(store, objects, cluster=cluster, clock=clock, random=random, place=place)


async def adopt_objects(
    store: Store, objects: Objects, *, clock: Clock, random: Random, place: str = PLACE, force: bool = False
) -> OwnerMark:
    """For an operator: take the objects over. Every process of their former owner must have ended."""
    cluster = await cluster_identity(store, clock=clock, random=random, moved_allowed=True)
    owner = ObjectsOwner(store, objects, cluster=cluster, clock=clock, random=random, place=place)
    return await owner.adopt(force=force)
