"""The steps of a migration, in the order that makes each of them safe to be the last one before a crash.

    1  look             the source is stopped, its objects are its own, the target is empty or ours
    2  claim the target cluster/migration and the owner's mark, then the mark in its objects: no other cluster can take it
    3  close the source cluster/moved: no member registers any more. Then look for sessions again: whoever came in between is
                        found, and the source is opened again. Then every lease's epoch is raised, and nobody can acquire it any
                        more; every claim of a registry is released: what a suspended holder has not sent yet is refused, and it
                        cannot begin again, of whatever release it is. Then the mark in its objects, which no release starts with
    4  objects          copied and verified
    5  entries          copied
    6  verify           every entry of both ends; every object listed at both
    7  finish           the source's record says so, by compare-and-swap: an operator who has opened the source again wins. Then one
                        commit gives the target its identity, and it may serve

If the objects stay where they are (both ends have the same), steps 2 to 4 leave them alone, and the target's mark is put after the
source is closed: it is what refuses the source there.

Run again, it goes on where it was. Until step 7 the target refuses every server, from step 3 on the source does.
"""

from dataclasses import replace
from typing import Final

import msgspec

from holdfast.app.migration.entry_copy import SourceChangedError, copy_entries, verify_entries
from holdfast.app.migration.inventory import Inventory, check_stopped, look_at_entries, take_inventory
from holdfast.app.migration.model import MigrationEnd, MigrationProgress, MigrationReport, MigrationSettings, OnProgress
from holdfast.app.migration.object_copy import ObjectCopy
from holdfast.app.migration.target import (
    TargetRecord,
    check_objects_empty,
    check_objects_of_attempt,
    check_store_empty,
    found_record,
)
from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import Absent, AtVersion, Committed, Delete, Entry, Put, Requirement
from holdfast.kernel.cluster_identity import identity_put, read_cluster_identity
from holdfast.kernel.cluster_move import (
    MIGRATION_KEY,
    MOVED_KEY,
    ClusterMovedError,
    CopyProgress,
    MigrationRecord,
    MovedRecord,
    decode_migration,
    decode_moved,
)
from holdfast.kernel.lease_fencing import fence_all_leases
from holdfast.kernel.objects_owner import RECORD_KEY, SKEW_MS, ObjectsOwner, OwnerRecord, OwnerView
from holdfast.kernel.owner_mark import OwnerMark, Ownership, TimeSpan, merge_spans
from holdfast.registry.claim_fencing import release_all_claims
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UsageError
from holdfast.vocabulary.random import Random

_MARK_GAP: Final = 2  # the mark at the source that says it was left comes in between


class Migration:
    """One run of `holdfast migrate`."""

    def __init__(
        self,
        source: MigrationEnd,
        target: MigrationEnd,
        *,
        clock: Clock,
        random: Random,
        settings: MigrationSettings,
        on_progress: OnProgress,
    ) -> None:
        self._source, self._target = source, target
        self._clock, self._random, self._settings = clock, random, settings
        self._on_progress = on_progress
        self._keeps_objects = source.objects is target.objects
        self._cluster = ""
        self._found = Inventory()

    async def run(self, *, dry_run: bool = False) -> MigrationReport:
        """Move the cluster, or, in a dry run, say what would be moved. `UsageError`: it may not be moved now, and why."""
        moved, earlier, view = await self._look()
        if earlier is not None and decode_migration(earlier).finished:
            return self._report(decode_migration(earlier), finished=True)
        if dry_run:
            return replace(self._report(None), dry_run=True)
        record = await self._claim_target(moved, earlier, view)
        await self._close_source(record)
        objects, sent = await self._copy_objects(record)
        copied = await self._copy_entries(record)
        entries = await self._verify(record)
        await self._finish(record, view)
        await failpoints.reached_async("migrate.finished")
        return replace(
            self._report(record.record, finished=True),
            objects=objects.count,
            object_bytes=objects.bytes,
            objects_digest=objects.digest,
            entries=entries.count,
            entry_bytes=entries.bytes,
            entries_digest=entries.digest,
            copied_objects=sent,
            copied_entries=copied,
        )

    # --- 1

    async def _look(self) -> tuple[MovedRecord | None, Entry | None, OwnerView]:
        source, target = self._source, self._target
        self._cluster = await read_cluster_identity(source.store)
        if not self._cluster:
            raise UsageError(
                f"there is no cluster in {source.location.store}: give the --store and --objects (or the --data) of the servers "
                "that you want to move"
            )
        arriving = await source.store.get(MIGRATION_KEY)
        if arriving is not None and not decode_migration(arriving).finished:
            raise ClusterMovedError(moved=None, migration=decode_migration(arriving))
        entry = await source.store.get(MOVED_KEY)
        moved = None if entry is None else decode_moved(entry)
        view = await self._source_owner().view()
        earlier = await self._earlier(moved)
        if earlier is None:
            await check_store_empty(target, self._cluster)
            if not self._keeps_objects:
                await check_objects_empty(target, self._cluster)
        elif decode_migration(earlier).finished:
            return moved, earlier, view
        elif not self._keeps_objects:
            await check_objects_of_attempt(target, self._cluster)
        self._check_owner(view, moved)
        self._on_progress(MigrationProgress("inventory", 0, 0, 0, 0))
        self._found = found = await take_inventory(
            source, self._cluster, page=self._settings.page, with_objects=not self._keeps_objects
        )
        counted, size = found.entries + found.objects, found.entry_bytes + found.object_bytes
        self._on_progress(MigrationProgress("inventory", counted, counted, size, size))
        check_stopped(found)
        return moved, earlier, view

    async def _earlier(self, moved: MovedRecord | None) -> Entry | None:
        """The record of an earlier run with this source and target. `UsageError`: the target is another migration's."""
        entry = await found_record(self._target)
        record = None if entry is None else decode_migration(entry)
        if moved is not None and (record is None or record.token != moved.token):
            raise ClusterMovedError(moved=moved, migration=None)
        if record is not None and moved is None and (record.cluster != self._cluster or record.finished):
            raise UsageError(
                f"the target store {self._target.location.store} is not empty: cluster {record.cluster} "
                f"{'has moved' if record.finished else 'is being moved'} there from {record.origin}; the source is cluster "
                f"{self._cluster}. Give an empty database, schema or prefix"
            )
        return entry

    def _check_owner(self, view: OwnerView, moved: MovedRecord | None) -> None:
        left = moved is not None and view.ownership is (
            Ownership.STORE_BEHIND if self._keeps_objects else Ownership.MOVED
        )
        begun = view.ownership is Ownership.BEGUN and view.found is not None
        if view.ownership is not Ownership.OURS and not begun and not left:
            raise self._source_owner().refusal(view)

    def _source_owner(self) -> ObjectsOwner:
        return ObjectsOwner(
            self._source.store,
            self._source.objects,
            cluster=self._cluster,
            clock=self._clock,
            random=self._random,
            place=self._source.location.objects,
        )

    # --- 2, 3

    async def _claim_target(self, moved: MovedRecord | None, earlier: Entry | None, view: OwnerView) -> TargetRecord:
        before = None if earlier is None else decode_migration(earlier)
        same = before is not None and moved is not None and before.token == moved.token
        now_ms = self._clock.now_ms()
        record = MigrationRecord(
            token=moved.token if moved is not None else self._random.token(),
            epoch=1 if before is None else before.epoch + 1,
            cluster=self._cluster,
            origin=self._source.location,
            at_ms=before.at_ms if before is not None else now_ms,
            closed_at=before.closed_at if same and before is not None else 0,
            objects=before.objects if same and before is not None else CopyProgress(),
            entries=before.entries if same and before is not None else CopyProgress(),
        )
        recorded = view.recorded
        assert recorded is not None, "its owner was checked"
        mark = OwnerMark(
            cluster=self._cluster,
            number=recorded.number + _MARK_GAP,
            token=self._random.token(),
            store_version=(await self._target.store.scan(RECORD_KEY, RECORD_KEY + " ")).version,
            at_ms=now_ms,
        )
        claimed = await TargetRecord.begin(self._target, record, earlier, mark, clock=self._clock, random=self._random)
        await failpoints.reached_async("migrate.claimed")
        if not self._keeps_objects:
            await claimed.mark_objects()
        await failpoints.reached_async("migrate.target-marked")
        return claimed

    async def _close_source(self, target: TargetRecord) -> None:
        """Close the source for members, and for whatever holders of its leases have not sent yet."""
        store, token = self._source.store, target.record.token
        record = MovedRecord(token=token, to=self._target.location, at_ms=self._clock.now_ms())
        outcome = await commit_resolved(
            store,
            clock=self._clock,
            random=self._random,
            require=(Absent(MOVED_KEY),),
            apply=(Put(MOVED_KEY, msgspec.json.encode(record)),),
        )
        entry = await self._closed(token)
        await failpoints.reached_async("migrate.source-closed")
        try:
            check_stopped(await look_at_entries(store, page=self._settings.page))
        except UsageError:
            if isinstance(outcome, Committed):
                reopen = (AtVersion(MOVED_KEY, entry.version),)
                await commit_resolved(
                    store, clock=self._clock, random=self._random, require=reopen, apply=(Delete(MOVED_KEY),)
                )
            raise
        if not target.record.closed_at:

            async def closed() -> Requirement:
                return AtVersion(MOVED_KEY, (await self._closed(token)).version)

            await fence_all_leases(store, closed=closed, clock=self._clock, random=self._random)
            closed_at = await release_all_claims(store, clock=self._clock, random=self._random)
            await failpoints.reached_async("migrate.leases-fenced")
            await target.update(msgspec.structs.replace(target.record, closed_at=closed_at))
        if self._keeps_objects:
            await target.mark_objects(kept=True)
        else:
            await self._source_owner().leave(moved_to=str(self._target.location), token=token)
        await failpoints.reached_async("migrate.source-marked")

    async def _closed(self, token: str) -> Entry:
        """The record that closes the source. `UsageError`: somebody has opened it again, or moves it elsewhere."""
        entry = await self._source.store.get(MOVED_KEY)
        if entry is None:
            raise UsageError(
                "the source was opened again while it was copied: run this again once its servers are stopped"
            )
        if decode_moved(entry).token != token:
            raise ClusterMovedError(moved=decode_moved(entry), migration=None)
        return entry

    # --- 4, 5, 6

    async def _copy_objects(self, record: TargetRecord) -> tuple[CopyProgress, int]:
        if self._keeps_objects:
            return CopyProgress(), 0

        async def save(progress: CopyProgress) -> None:
            await record.update(msgspec.structs.replace(record.record, objects=progress))
            await failpoints.reached_async("migrate.objects-recorded")

        copy = ObjectCopy(
            self._source.objects,
            self._target.objects,
            self._cluster,
            clock=self._clock,
            settings=self._settings,
            record=save,
            on_done=lambda done: self._show("objects", done, self._found.objects, self._found.object_bytes),
        )
        progress = record.record.objects
        if not progress.complete:
            progress = await copy.run(progress)
        if await copy.settle():
            # The chain is over what is there in the end: objects that came or went since are read once more.
            progress = await copy.run(CopyProgress())
        progress = msgspec.structs.replace(progress, complete=True)
        await save(progress)
        return progress, copy.sent

    async def _copy_entries(self, record: TargetRecord) -> int:
        before = record.record.entries
        if before.complete:
            return 0
        if not before.after:
            await record.clear(page=self._settings.page)
        progress = await copy_entries(
            self._source.store,
            record,
            before,
            settings=self._settings,
            on_done=lambda done: self._show("entries", done, self._found.entries, self._found.entry_bytes),
        )
        await record.update(
            msgspec.structs.replace(record.record, entries=msgspec.structs.replace(progress, complete=True))
        )
        await failpoints.reached_async("migrate.entries-copied")
        return progress.count - before.count

    async def _verify(self, record: TargetRecord) -> CopyProgress:
        try:
            verified = await verify_entries(
                self._source.store,
                self._target.store,
                closed_at=record.record.closed_at,
                settings=self._settings,
                on_done=lambda done: self._show("verify", done, self._found.entries, self._found.entry_bytes),
            )
        except SourceChangedError:
            await record.update(msgspec.structs.replace(record.record, entries=CopyProgress()))  # copied anew next time
            raise
        await failpoints.reached_async("migrate.verified")
        return verified

    # --- 7

    async def _finish(self, record: TargetRecord, view: OwnerView) -> None:
        entry = await self._closed(record.record.token)
        finished = msgspec.structs.replace(decode_moved(entry), finished=True)
        if not decode_moved(entry).finished:
            outcome = await commit_resolved(
                self._source.store,
                clock=self._clock,
                random=self._random,
                require=(AtVersion(MOVED_KEY, entry.version),),
                apply=(Put(MOVED_KEY, msgspec.json.encode(finished)),),
            )
            if not isinstance(outcome, Committed):
                await self._closed(record.record.token)  # says so if it was opened
        await failpoints.reached_async("migrate.decided")
        now_ms = self._clock.now_ms()
        # Copies are as old as this migration: nobody can tell any more which of them the source's store would not vouch for. Of
        # objects that stay, it vouches for those from before its last mark.
        assert view.record is not None
        since_ms = view.record.mark.at_ms if self._keeps_objects else record.record.at_ms
        spans = (*view.record.unproven, TimeSpan(since_ms - SKEW_MS, now_ms + SKEW_MS))
        owner = OwnerRecord(mark=record.mark, unproven=merge_spans(spans))
        await record.update(
            msgspec.structs.replace(record.record, finished_at_ms=now_ms),
            identity_put(self._cluster),
            Put(RECORD_KEY, msgspec.json.encode(owner)),
        )

    def _show(self, stage: str, done: CopyProgress, total: int, bytes_total: int) -> None:
        self._on_progress(
            MigrationProgress(stage, done.count, max(total, done.count), done.bytes, max(bytes_total, done.bytes))
        )

    def _report(self, record: MigrationRecord | None, *, finished: bool = False) -> MigrationReport:
        """What the inventory found, or, of a migration that is finished, what its record says."""
        done = record if record is not None and record.finished else None
        return MigrationReport(
            cluster=self._cluster,
            origin=self._source.location,
            to=self._target.location,
            entries=self._found.entries if done is None else done.entries.count,
            entry_bytes=self._found.entry_bytes if done is None else done.entries.bytes,
            entries_digest="" if done is None else done.entries.digest,
            objects=self._found.objects if done is None else done.objects.count,
            object_bytes=self._found.object_bytes if done is None else done.objects.bytes,
            objects_digest="" if done is None else done.objects.digest,
            unpublished=tuple(self._found.unpublished),
            finished=finished,
        )
