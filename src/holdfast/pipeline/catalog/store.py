"""PipelineStore: what may be done to the pipelines of a store: their editable parts, the revisions that workers run, generations.

The one rule: every write is one commit that requires the pipeline's record as it was read. Parts, the revision they form and the
pipeline's record are written together or not at all.

An editor may pass the version it saw: if that is outdated, nothing is written (`EditConflictError`). Saving the same again changes
nothing, so a request whose answer was lost may be repeated. What is read here holds secrets: see `secrets.redacted`.
"""

import logging
from collections.abc import Mapping
from typing import Final

import msgspec

from holdfast.contracts.store import Absent, AtVersion, Conflict, Delete, Put
from holdfast.pipeline.catalog import cleanup, edits, generations, stored_parts
from holdfast.pipeline.catalog.keys import deleted_key, name_key, pipeline_key, revision_key
from holdfast.pipeline.catalog.parts import Given, Part, read_parts
from holdfast.pipeline.catalog.records import CatalogChange, PipelineRecords
from holdfast.pipeline.catalog.revisions import compose
from holdfast.pipeline.catalog.secret_references import check_references
from holdfast.pipeline.catalog.stored_parts import StoredPart
from holdfast.pipeline.catalog.table_identity import table_label
from holdfast.pipeline.model.definition import (
    Generation,
    Pipeline,
    PipelineState,
    Revision,
    live_generation,
    registry_namespace,
)
from holdfast.pipeline.model.errors import (
    EditConflictError,
    NotReadyError,
    PipelineNameTakenError,
    UnknownPipelineError,
)
from holdfast.pipeline.model.query import chosen_engine, is_streaming, query_identity
from holdfast.registry.queries import fixed_source, fixed_starts, partitions_of
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import check_between

_log: Final = logging.getLogger(__name__)


class PipelineStore(PipelineRecords):
    """The pipelines of a store. Safe for many tasks and many processes."""

    # --- edits

    async def create(self, name: str, description: str = "") -> Pipeline:
        """Create a stopped pipeline without parts. `PipelineNameTakenError`."""
        named, now_ms = stored_parts.validated_name(name), self._clock.now_ms()
        if len(await self.list()) >= self.settings.pipelines_max:
            raise InvalidError(
                "number of pipelines", self.settings.pipelines_max + 1, f"at most {self.settings.pipelines_max}"
            )
        pipeline = Pipeline(
            id=self._random.token(),
            name=named,
            description=stored_parts.validated_description(description),
            created_at_ms=now_ms,
            updated_at_ms=now_ms,
        )
        owner = Put(name_key(named), msgspec.json.encode({"id": pipeline.id}))
        key = pipeline_key(pipeline.id)
        outcome = await self._commit([Absent(owner.key), Absent(key)], [owner, Put(key, msgspec.json.encode(pipeline))])
        if isinstance(outcome, Conflict):
            raise PipelineNameTakenError(named)
        _log.info("pipeline %s: created, id %s", pipeline.name, pipeline.id)
        return pipeline

    async def update(
        self, pipeline_id: str, *, name: str | None = None, description: str | None = None, expected: int | None = None
    ) -> Pipeline:
        """Change name or description. `expected` is the pipeline's version that the editor saw; see `EditConflictError`."""
        named = None if name is None else stored_parts.validated_name(name)
        text = None if description is None else stored_parts.validated_description(description)

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
        """Save one part. `expected` is the version of the part that the editor saw, 0 if there was none."""
        versions = {} if expected is None else {part: expected}
        pipeline, parts = await self.put_parts(pipeline_id, {part: given}, expected=versions)
        return pipeline, parts[part]

    async def put_parts(
        self, pipeline_id: str, given: Mapping[str, Given], *, expected: Mapping[str, int] | None = None
    ) -> tuple[Pipeline, dict[str, StoredPart]]:
        """Save some parts, all or none; with the other parts they form the next revision. All mistakes are reported at once.

        If the parts do not fit together, the pipeline's `problems` list why, and the last good revision stays in use.
        """
        checked = self._checked(given)
        saved: dict[str, StoredPart] = {}

        async def decide(pipeline: Pipeline) -> CatalogChange:
            before = await self._parts(pipeline_id)
            saved.update(edits.merged_parts(before, checked, expected or {}, self._clock.now_ms()))
            changed = {name: part for name, part in saved.items() if part is not before.get(name)}
            if not changed:
                return CatalogChange(pipeline)
            after = {name: part.value for name, part in {**before, **saved}.items()}
            write = await self._with_revision(pipeline, after)
            puts = [stored_parts.part_put(pipeline_id, part) for part in changed.values()]
            return CatalogChange(write.pipeline, write.require, [*puts, *write.apply])

        pipeline = await self._change(pipeline_id, decide)
        if pipeline.problems:
            _log.info(
                "pipeline %s: saved %s, incomplete: %s", pipeline.name, ", ".join(saved), "; ".join(pipeline.problems)
            )
        else:
            _log.info("pipeline %s: saved %s, revision %d", pipeline.name, ", ".join(saved), pipeline.revision)
        await cleanup.prune_revisions(self._store, pipeline, kept=self.settings.recipes_kept, commit=self._commit)
        return pipeline, {**await self._parts(pipeline_id), **saved}

    def _checked(self, given: Mapping[str, Given]) -> dict[str, Part]:
        checked = read_parts(given)
        for name, part in checked.items():
            check_references(name, part, self._references)
        return checked

    async def planned_parts(self, pipeline_id: str, given: Mapping[str, Given]) -> dict[str, StoredPart]:
        """All parts as they would be after `put_parts`. Nothing is saved."""
        checked, before = self._checked(given), await self._parts(pipeline_id)
        return {**before, **edits.merged_parts(before, checked, {}, self._clock.now_ms())}

    async def set_state(
        self,
        pipeline_id: str,
        *,
        desired: str | None = None,
        replicas: int | None = None,
        expected: int | None = None,
    ) -> Pipeline:
        """Start, stop or scale. None leaves a value as it is. `NotReadyError`: an incomplete pipeline cannot be started."""
        if desired not in (None, "started", "stopped"):
            raise InvalidError("desired", desired, "one of started, stopped")
        if replicas is not None:
            check_between("replicas", replicas, 1, self.settings.replicas_max)

        async def decide(pipeline: Pipeline) -> CatalogChange:
            if desired == "started" and pipeline.problems:
                raise NotReadyError("starting", pipeline.name, pipeline.problems)
            live = live_generation(pipeline)
            if desired == "started" and live is not None and live.brokers:
                raise NotReadyError("starting", pipeline.name, (_other_kafka(live),))
            state = PipelineState(
                desired=pipeline.state.desired if desired is None else desired,  # type: ignore[arg-type]
                replicas=pipeline.state.replicas if replicas is None else replicas,
            )
            return CatalogChange(msgspec.structs.replace(pipeline, state=state))

        pipeline = await self._change(pipeline_id, decide, expected)
        _log.info(
            "pipeline %s: desired state %s, revision %d, replicas %d",
            pipeline.name,
            pipeline.state.desired,
            pipeline.revision,
            pipeline.state.replicas,
        )
        return pipeline

    # --- generations

    async def rewind(
        self,
        pipeline_id: str,
        starts: Mapping[int, int],
        *,
        delete_previous: bool = False,
        partitions: int = 0,
        topic_id: str = "",
        expected: int | None = None,
    ) -> tuple[Pipeline, Generation]:
        """Retire the live generation and begin the next one at `starts`, by partition, of the topic with this id, which has
        `partitions` now."""

        async def decide(pipeline: Pipeline) -> CatalogChange:
            if not pipeline.revision:
                raise NotReadyError("rewinding", pipeline.name, pipeline.problems)
            revision = await self.revision(pipeline.id, pipeline.revision)
            after = generations.with_rewind(
                pipeline,
                starts,
                delete_previous=delete_previous,
                partitions=partitions,
                topic_id=topic_id,
                table=table_label(revision.sink),
            )
            return CatalogChange(generations.with_pruned_generations(after, self.settings.generations_max))

        pipeline = await self._change(pipeline_id, decide, expected)
        _log.info("pipeline %s: rewound, generation %d", pipeline.name, pipeline.generations[-1].number)
        return pipeline, pipeline.generations[-1]

    async def backfill(
        self,
        pipeline_id: str,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        *,
        topic_id: str = "",
        expected: int | None = None,
    ) -> tuple[Pipeline, Generation]:
        """Read [start, end) of some partitions again, beside the live generation and under a number of its own."""

        async def decide(pipeline: Pipeline) -> CatalogChange:
            if not pipeline.revision:
                raise NotReadyError("backfilling", pipeline.name, pipeline.problems)
            after = generations.with_backfill(
                pipeline, starts, ends, at_once_max=self.settings.backfills_max, topic_id=topic_id
            )
            return CatalogChange(generations.with_pruned_generations(after, self.settings.generations_max))

        pipeline = await self._change(pipeline_id, decide, expected)
        _log.info("pipeline %s: backfill, generation %d", pipeline.name, pipeline.generations[-1].number)
        return pipeline, pipeline.generations[-1]

    async def retire(self, pipeline_id: str, generation: int) -> Pipeline:
        """Retire a backfill that is done or cancelled. Idempotent."""

        async def decide(pipeline: Pipeline) -> CatalogChange:
            return CatalogChange(generations.with_retired(pipeline, generation))

        return await self._change(pipeline_id, decide)

    async def previous_deleted(self, pipeline_id: str, generation: int) -> Pipeline:
        """Record that the rows which a rewind replaces are deleted."""

        async def decide(pipeline: Pipeline) -> CatalogChange:
            return CatalogChange(generations.with_previous_deleted(pipeline, generation))

        return await self._change(pipeline_id, decide)

    # --- deletion

    async def delete(self, pipeline_id: str, *, expected: int | None = None) -> None:
        """Delete a stopped pipeline with its parts, revisions, progress and status. Its tables stay.

        `NotReadyError` while it is started, or a worker still owns a slot or a partition of it. One commit deletes the pipeline;
        its other keys are removed after that, by the next `sweep` if this process dies.
        """
        entry = await self._entry(pipeline_id)
        pipeline = stored_parts.pipeline_of(entry)
        edits.check_expected(f"pipeline {pipeline.name!r}", expected, pipeline.version)
        if pipeline.state.desired != "stopped":
            raise NotReadyError("deleting", pipeline.name, ("it is started: stop it first",))
        if owners := await cleanup.active_owners(self._store, pipeline_id):
            raise NotReadyError("deleting", pipeline.name, owners)
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
                f"pipeline {pipeline.name!r}", pipeline.version, stored_parts.pipeline_of(found).version
            )
        await cleanup.delete_keys(self._store, pipeline_id, commit=self._commit)
        _log.info("pipeline %s: deleted", pipeline.name)

    async def sweep(self) -> int:
        """Remove keys of deleted pipelines and clear retired generations; how many deleted pipelines there were."""
        for pipeline in await self.list():
            await self.clear_retired(pipeline)
        return await cleanup.sweep(self._store, commit=self._commit)

    async def clear_retired(self, pipeline: Pipeline) -> None:
        """Clear what dead owners left in retired generations. For any process, at any time."""
        await cleanup.clear_retired(self._store, pipeline, commit=self._commit)

    async def _with_revision(self, pipeline: Pipeline, parts: Mapping[str, Part]) -> CatalogChange:
        made = compose(parts, pipeline.revision + 1)
        if not isinstance(made, Revision):
            return CatalogChange(msgspec.structs.replace(pipeline, problems=made))
        value = stored_parts.revision_value(made, self._clock.now_ms())
        if len(value) > stored_parts.REVISION_BYTES_MAX:
            too_much = f"all parts: {len(value)} bytes exceed the limit of {stored_parts.REVISION_BYTES_MAX}"
            return CatalogChange(msgspec.structs.replace(pipeline, problems=(too_much,)))
        chosen = chosen_engine(made)
        after = msgspec.structs.replace(
            pipeline, revision=made.version, engine=chosen.engine, engine_reason=chosen.reason, problems=()
        )
        if pipeline.revision:
            last = await self.revision(pipeline.id, pipeline.revision)
            is_other = query_identity(last) != query_identity(made)
            if is_other or _has_other_brokers(last, made):
                if pipeline.state.desired != "stopped":
                    what = "query" if is_streaming(last) or is_streaming(made) else "source"
                    raise NotReadyError(f"changing the {what} of", pipeline.name, ("it is started: stop it first",))
                moved = generations.with_new_source(after) if is_other else await self._with_brokers(after, last, made)
                after = generations.with_pruned_generations(moved, self.settings.generations_max)
            after = generations.with_table(after, table_label(last.sink), table_label(made.sink))
        key = revision_key(pipeline.id, made.version)
        return CatalogChange(after, [Absent(key)], [Put(key, value)])

    async def _with_brokers(self, pipeline: Pipeline, last: Revision, made: Revision) -> Pipeline:
        identified: set[int] = set()
        begun = False
        for each in pipeline.generations:
            namespace = registry_namespace(pipeline.id, each.number)
            read = await fixed_source(self._store, namespace)
            if each.topic_id or (read is not None and read.topic_id):
                identified.add(each.number)
            if each == live_generation(pipeline):
                states = await partitions_of(self._store, namespace)
                moved = any(state.checkpoint or state.intent is not None for state in states)
                begun = bool(each.starts or read or moved or await fixed_starts(self._store, namespace))
        return generations.with_brokers(
            pipeline, last.source.brokers, made.source.brokers, begun=begun, identified=identified
        )


def _has_other_brokers(last: Revision, made: Revision) -> bool:
    return not is_streaming(made) and set(last.source.brokers) != set(made.source.brokers)


def _other_kafka(live: Generation) -> str:
    return (
        f"it has read from {', '.join(live.brokers)}, and no topic id tells whether its new brokers are of the same Kafka: "
        "rewind it, with an offset for every partition"
    )
