"""PipelineStore: the pipelines of a store, their parts as people edit them, and the recipes that work is done by.

The one rule: every write is one commit that requires the pipeline's record as it was judged. Parts, the recipe they make and the
pipeline's record are written together or not at all, so a crash between two commits never leaves a recipe that nobody saved.

An editor may say which version he saw: if somebody was faster, nothing is written and `EditConflictError` says so. Saving what is
saved already changes nothing, so a request whose answer was lost may be sent again. What is given to nobody is said in `secrets`.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.compare_and_swap import Swap, compare_and_swap
from holdfast.contracts.store import (
    Absent,
    AtVersion,
    Committed,
    Conflict,
    Delete,
    Entry,
    Operation,
    Put,
    Requirement,
    Store,
)
from holdfast.contracts.validation import prefix_end
from holdfast.pipeline.catalog import cleanup, edits, encoding, generations, watch
from holdfast.pipeline.catalog.encoding import StoredPart
from holdfast.pipeline.catalog.keys import PIPELINES, deleted_key, name_key, parts_prefix, pipeline_key, revision_key
from holdfast.pipeline.catalog.parts import Given, Part, read_parts
from holdfast.pipeline.catalog.revisions import compose
from holdfast.pipeline.catalog.settings import CatalogSettings
from holdfast.pipeline.model.definition import Generation, Pipeline, PipelineState, Revision
from holdfast.pipeline.model.errors import (
    EditConflictError,
    NotReadyError,
    PipelineNameTakenError,
    UnknownPipelineError,
)
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import check_between


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """What a change comes to: the pipeline as it will be, and what is committed beside it."""

    pipeline: Pipeline
    require: Sequence[Requirement] = ()
    apply: Sequence[Operation] = ()


class PipelineStore:
    """The pipelines of a store. Safe for many tasks and many processes."""

    def __init__(self, store: Store, *, clock: Clock, random: Random, settings: CatalogSettings | None = None) -> None:
        self.settings = settings or CatalogSettings()
        self._store, self._clock, self._random = store, clock, random

    # --- to look at

    async def get(self, pipeline_id: str) -> Pipeline:
        """The pipeline. `UnknownPipelineError`."""
        return encoding.pipeline_of(await self._entry(pipeline_id))

    async def find(self, id_or_name: str) -> Pipeline:
        """The pipeline of this id, or else of this name. `UnknownPipelineError`."""
        entry = await self._found(id_or_name)
        if entry is None and encoding.is_valid_name(id_or_name):
            named = await self._store.get(name_key(encoding.validated_name(id_or_name)))
            if named is not None:
                entry = await self._found(msgspec.json.decode(named.value, type=dict[str, str])["id"])
        if entry is None:
            raise UnknownPipelineError(id_or_name)
        return encoding.pipeline_of(entry)

    async def list(self) -> Sequence[Pipeline]:
        """Every pipeline, by name."""
        return encoding.pipelines_of((await self._store.scan(PIPELINES, prefix_end(PIPELINES))).entries)

    async def parts(self, pipeline_id: str) -> dict[str, StoredPart]:
        """The parts that were saved, by name, secrets and all."""
        await self._entry(pipeline_id)
        return await self._parts(pipeline_id)

    async def recipe(self, pipeline_id: str, version: int) -> Revision:
        """One version of a pipeline's recipe, secrets and all. `InvalidError` if it is not kept any more."""
        entry = await self._store.get(revision_key(pipeline_id, version)) if version > 0 else None
        if entry is None:
            pipeline = await self.get(pipeline_id)
            allowed = f"at most {pipeline.recipe}, and not one that was cleared away"
            raise InvalidError(f"recipe of pipeline {pipeline.name!r}", version, allowed)
        return encoding.revision_of(entry)

    async def watch(self) -> AsyncGenerator[Sequence[Pipeline], None]:
        """All pipelines now, and again after each commit that changed one. Close it (`contextlib.aclosing`).

        An unreachable store is waited for.
        """
        async with aclosing(watch.pipelines(self._store, clock=self._clock, random=self._random)) as seen:
            async for pipelines in seen:
                yield pipelines

    # --- to change

    async def create(self, name: str, description: str = "") -> Pipeline:
        """A new pipeline without parts, stopped. `PipelineNameTakenError`."""
        named, now_ms = encoding.validated_name(name), self._clock.now_ms()
        if len(await self.list()) >= self.settings.pipelines_max:
            raise InvalidError("number of pipelines", self.settings.pipelines_max + 1, f"{self.settings.pipelines_max}")
        pipeline = Pipeline(
            id=self._random.token(),
            name=named,
            description=encoding.validated_description(description),
            created_at_ms=now_ms,
            updated_at_ms=now_ms,
        )
        owner = Put(name_key(named), msgspec.json.encode({"id": pipeline.id}))
        key = pipeline_key(pipeline.id)
        outcome = await self._commit([Absent(owner.key), Absent(key)], [owner, Put(key, msgspec.json.encode(pipeline))])
        if isinstance(outcome, Conflict):
            raise PipelineNameTakenError(named)
        return pipeline

    async def update(
        self, pipeline_id: str, *, name: str | None = None, description: str | None = None, expected: int | None = None
    ) -> Pipeline:
        """Rename or describe. `expected` is the pipeline's version the editor saw; see `EditConflictError`."""
        named = None if name is None else encoding.validated_name(name)
        text = None if description is None else encoding.validated_description(description)

        async def decide(pipeline: Pipeline) -> CatalogChange:
            after = msgspec.structs.replace(
                pipeline,
                name=pipeline.name if named is None else named,
                description=pipeline.description if text is None else text,
            )
            old, new = name_key(pipeline.name), name_key(after.name)
            if old == new:
                return CatalogChange(after)
            if await self._store.get(new) is not None:
                raise PipelineNameTakenError(after.name)
            owner = Put(new, msgspec.json.encode({"id": pipeline.id}))
            return CatalogChange(after, [Absent(new)], [owner, Delete(old)])

        return await self._change(pipeline_id, decide, expected)

    async def put_part(
        self, pipeline_id: str, part: str, given: Given, *, expected: int | None = None
    ) -> tuple[Pipeline, StoredPart]:
        """Save one part. `expected` is the version of the part the editor saw, 0 if there was none."""
        versions = {} if expected is None else {part: expected}
        pipeline, parts = await self.put_parts(pipeline_id, {part: given}, expected=versions)
        return pipeline, parts[part]

    async def put_parts(
        self, pipeline_id: str, given: Mapping[str, Given], *, expected: Mapping[str, int] | None = None
    ) -> tuple[Pipeline, dict[str, StoredPart]]:
        """Save some parts at once; all or none. Together with those saved before they become the next recipe, if they can.

        If they cannot, the pipeline's `problems` say why, and the last good recipe stays the one that is worked by.
        """
        checked = read_parts(given)
        saved: dict[str, StoredPart] = {}

        async def decide(pipeline: Pipeline) -> CatalogChange:
            before = await self._parts(pipeline_id)
            saved.update(edits.merged_parts(before, checked, expected or {}, self._clock.now_ms()))
            changed = {name: part for name, part in saved.items() if part is not before.get(name)}
            if not changed:
                return CatalogChange(pipeline)
            after = {name: part.value for name, part in {**before, **saved}.items()}
            write = await self._with_revision(pipeline, after)
            puts = [encoding.part_put(pipeline_id, part) for part in changed.values()]
            return CatalogChange(write.pipeline, write.require, [*puts, *write.apply])

        pipeline = await self._change(pipeline_id, decide)
        await cleanup.prune_revisions(self._store, pipeline, kept=self.settings.recipes_kept, commit=self._commit)
        return pipeline, {**await self._parts(pipeline_id), **saved}

    async def set_state(
        self,
        pipeline_id: str,
        *,
        desired: str | None = None,
        replicas: int | None = None,
        expected: int | None = None,
    ) -> Pipeline:
        """Start, stop or scale. What is not given stays. A start is refused while the pipeline is not complete: `NotReadyError`."""
        if desired not in (None, "started", "stopped"):
            raise InvalidError("desired", desired, "started or stopped")
        if replicas is not None:
            check_between("replicas", replicas, 1, self.settings.replicas_max)

        async def decide(pipeline: Pipeline) -> CatalogChange:
            if desired == "started" and pipeline.problems:
                raise NotReadyError("starting", pipeline.name, pipeline.problems)
            state = PipelineState(
                desired=pipeline.state.desired if desired is None else desired,  # type: ignore[arg-type]
                replicas=pipeline.state.replicas if replicas is None else replicas,
            )
            return CatalogChange(msgspec.structs.replace(pipeline, state=state))

        return await self._change(pipeline_id, decide, expected)

    # --- generations

    async def rewind(
        self,
        pipeline_id: str,
        starts: Mapping[int, int],
        *,
        delete_previous: bool = False,
        expected: int | None = None,
    ) -> tuple[Pipeline, Generation]:
        """Retire the live generation and begin the next one at `starts`, by partition."""

        async def decide(pipeline: Pipeline) -> CatalogChange:
            if not pipeline.recipe:
                raise NotReadyError("rewinding", pipeline.name, pipeline.problems)
            after = generations.rewound(pipeline, starts, delete_previous=delete_previous)
            return CatalogChange(generations.bounded(after, self.settings.generations_max))

        pipeline = await self._change(pipeline_id, decide, expected)
        return pipeline, pipeline.generations[-1]

    async def backfill(
        self, pipeline_id: str, starts: Mapping[int, int], ends: Mapping[int, int], *, expected: int | None = None
    ) -> tuple[Pipeline, Generation]:
        """Read [start, end) of some partitions again, beside the live generation and under a number of its own."""

        async def decide(pipeline: Pipeline) -> CatalogChange:
            if not pipeline.recipe:
                raise NotReadyError("backfilling", pipeline.name, pipeline.problems)
            after = generations.backfilled(pipeline, starts, ends, at_once_max=self.settings.backfills_max)
            return CatalogChange(generations.bounded(after, self.settings.generations_max))

        pipeline = await self._change(pipeline_id, decide, expected)
        return pipeline, pipeline.generations[-1]

    async def retire(self, pipeline_id: str, generation: int) -> Pipeline:
        """A backfill is done, or given up: nothing more is planned for it. To retire twice is to retire once."""

        async def decide(pipeline: Pipeline) -> CatalogChange:
            return CatalogChange(generations.retired(pipeline, generation))

        return await self._change(pipeline_id, decide)

    async def previous_deleted(self, pipeline_id: str, generation: int) -> Pipeline:
        """The rows that a rewind was to delete are gone."""

        async def decide(pipeline: Pipeline) -> CatalogChange:
            return CatalogChange(generations.cleaned(pipeline, generation))

        return await self._change(pipeline_id, decide)

    # --- the end

    async def delete(self, pipeline_id: str, *, expected: int | None = None) -> None:
        """Remove a stopped pipeline with its parts, recipes, progress and status. Its tables stay.

        Refused (`NotReadyError`) while it is started or a worker still has a slot or a partition of it. The pipeline goes by one
        commit; what it leaves behind goes after that, or with the next `sweep` if this process dies before.
        """
        entry = await self._entry(pipeline_id)
        pipeline = encoding.pipeline_of(entry)
        edits.check_expected(f"pipeline {pipeline.name!r}", expected, pipeline.version)
        if pipeline.state.desired != "stopped":
            raise NotReadyError("deleting", pipeline.name, ("it is started: stop it first",))
        if busy := await cleanup.active_owners(self._store, pipeline_id):
            raise NotReadyError("deleting", pipeline.name, busy)
        outcome = await self._commit(
            [AtVersion(entry.key, entry.version)],
            [
                Delete(entry.key),
                Delete(name_key(pipeline.name)),
                Put(deleted_key(pipeline_id), msgspec.json.encode({"name": pipeline.name})),
            ],
        )
        if isinstance(outcome, Conflict):
            found = outcome.found[entry.key]
            if found is None:
                raise UnknownPipelineError(pipeline_id)
            raise EditConflictError(
                f"pipeline {pipeline.name!r}", pipeline.version, encoding.pipeline_of(found).version
            )
        await cleanup.delete_keys(self._store, pipeline_id, commit=self._commit)

    async def sweep(self) -> int:
        """Remove what deleted pipelines and retired generations left behind; how many deleted pipelines there were."""
        for pipeline in await self.list():
            await cleanup.clear_intents(self._store, pipeline, commit=self._commit)
        return await cleanup.sweep(self._store, commit=self._commit)

    # --- how

    async def _change(
        self, pipeline_id: str, decide: Callable[[Pipeline], Awaitable[CatalogChange]], expected: int | None = None
    ) -> Pipeline:
        """Commit what `decide` returns for the pipeline, deciding again whenever another change came first."""

        async def swap(entry: Entry | None) -> Swap[Pipeline]:
            if entry is None:
                raise UnknownPipelineError(pipeline_id)
            before = encoding.pipeline_of(entry)
            write = await decide(before)
            if write.pipeline == before and not write.apply:
                return Swap(before)
            edits.check_expected(f"pipeline {before.name!r}", expected, before.version)
            after = msgspec.structs.replace(
                write.pipeline, version=before.version + 1, updated_at_ms=self._clock.now_ms()
            )
            return Swap(after, [Put(entry.key, encoding.pipeline_value(after)), *write.apply], write.require)

        known = await self._entry(pipeline_id)
        pipeline, _ = await compare_and_swap(
            self._store, known.key, swap, clock=self._clock, random=self._random, known=known
        )
        return pipeline

    async def _with_revision(self, pipeline: Pipeline, parts: Mapping[str, Part]) -> CatalogChange:
        made = compose(parts, pipeline.recipe + 1)
        if not isinstance(made, Revision):
            return CatalogChange(msgspec.structs.replace(pipeline, problems=made))
        value = encoding.revision_value(made, self._clock.now_ms())
        if len(value) > encoding.REVISION_BYTES_MAX:
            too_much = f"all parts together: {len(value)} bytes, and at most {encoding.REVISION_BYTES_MAX} can be kept"
            return CatalogChange(msgspec.structs.replace(pipeline, problems=(too_much,)))
        after = msgspec.structs.replace(pipeline, recipe=made.version, problems=())
        if pipeline.recipe:
            last = await self.recipe(pipeline.id, pipeline.recipe)
            if (last.source.topic, last.source.brokers) != (made.source.topic, made.source.brokers):
                if pipeline.state.desired != "stopped":
                    raise NotReadyError("changing the source of", pipeline.name, ("it is started: stop it first",))
                after = generations.bounded(generations.moved(after), self.settings.generations_max)
        key = revision_key(pipeline.id, made.version)
        return CatalogChange(after, [Absent(key)], [Put(key, value)])

    async def _parts(self, pipeline_id: str) -> dict[str, StoredPart]:
        prefix = parts_prefix(pipeline_id)
        scan = await self._store.scan(prefix, prefix_end(prefix))
        found = (encoding.part_of(entry) for entry in scan.entries)
        return {part.name: part for part in found if part is not None}

    async def _entry(self, pipeline_id: str) -> Entry:
        entry = await self._found(pipeline_id)
        if entry is None:
            raise UnknownPipelineError(pipeline_id)
        return entry

    async def _found(self, pipeline_id: str) -> Entry | None:
        plain = pipeline_id.isascii() and pipeline_id.isalnum() and len(pipeline_id) <= 64
        return await self._store.get(pipeline_key(pipeline_id)) if plain else None

    async def _commit(self, require: Sequence[Requirement], apply: Sequence[Operation]) -> Committed | Conflict:
        return await commit_resolved(self._store, clock=self._clock, random=self._random, require=require, apply=apply)
