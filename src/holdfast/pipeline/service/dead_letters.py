"""The DLQ as people use it: pages, counts, replays. What happens at the tables is in `dead_letters` and `replaying`."""

from typing import Final

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.errors import ClickHouseError
from holdfast.contracts.store import Store
from holdfast.pipeline.catalog.encoding import PendingReplay
from holdfast.pipeline.catalog.store import PipelineStore
from holdfast.pipeline.model.definition import ClickHouseConfig, Pipeline, Revision
from holdfast.pipeline.model.errors import NotReadyError
from holdfast.pipeline.service import replay
from holdfast.pipeline.service.connections import ServerConnections
from holdfast.pipeline.service.dead_letter_table import DeadLetterFilter, DeadLetterTable, parse_page_token
from holdfast.pipeline.service.replay import BEGINNING, ReplaySteps, ReplayTally, ReplayTarget
from holdfast.pipeline.service.responses import DeadLetterCount, DeadLetters, Replayed
from holdfast.pipeline.sinks.clickhouse.statements import is_fence_refusal
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import check_between

OFFSETS_MAX: Final = 1_000
"""Offsets one request may name; without any, all letters that wait are meant."""


class DeadLetterService:
    """The dead letters of one catalog's pipelines."""

    def __init__(
        self, store: Store, catalog: PipelineStore, reaching: ServerConnections, *, clock: Clock, random: Random
    ) -> None:
        self._store, self._catalog, self._connections = store, catalog, reaching
        self._clock, self._random = clock, random

    async def page(
        self, pipeline_id: str, chosen: DeadLetterFilter | None = None, *, after: str = "", limit: int = 100
    ) -> DeadLetters:
        """A page of what was refused, oldest generation and lowest offset first."""
        check_between("limit", limit, 1, self._connections.settings.dlq_page_max)
        if after:
            parse_page_token(after)
        _, recipe = await self._recipe(pipeline_id, "listing the DLQ of")
        sink = _sink(recipe)
        return await self._connections.clickhouse(
            sink,
            lambda connection: _table(recipe, connection).page(chosen or DeadLetterFilter(), after=after, limit=limit),
        )

    async def count(self, pipeline_id: str, chosen: DeadLetterFilter | None = None) -> DeadLetterCount:
        """How many were refused, and why."""
        _, recipe = await self._recipe(pipeline_id, "counting the DLQ of")
        return await self._connections.clickhouse(
            _sink(recipe), lambda connection: _table(recipe, connection).count(chosen or DeadLetterFilter())
        )

    async def replay(
        self, pipeline_id: str, chosen: DeadLetterFilter | None = None, *, limit: int | None = None
    ) -> Replayed:
        """Put what waits through the newest recipe. A step that somebody else left behind is finished first.

        Asking again adds nothing: letters that became rows are marked, and a step is known by its token.
        """
        rows_max = self._connections.settings.replay_rows_max
        left = rows_max if limit is None else limit
        check_between("limit", left, 1, rows_max)
        wanted = chosen or DeadLetterFilter()
        check_between("number of offsets", len(wanted.offsets), 0, OFFSETS_MAX)
        pipeline, recipe = await self._recipe(pipeline_id, "replaying the DLQ of")
        if reasons := replay.why_not(recipe):
            raise NotReadyError("replaying the DLQ of", pipeline.name, reasons)
        await self._check_table(pipeline, recipe)
        steps = ReplaySteps(self._store, pipeline.id, clock=self._clock, random=self._random)
        tally, after = ReplayTally(recipe.version), BEGINNING
        while True:
            entry, record = await steps.read()
            if record.pending is not None and entry is not None:
                refused = await self._finish(pipeline.id, record.pending, record.number, tally)
                await steps.clear(entry, record)
                if refused:
                    raise NotReadyError("replaying the DLQ of", pipeline.name, (refused,))
                continue
            if left <= 0:
                return tally.answer(more=await self._next(pipeline.id, recipe, wanted, after, 1) is not None)
            step = await self._next(pipeline.id, recipe, wanted, after, left)
            if step is None:
                return tally.answer(more=False)
            if await steps.begin(entry, record, step):
                after = (step.generation, step.partition, step.offsets[-1])
                left -= len(step.offsets)

    async def _check_table(self, pipeline: Pipeline, recipe: Revision) -> None:
        """Refuse to begin what the table cannot take."""

        def ask(connection: ClickHouseClient) -> tuple[str, ...]:
            target = ReplayTarget(pipeline.id, recipe, connection, random=self._random)
            return target.misfits() if target.letters.exists() else ()

        if reasons := await self._connections.clickhouse(_sink(recipe), ask):
            raise NotReadyError("replaying the DLQ of", pipeline.name, reasons)

    async def trim(self, pipeline: Pipeline) -> int:
        """Keep the DLQ of a pipeline as long as its drift policy says; how many letters there were too many."""
        if not pipeline.recipe:
            return 0
        recipe = await self._catalog.recipe(pipeline.id, pipeline.recipe)
        if not isinstance(recipe.sink, ClickHouseConfig):
            return 0
        kept = recipe.drift.dlq_rows_kept
        return await self._connections.clickhouse(
            recipe.sink,
            lambda connection: _table(recipe, connection).trim(kept),
            timeout_ms=self._connections.settings.delete_timeout_ms,
        )

    async def _next(
        self, pipeline_id: str, recipe: Revision, chosen: DeadLetterFilter, after: tuple[int, int, int], limit: int
    ) -> PendingReplay | None:
        waiting = DeadLetterFilter(
            generation=chosen.generation,
            partition=chosen.partition,
            offsets=chosen.offsets,
            reason=chosen.reason,
            since_ms=chosen.since_ms,
            until_ms=chosen.until_ms,
            waiting=True,
        )

        def ask(connection: ClickHouseClient) -> tuple[int, int, tuple[int, ...]] | None:
            target = ReplayTarget(pipeline_id, recipe, connection, random=self._random)
            return target.next_step(waiting, after, limit) if target.prepare() else None

        found = await self._connections.clickhouse(_sink(recipe), ask)
        if found is None:
            return None
        generation, partition, offsets = found
        topic = recipe.source.topic
        return PendingReplay(
            recipe=recipe.version,
            generation=generation,
            topic=topic,
            partition=partition,
            offsets=offsets,
            token=f"{pipeline_id}:{generation}:{topic}:{partition}:replay-{self._random.token()}",
        )

    async def _finish(self, pipeline_id: str, step: PendingReplay, number: int, tally: ReplayTally) -> str:
        """Carry a step out. If the server refuses it, it is given up, and the answer is why."""
        recipe = await self._catalog.recipe(pipeline_id, step.recipe)
        sink = _sink(recipe)

        def carry_out(connection: ClickHouseClient) -> str:
            target = ReplayTarget(pipeline_id, recipe, connection, random=self._random)
            if not target.prepare():
                return ""
            try:
                target.carry_out(step, number, tally)
            except ClickHouseError as error:
                if is_fence_refusal(error):
                    return ""  # somebody else has done and closed it
                target.give_up(step, number)
                return error.reason
            return ""

        timeout_ms = sink.insert_timeout_ms + self._connections.settings.clickhouse_timeout_ms
        return await self._connections.clickhouse(sink, carry_out, timeout_ms=timeout_ms)

    async def _recipe(self, pipeline_id: str, what: str) -> tuple[Pipeline, Revision]:
        pipeline = await self._catalog.get(pipeline_id)
        if not pipeline.recipe:
            raise NotReadyError(what, pipeline.name, pipeline.problems)
        recipe = await self._catalog.recipe(pipeline.id, pipeline.recipe)
        if not isinstance(recipe.sink, ClickHouseConfig):
            raise NotReadyError(what, pipeline.name, ("only ClickHouse sinks have a DLQ that is kept in a table",))
        return pipeline, recipe


def _sink(recipe: Revision) -> ClickHouseConfig:
    assert isinstance(recipe.sink, ClickHouseConfig)  # `_recipe` saw to it, and a step begins nowhere else
    return recipe.sink


def _table(recipe: Revision, connection: ClickHouseClient) -> DeadLetterTable:
    sink = _sink(recipe)
    return DeadLetterTable(connection, database=sink.database or "default", table=sink.table, topic=recipe.source.topic)
