"""Rewinds and backfills, and the deletion of rows that a rewind replaces.

Which offsets a position means and when rows may be deleted is decided in `rewind_rules`; they are deleted by `row_deletion`.
"""

from collections.abc import Sequence

from holdfast.contracts.store import Store
from holdfast.pipeline.catalog import cleanup
from holdfast.pipeline.catalog.store import PipelineStore
from holdfast.pipeline.mapping.ddl import KEEPS_LAST_INSERT, keeps_last_insert
from holdfast.pipeline.model.definition import (
    EARLIEST,
    LATEST,
    ClickHouseConfig,
    Generation,
    Pipeline,
    Revision,
    active_generations,
    live_generation,
    registry_namespace,
)
from holdfast.pipeline.model.errors import NotReadyError
from holdfast.pipeline.model.query import is_streaming
from holdfast.pipeline.service import rewind_rules
from holdfast.pipeline.service.connections import ServerConnections
from holdfast.pipeline.service.dead_letters import DeadLetterService
from holdfast.pipeline.service.rewind_rules import Position
from holdfast.pipeline.service.row_deletion import ReplacedRows, delete_rows
from holdfast.pipeline.service.status import partitions_of
from holdfast.registry import PartitionState
from holdfast.registry.queries import fixed_source, fixed_starts


class Reprocessing:
    """Rewinds and backfills of the pipelines of one catalog."""

    def __init__(
        self, store: Store, catalog: PipelineStore, connections: ServerConnections, dead_letters: DeadLetterService
    ) -> None:
        self._store, self._catalog, self._connections = store, catalog, connections
        self._dead_letters = dead_letters

    async def rewind(
        self, pipeline_id: str, to: Position, *, delete_previous: bool = False, expected: int | None = None
    ) -> tuple[Pipeline, Generation]:
        """Read again from `to`, as a new live generation. Partitions without an offset continue where they are.

        With `delete_previous`, rows of older generations from there on are deleted once the new one has passed them.
        """
        pipeline, revision = await self._revision(pipeline_id, "rewinding")
        if is_streaming(revision):
            return await self._rewind_query(pipeline, revision, to, delete_previous=delete_previous, expected=expected)
        if delete_previous:
            _check_deletes(pipeline, revision)
        topic_id, (starts, bounds) = await self._connections.topic(
            revision.source,
            # The id first: offsets of a topic that is recreated in between are then refused, not taken for the new one's.
            lambda topic: (topic.topic_id(), rewind_rules.resolve(topic, to)),
        )
        old = live_generation(pipeline)
        progress: Sequence[PartitionState] = []
        begun_at: dict[int, int] = {}
        if old is not None:
            progress = await partitions_of(self._store, pipeline.id, old.number)
            begun_at = await self._begun_at(pipeline.id, old)
            kept = len(starts) < len(bounds)
            rewind_rules.check_same_topic(
                pipeline,
                await fixed_source(self._store, registry_namespace(pipeline.id, old.number)),
                topic_id,
                kept=kept,
                delete_previous=delete_previous,
            )
            rewind_rules.check_same_brokers(pipeline, old, kept=kept, delete_previous=delete_previous)
        owners = await cleanup.active_owners(self._store, pipeline.id)
        complete = rewind_rules.complete(pipeline, starts, bounds, progress, begun_at, owners)
        seen = pipeline.version if expected is None and len(starts) < len(bounds) else expected
        return await self._catalog.rewind(
            pipeline.id,
            complete,
            delete_previous=delete_previous,
            partitions=len(bounds),
            topic_id=topic_id,
            expected=seen,
        )

    async def _rewind_query(
        self, pipeline: Pipeline, revision: Revision, to: Position, *, delete_previous: bool, expected: int | None
    ) -> tuple[Pipeline, Generation]:
        """A query begins anew, with empty state. With several sources only where each is configured to start."""
        if delete_previous:
            why = "deletePrevious cannot be combined with a query: delete rows by their _generation"
            raise NotReadyError("rewinding", pipeline.name, (why,))
        owners = await cleanup.active_owners(self._store, pipeline.id)
        if pipeline.state.desired != "stopped" or owners:
            raise NotReadyError("rewinding", pipeline.name, ("a query is rewound while it is stopped", *owners))
        if len(revision.query.sources) > 1:
            if to != EARLIEST:
                why = "a query over several sources starts where each source's start says: rewind it to earliest"
                raise NotReadyError("rewinding", pipeline.name, (why,))
            return await self._catalog.rewind(pipeline.id, {}, expected=expected)
        topic_id, (starts, bounds) = await self._connections.topic(
            revision.source, lambda topic: (topic.topic_id(), rewind_rules.resolve(topic, to))
        )
        if len(starts) < len(bounds):
            raise NotReadyError(
                "rewinding", pipeline.name, ("a query begins anew: give an offset for every partition",)
            )
        return await self._catalog.rewind(
            pipeline.id, starts, partitions=len(bounds), topic_id=topic_id, expected=expected
        )

    async def backfill(
        self, pipeline_id: str, start: Position, end: Position = LATEST, *, expected: int | None = None
    ) -> tuple[Pipeline, Generation]:
        """Read [start, end) again beside the live generation, under a number of its own."""
        pipeline, revision = await self._revision(pipeline_id, "backfilling")
        if is_streaming(revision):
            why = "a query keeps state over all its records: rewind it, into another table if the old rows should stay"
            raise NotReadyError("backfilling", pipeline.name, (why,))
        if isinstance(revision.sink, ClickHouseConfig) and keeps_last_insert(revision.sink):
            raise NotReadyError("backfilling", pipeline.name, (KEEPS_LAST_INSERT,))
        topic_id, (starts, _) = await self._connections.topic(
            revision.source, lambda topic: (topic.topic_id(), rewind_rules.resolve(topic, start))
        )
        ends, _ = await self._connections.topic(revision.source, lambda topic: rewind_rules.resolve(topic, end))
        return await self._catalog.backfill(
            pipeline.id, *rewind_rules.ranges(starts, ends), topic_id=topic_id, expected=expected
        )

    async def cancel_backfill(self, pipeline_id: str, generation: int) -> Pipeline:
        """End a backfill before it is done. Its rows stay."""
        return await self._catalog.retire(pipeline_id, generation)

    async def delete_replaced(self, pipeline: Pipeline) -> str:
        """Delete the rows that the live generation replaces, or return why not yet. Empty: nothing is left to do."""
        fresh = live_generation(pipeline)
        if fresh is None or not fresh.delete_previous:
            return ""
        revision = await self._catalog.revision(pipeline.id, pipeline.revision)
        if not isinstance(revision.sink, ClickHouseConfig):
            return "the sink is no longer ClickHouse"
        if moved := rewind_rules.changed_table(fresh):
            return moved
        before = await self._older(pipeline, fresh, revision)
        now = await partitions_of(self._store, pipeline.id, fresh.number)
        active = {each.number for each in active_generations(pipeline)}
        verdict = rewind_rules.may_delete(fresh, now, before, active)
        if not verdict.ready:
            return verdict.why
        rows = ReplacedRows(
            pipeline_id=pipeline.id,
            database=revision.sink.database or "default",
            table=revision.sink.table,
            topic=revision.source.topic,
            fresh=fresh,
            partitions={number: [state.id for state in states] for number, states in before.items()},
            cluster=revision.sink.cluster,
        )
        replays = await self._dead_letters.steps_begun(pipeline.id)
        why = await self._connections.clickhouse(
            revision.sink,
            lambda connection: delete_rows(rows, connection),
            timeout_ms=self._connections.settings.delete_timeout_ms,
        )
        if why:
            return why
        # No dead letter of them is left, so a replay that begins now finds nothing; one that has read some may still write rows.
        if await self._dead_letters.end_step(pipeline.id, before.keys()):
            return "a replay of dead letters was under way, and is ended"
        if await self._dead_letters.steps_begun(pipeline.id) != replays:
            return "dead letters were replayed in the meantime"
        await self._catalog.previous_deleted(pipeline.id, fresh.number)
        return ""

    async def _older(
        self, pipeline: Pipeline, fresh: Generation, revision: Revision
    ) -> dict[int, Sequence[PartitionState]]:
        """The progress of older generations that read the same topic."""
        replaced: dict[int, Sequence[PartitionState]] = {}
        older = [each for each in pipeline.generations if each.number < fresh.number and not each.brokers]
        for number in [each.number for each in older]:
            read = await fixed_source(self._store, registry_namespace(pipeline.id, number))
            if rewind_rules.is_same_topic(read, revision.source.topic, fresh.topic_id):
                replaced[number] = await partitions_of(self._store, pipeline.id, number)
        return replaced

    async def _begun_at(self, pipeline_id: str, generation: Generation) -> dict[int, int]:
        """Start offsets of a generation: as given, or as their first owner resolved them (`driver.start_offsets`)."""
        found = await fixed_starts(self._store, registry_namespace(pipeline_id, generation.number))
        return {**found, **{int(number): offset for number, offset in generation.starts.items()}}

    async def _revision(self, pipeline_id: str, what: str) -> tuple[Pipeline, Revision]:
        pipeline = await self._catalog.get(pipeline_id)
        if not pipeline.revision:
            raise NotReadyError(what, pipeline.name, pipeline.problems)
        return pipeline, await self._catalog.revision(pipeline.id, pipeline.revision)


def _check_deletes(pipeline: Pipeline, revision: Revision) -> None:
    if not isinstance(revision.sink, ClickHouseConfig):
        raise NotReadyError("rewinding", pipeline.name, ("deletePrevious is for ClickHouse sinks only",))
    if revision.sql:
        raise NotReadyError("rewinding", pipeline.name, ("deletePrevious cannot be combined with sql",))
