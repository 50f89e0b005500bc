"""The target of a migration: empty or ours, refused otherwise; its record, which every write to the target is fenced by.

The one rule: each run of `holdfast migrate` raises the record's epoch first, and every commit requires the record as this run last
wrote it. So a run that was thought dead cannot write beside its successor.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.app.migration.inventory import FIRST_KEY
from holdfast.app.migration.model import MigrationEnd
from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import Absent, AtVersion, Committed, Delete, Entry, Operation, Put, Requirement
from holdfast.contracts.validation import prefix_end
from holdfast.kernel.cluster_identity import IDENTITY_KEY, read_cluster_identity
from holdfast.kernel.cluster_move import MIGRATION_KEY, MigrationRecord, decode_migration
from holdfast.kernel.objects_owner import RECORD_KEY, OwnerRecord, mark_key, read_mark, read_marks
from holdfast.kernel.owner_mark import OwnerMark
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import FencedError, UsageError
from holdfast.vocabulary.random import Random

_COMMIT_MS: Final = 60_000  # a migration may wait longer for its store than a server


async def found_record(target: MigrationEnd) -> Entry | None:
    """The record of a migration into this target."""
    return await target.store.get(MIGRATION_KEY)


async def check_store_empty(target: MigrationEnd, cluster: str) -> None:
    """`UsageError` if the store has anything in it: it names the cluster it finds."""
    found = await target.store.scan(FIRST_KEY, prefix_end(""), limit=1)
    if not found.entries:
        return
    there = await read_cluster_identity(target.store)
    what = f"cluster {there}" if there else f"keys such as {found.entries[0].key}, and no cluster"
    raise UsageError(
        f"the target store {target.location.store} is not empty: it holds {what}; the source is cluster {cluster}. Give an empty "
        "database, schema or prefix"
    )


async def check_objects_empty(target: MigrationEnd, cluster: str) -> None:
    """The same for the objects."""
    mark = await read_mark(target.objects)
    if mark is not None:
        raise UsageError(
            f"the target objects {target.location.objects} belong to cluster {mark.cluster} (mark {mark.number}); the source is "
            f"cluster {cluster}. Give an empty prefix"
            + (", or no --to-objects to leave the objects where they are" if mark.cluster == cluster else "")
        )
    async for info in target.objects.list(""):
        raise UsageError(
            f"the target objects {target.location.objects} are not empty: there is {info.key}. Give an empty prefix for cluster "
            f"{cluster}"
        )


async def check_objects_of_attempt(target: MigrationEnd, cluster: str) -> None:
    """The same for the objects of an earlier attempt: they have the mark of that attempt, or are still empty."""
    mark, ours = await read_mark(target.objects), await _recorded_mark(target)
    if mark is None or mark.token != ours.token:
        await check_objects_empty(target, cluster)


class TargetRecord:
    """The record of a migration, as this run last wrote it. All writes to the target's store go through it."""

    def __init__(
        self,
        target: MigrationEnd,
        record: MigrationRecord,
        version: int,
        mark: OwnerMark,
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        self.record, self.mark = record, mark
        self._target, self._version, self._clock, self._random = target, version, clock, random

    @classmethod
    async def begin(
        cls,
        target: MigrationEnd,
        record: MigrationRecord,
        found: Entry | None,
        mark: OwnerMark,
        *,
        clock: Clock,
        random: Random,
    ) -> "TargetRecord":
        """Claim the target for this run. `found` is the record of an earlier one: its mark is kept if this one goes on with it."""
        if found is not None:
            before = await _recorded_mark(target)
            if decode_migration(found).token == record.token:
                mark = before
            else:  # the token stays: it tells the objects of this target from any others
                mark = msgspec.structs.replace(mark, number=max(mark.number, before.number + 1), token=before.token)
        made = cls(target, record, 0 if found is None else found.version, mark, clock=clock, random=random)
        marked = Put(RECORD_KEY, msgspec.json.encode(OwnerRecord(mark=mark)))
        # Later an identity may be there: a server of an earlier release gives itself one, before it is refused by the mark.
        absent = (Absent(IDENTITY_KEY), Absent(RECORD_KEY)) if found is None else ()
        await made._write(record, (marked,), absent)
        return made

    async def mark_objects(self, *, kept: bool = False) -> None:
        """Put the mark of the target's owner. `UsageError`: another cluster has claimed the objects meanwhile, and keeps them.

        `kept`: they are the source's, which may have taken them over from another cluster before.
        """
        key = mark_key(self.mark.number)
        await self._target.objects.put(key, [msgspec.json.encode(self.mark)])
        found = await read_mark(self._target.objects)
        marks = [] if kept else await read_marks(self._target.objects)
        others = [each.cluster for each in marks if each.cluster != self.mark.cluster]
        if found == self.mark and not others:
            return
        if found == self.mark:
            await self._target.objects.delete([key])  # else it would refuse the other cluster there
        there = others[0] if others else found.cluster if found else "unknown"
        raise UsageError(
            f"the target objects {self._target.location.objects} belong to cluster {there} since a moment ago; the source is "
            f"cluster {self.record.cluster}. Give an empty prefix"
        )

    async def update(self, record: MigrationRecord, *more: Operation) -> None:
        """Write the record, and more in the same commit. `FencedError`: a later run has taken over."""
        await self._write(record, more, ())

    async def apply(self, operations: Sequence[Operation]) -> None:
        """Other writes, fenced in the same way."""
        await self._commit((self._unchanged(),), operations)

    async def clear(self, *, page: int) -> None:
        """Remove the entries of an earlier attempt whose source has changed since. Nobody has served them."""
        kept = (MIGRATION_KEY, RECORD_KEY)
        start = FIRST_KEY
        while True:
            found = await self._target.store.scan(start, prefix_end(""), limit=min(page, 90) + len(kept))
            removed = [entry.key for entry in found.entries if entry.key not in kept]
            if not removed:
                return
            await self.apply([Delete(key) for key in removed])

    def _unchanged(self) -> Requirement:
        return AtVersion(MIGRATION_KEY, self._version) if self._version else Absent(MIGRATION_KEY)

    async def _write(self, record: MigrationRecord, more: Sequence[Operation], require: Sequence[Requirement]) -> None:
        put = Put(MIGRATION_KEY, msgspec.json.encode(record))
        self._version = await self._commit((self._unchanged(), *require), (put, *more))
        self.record = record

    async def _commit(self, require: Sequence[Requirement], apply: Sequence[Operation]) -> int:
        outcome = await commit_resolved(
            self._target.store,
            clock=self._clock,
            random=self._random,
            require=require,
            apply=apply,
            within_ms=_COMMIT_MS,
        )
        if isinstance(outcome, Committed):
            return outcome.version
        found = outcome.found.get(MIGRATION_KEY)
        current = 0 if found is None else decode_migration(found).epoch
        raise FencedError(f"the migration into {self._target.location.store}", self.record.epoch, current)


async def _recorded_mark(target: MigrationEnd) -> OwnerMark:
    entry = await target.store.get(RECORD_KEY)
    assert entry is not None, "it was written with the record"
    return msgspec.json.decode(entry.value, type=OwnerRecord).mark
