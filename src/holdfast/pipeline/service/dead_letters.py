"""The DLQ as users see it: pages, counts, replays. The SQL is in `dead_letter_table`, the steps of a replay are in `replay`."""

from collections.abc import Collection
from typing import Final

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.errors import ClickHouseError
from holdfast.contracts.store import Store
from holdfast.pipeline.catalog.store import PipelineStore
from holdfast.pipeline.catalog.stored_parts import PendingReplay, ReplayRecord
from holdfast.pipeline.model.definition import ClickHouseConfig, Pipeline, Revision
from holdfast.pipeline.model.errors import NotReadyError
from holdfast.pipeline.model.query import topics_of
from holdfast.pipeline.model.range_identity import partition_key
from holdfast.pipeline.service import replay
from holdfast.pipeline.service.connections import ServerConnections
from holdfast.pipeline.service.dead_letter_table import DeadLetterQuery, DeadLetterTable, parse_page_token
from holdfast.pipeline.service.replay import BEGINNING, ReplayTally, ReplayTarget
from holdfast.pipeline.service.replay_steps import ReplaySteps
from holdfast.pipeline.service.responses import DeadLetterCount, DeadLetterRows, Replayed
from holdfast.pipeline.sinks.clickhouse.statements import is_fence_refusal
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import check_between

OFFSETS_MAX: Final = 1_000
"""Offsets one request may name; none means every waiting dead letter."""


class DeadLetterService:
    """The dead letters of one catalog's pipelines."""

    def __init__(
        self, store: Store, catalog: PipelineStore, connections: ServerConnections, *, clock: Clock, random: Random
    ) -> None:
        self._store, self._catalog, self._connections = store, catalog, connections
        self._clock, self._random = clock, random

    async def page(
        self, pipeline_id: str, chosen: DeadLetterQuery | None = None, *, after: str = "", limit: int = 100
    ) -> DeadLetterRows:
        """A page of dead letters, oldest generation and lowest offset first."""
        check_between("limit", limit, 1, self._connections.settings.dlq_page_max)
        if after:
            parse_page_token(after)
        pipeline, revision = await self._revision(pipeline_id, "listing the DLQ of")
        sink = _sink(revision)
        return await self._connections.clickhouse(
            sink,
            lambda connection: _table(pipeline, revision, connection).page(
                chosen or DeadLetterQuery(), after=after, limit=limit
            ),
        )

    async def count(self, pipeline_id: str, chosen: DeadLetterQuery | None = None) -> DeadLetterCount:
        """How many dead letters there are, and why."""
        pipeline, revision = await self._revision(pipeline_id, "counting the DLQ of")
        return await self._connections.clickhouse(
            _sink(revision),
            lambda connection: _table(pipeline, revision, connection).count(chosen or DeadLetterQuery()),
        )

    async def replay(
        self, pipeline_id: str, chosen: DeadLetterQuery | None = None, *, limit: int | None = None
    ) -> Replayed:
        """Map the waiting dead letters by the newest revision. A step that another process left behind is finished first.

        Replaying twice adds nothing: dead letters that became rows are marked, and a step has a deduplication token.
        """
        rows_max = self._connections.settings.replay_rows_max
        left = rows_max if limit is None else limit
        check_between("limit", left, 1, rows_max)
        wanted = chosen or DeadLetterQuery()
        check_between("number of offsets", len(wanted.offsets), 0, OFFSETS_MAX)
        pipeline, revision = await self._revision(pipeline_id, "replaying the DLQ of")
        if reasons := replay.obstacles(revision):
            raise NotReadyError("replaying the DLQ of", pipeline.name, reasons)
        await self._check_table(pipeline, revision)
        steps = self._steps(pipeline.id)
        tally, after = ReplayTally(revision.version), BEGINNING
        while True:
            entry, record = await steps.read()
            if record.pending is not None and entry is not None:
                refused = await self._finish(pipeline.id, record.pending, record.number, tally)
                await steps.clear(entry, record)
                if refused:
                    raise NotReadyError("replaying the DLQ of", pipeline.name, (refused,))
                continue
            if left <= 0:
                return tally.response(more=await self._next(pipeline.id, revision, wanted, after, 1) is not None)
            step = await self._next(pipeline.id, revision, wanted, after, left)
            if step is None:
                return tally.response(more=False)
            if await steps.begin(entry, record, step):
                after = (step.generation, step.partition, step.offsets[-1])
                left -= len(step.offsets)

    async def steps_begun(self, pipeline_id: str) -> ReplayRecord:
        """How far replays have come: equal before and after something if no step began or ended in between."""
        return (await self._steps(pipeline_id).read())[1]

    async def end_step(self, pipeline_id: str, generations: Collection[int]) -> bool:
        """End a step of one of these generations that is under way: no insert of it can land any more. Its dead letters wait."""
        steps = self._steps(pipeline_id)
        entry, record = await steps.read()
        step = record.pending
        if entry is None or step is None or step.generation not in generations:
            return False
        revision = await self._catalog.revision(pipeline_id, step.revision)

        def abandon(connection: ClickHouseClient) -> None:
            target = ReplayTarget(pipeline_id, revision, connection, random=self._random)
            if target.prepare():
                target.abandon(step, record.number)

        await self._connections.clickhouse(_sink(revision), abandon)
        await steps.clear(entry, record)
        return True

    def _steps(self, pipeline_id: str) -> ReplaySteps:
        return ReplaySteps(self._store, pipeline_id, clock=self._clock, random=self._random)

    async def _check_table(self, pipeline: Pipeline, revision: Revision) -> None:
        """Reject a replay whose rows the table cannot store."""

        def misfits(connection: ClickHouseClient) -> tuple[str, ...]:
            target = ReplayTarget(pipeline.id, revision, connection, random=self._random)
            return target.misfits() if target.dead_letters.exists() else ()

        if reasons := await self._connections.clickhouse(_sink(revision), misfits):
            raise NotReadyError("replaying the DLQ of", pipeline.name, reasons)

    async def trim(self, pipeline: Pipeline) -> int:
        """Delete the oldest dead letters beyond `dlqRowsKept`; how many there were."""
        if not pipeline.revision:
            return 0
        revision = await self._catalog.revision(pipeline.id, pipeline.revision)
        if not isinstance(revision.sink, ClickHouseConfig):
            return 0
        kept = revision.drift.dlq_rows_kept
        return await self._connections.clickhouse(
            revision.sink,
            lambda connection: _table(pipeline, revision, connection).trim(kept),
            timeout_ms=self._connections.settings.delete_timeout_ms,
        )

    async def _next(
        self, pipeline_id: str, revision: Revision, chosen: DeadLetterQuery, after: tuple[int, int, int], limit: int
    ) -> PendingReplay | None:
        waiting = DeadLetterQuery(
            generation=chosen.generation,
            partition=chosen.partition,
            offsets=chosen.offsets,
            reason=chosen.reason,
            since_ms=chosen.since_ms,
            until_ms=chosen.until_ms,
            waiting=True,
        )

        def next_step(connection: ClickHouseClient) -> tuple[int, int, tuple[int, ...]] | None:
            target = ReplayTarget(pipeline_id, revision, connection, random=self._random)
            return target.next_step(waiting, after, limit) if target.prepare() else None

        found = await self._connections.clickhouse(_sink(revision), next_step)
        if found is None:
            return None
        generation, partition, offsets = found
        topic = revision.source.topic
        return PendingReplay(
            revision=revision.version,
            generation=generation,
            topic=topic,
            partition=partition,
            offsets=offsets,
            token=f"{partition_key(pipeline_id, generation, topic, partition)}:replay-{self._random.token()}",
            pipeline=pipeline_id,
        )

    async def _finish(self, pipeline_id: str, step: PendingReplay, number: int, tally: ReplayTally) -> str:
        """Execute a step. If the server rejects it, it is abandoned, and the reason is returned."""
        stored = await self._catalog.revision(pipeline_id, step.revision)
        revision = await self._connections.resolved("revision", stored)
        sink = _sink(revision)

        def execute(connection: ClickHouseClient) -> str:
            target = ReplayTarget(pipeline_id, revision, connection, random=self._random)
            if not target.prepare():
                return ""
            try:
                target.execute(step, number, tally)
            except ClickHouseError as error:
                if is_fence_refusal(error):
                    return ""  # another process has finished it
                target.abandon(step, number)
                return error.reason
            return ""

        timeout_ms = sink.insert_timeout_ms + self._connections.settings.clickhouse_timeout_ms
        return await self._connections.clickhouse(sink, execute, timeout_ms=timeout_ms)

    async def _revision(self, pipeline_id: str, what: str) -> tuple[Pipeline, Revision]:
        pipeline = await self._catalog.get(pipeline_id)
        if not pipeline.revision:
            raise NotReadyError(what, pipeline.name, pipeline.problems)
        revision = await self._catalog.revision(pipeline.id, pipeline.revision)
        if not isinstance(revision.sink, ClickHouseConfig):
            raise NotReadyError(what, pipeline.name, ("only ClickHouse sinks keep their DLQ in a table",))
        return pipeline, revision


def _sink(revision: Revision) -> ClickHouseConfig:
    assert isinstance(revision.sink, ClickHouseConfig)  # checked by `_revision`, without which no step begins
    return revision.sink


def _table(pipeline: Pipeline, revision: Revision, connection: ClickHouseClient) -> DeadLetterTable:
    sink = _sink(revision)
    return DeadLetterTable(
        connection,
        database=sink.database or "default",
        table=sink.table,
        topics=topics_of(revision),
        pipeline_id=pipeline.id,
    )
