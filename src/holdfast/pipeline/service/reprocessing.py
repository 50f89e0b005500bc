"""Rewinds and backfills as people ask for them, and the deletion of what rewinds replace, which goes on by itself.

What positions mean and when rows may go is decided in `rewinding`.
"""

from collections.abc import Sequence
from typing import Final

from holdfast.clickhouse.client import parse_dsn
from holdfast.contracts.store import Store
from holdfast.pipeline.catalog import cleanup
from holdfast.pipeline.catalog.store import PipelineStore
from holdfast.pipeline.model.definition import (
    LATEST,
    ClickHouseConfig,
    Generation,
    Pipeline,
    Revision,
    live_generation,
    registry_namespace,
)
from holdfast.pipeline.model.errors import NotReadyError
from holdfast.pipeline.service import rewind_rules
from holdfast.pipeline.service.connections import ServerConnections
from holdfast.pipeline.service.rewind_rules import Position
from holdfast.pipeline.service.status import partitions_of
from holdfast.registry import PartitionState
from holdfast.registry.queries import fixed_starts

_SHARED: Final = (
    "deletePrevious would delete rows of pipeline {other!r}, which reads the same topic into the same table"
)


class Reprocessing:
    """Generations of one catalog's pipelines."""

    def __init__(self, store: Store, catalog: PipelineStore, reaching: ServerConnections) -> None:
        self._store, self._catalog, self._connections = store, catalog, reaching

    async def rewind(
        self, pipeline_id: str, to: Position, *, delete_previous: bool = False, expected: int | None = None
    ) -> tuple[Pipeline, Generation]:
        """Read again from `to`, as a new live generation. Partitions that an offset is not named for go on where they are.

        With `delete_previous`, rows of older generations from there on are deleted once the new one has passed them.
        """
        pipeline, recipe = await self._recipe(pipeline_id, "rewinding")
        if delete_previous:
            await self._check_deletes(pipeline, recipe)
        starts, bounds = await self._connections.topic(recipe.source, lambda topic: rewind_rules.resolve(topic, to))
        old = live_generation(pipeline)
        progress: Sequence[PartitionState] = []
        begun_at: dict[int, int] = {}
        if old is not None:
            progress = await partitions_of(self._store, pipeline.id, old.number)
            begun_at = await self._begun_at(pipeline.id, old)
        busy = await cleanup.active_owners(self._store, pipeline.id)
        complete = rewind_rules.complete(pipeline, starts, bounds, progress, begun_at, busy)
        seen = pipeline.version if expected is None and len(starts) < len(bounds) else expected
        return await self._catalog.rewind(pipeline.id, complete, delete_previous=delete_previous, expected=seen)

    async def backfill(
        self, pipeline_id: str, start: Position, end: Position = LATEST, *, expected: int | None = None
    ) -> tuple[Pipeline, Generation]:
        """Read [start, end) again beside the live generation, under a number of its own."""
        pipeline, recipe = await self._recipe(pipeline_id, "backfilling")
        starts, _ = await self._connections.topic(recipe.source, lambda topic: rewind_rules.resolve(topic, start))
        ends, _ = await self._connections.topic(recipe.source, lambda topic: rewind_rules.resolve(topic, end))
        return await self._catalog.backfill(pipeline.id, *rewind_rules.ranges(starts, ends), expected=expected)

    async def give_up(self, pipeline_id: str, generation: int) -> Pipeline:
        """End a backfill before it is done. What it has written stays."""
        return await self._catalog.retire(pipeline_id, generation)

    async def delete_replaced(self, pipeline: Pipeline) -> str:
        """Delete what the live generation replaces, if it may be; otherwise why not yet. Empty: nothing is left to do."""
        fresh = live_generation(pipeline)
        if fresh is None or not fresh.delete_previous:
            return ""
        recipe = await self._catalog.recipe(pipeline.id, pipeline.recipe)
        if not isinstance(recipe.sink, ClickHouseConfig):
            return "the sink is no ClickHouse any more"
        before = {
            each.number: await partitions_of(self._store, pipeline.id, each.number)
            for each in pipeline.generations
            if each.number < fresh.number
        }
        now = await partitions_of(self._store, pipeline.id, fresh.number)
        verdict = rewind_rules.may_delete(fresh, now, before)
        if not verdict.ready:
            return verdict.why
        await self._connections.clickhouse(
            recipe.sink,
            lambda connection: rewind_rules.delete_previous(pipeline.id, recipe, fresh, before, connection),
            timeout_ms=self._connections.settings.delete_timeout_ms,
        )
        await self._catalog.previous_deleted(pipeline.id, fresh.number)
        return ""

    async def _begun_at(self, pipeline_id: str, generation: Generation) -> dict[int, int]:
        """Where partitions of a generation were to begin: as it says, or as their first owner found (`driver.starting`)."""
        found = await fixed_starts(self._store, registry_namespace(pipeline_id, generation.number))
        return {**found, **{int(number): offset for number, offset in generation.starts.items()}}

    async def _check_deletes(self, pipeline: Pipeline, recipe: Revision) -> None:
        if not isinstance(recipe.sink, ClickHouseConfig):
            raise NotReadyError("rewinding", pipeline.name, ("deletePrevious is for ClickHouse sinks only",))
        if recipe.sql:
            raise NotReadyError("rewinding", pipeline.name, ("deletePrevious does not go with sql",))
        for other in await self._catalog.list():
            if other.id == pipeline.id or not other.recipe:
                continue
            theirs = await self._catalog.recipe(other.id, other.recipe)
            if _writes(theirs) == _writes(recipe) and theirs.source.topic == recipe.source.topic:
                raise NotReadyError("rewinding", pipeline.name, (_SHARED.format(other=other.name),))

    async def _recipe(self, pipeline_id: str, what: str) -> tuple[Pipeline, Revision]:
        pipeline = await self._catalog.get(pipeline_id)
        if not pipeline.recipe:
            raise NotReadyError(what, pipeline.name, pipeline.problems)
        return pipeline, await self._catalog.recipe(pipeline.id, pipeline.recipe)


def _writes(recipe: Revision) -> tuple[object, ...] | None:
    """The table a recipe writes, whoever signs in."""
    sink = recipe.sink
    if not isinstance(sink, ClickHouseConfig):
        return None
    parts = parse_dsn(sink.dsn) if sink.dsn else None
    place = (parts.hostname, parts.port) if parts is not None else ()
    return (*place, sink.database, sink.table)
