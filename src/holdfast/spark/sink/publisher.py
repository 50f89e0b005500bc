"""The driver's part: what was staged for a batch is planned once, published, marked done and cleaned up.

    staged      the tasks are done; nothing is visible in a topic
    planned     one commit: the pieces, the producer, the first sequence of each partition
    sent        every batch is durable in its partition
    done        one commit: the sequences have advanced, the plan is removed
    cleaned     the staged objects are deleted

The one rule: a plan is executed by the process that finds it, or by tasks that this starts (`executor_publishing`). A driver that
dies leaves a state from which the next one continues: before `planned` there are only unreferenced objects; after it, the plan is
executed again with the same bytes and numbers (`plan_sender`).
"""

import logging
from dataclasses import dataclass
from typing import Final

import msgspec

from holdfast.client.producer import IdempotentProducer, OutOfSequenceError
from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Committed, Delete, Entry, Put, Store
from holdfast.spark.sink.pieces import StagedPieceList, hour_of, pack, staged_key
from holdfast.spark.sink.plan_sender import PlanSender, StagedObjectMissingError, StallDeadline, read_piece_list
from holdfast.spark.sink.query_state import (
    SWEEP_MARK_KEY,
    PublishPlan,
    QueryState,
    decode_query_state,
    decode_sweep_mark,
    encode_piece_list,
    encode_query_state,
    next_sequences,
    oldest_staged_hour,
    query_state_key,
    record_counts,
    unchanged,
)
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError, ExpiredError, HoldfastError
from holdfast.vocabulary.failpoints import reached_async
from holdfast.vocabulary.random import Random

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PublishResult:
    """The outcome of a batch. `published` is False where it had been planned before: then these pieces were not used."""

    records: int
    published: bool


@dataclass(frozen=True, slots=True)
class OpenPlan:
    """A plan that is to be executed. `own`: this process wrote it just now, for the batch it was asked to publish."""

    key: str
    version: int
    state: QueryState
    pieces: StagedPieceList
    own: bool
    deadline: StallDeadline


class SinkPublisher:
    """Publishes the batches of queries, one after the other."""

    def __init__(
        self,
        *,
        store: Store,
        objects: Objects,
        producer: IdempotentProducer,
        clock: Clock,
        random: Random,
        prefix: str,
        stall_ms_max: int = 600_000,
    ) -> None:
        self._store, self._objects, self._producer = store, objects, producer
        self._clock, self._random = clock, random
        self._stall_ms_max, self._prefix = stall_ms_max, prefix

    async def publish(self, query: str, batch: int, pieces: StagedPieceList) -> PublishResult:
        """Publish batch `batch` of the query, exactly once, even if other processes publish it at the same time.

        A batch that was planned before is finished as planned, and `pieces` are discarded.
        """
        while True:
            begun = await self.begin(query, batch, pieces)
            if isinstance(begun, PublishResult):
                return begun
            await self.execute(begun)
            if begun.own:
                return PublishResult(pieces.records, published=True)

    async def begin(self, query: str, batch: int, pieces: StagedPieceList) -> OpenPlan | PublishResult:
        """The plan that is to be executed next: of the batch, or one that another process left. A result: there is none."""
        await reached_async("spark-sink.staged")
        key = query_state_key(query)
        while True:
            deadline = StallDeadline(self._clock.boot_ms(), self._stall_ms_max)
            entry = await self._store.get(key)
            state = decode_query_state(entry) if entry is not None else None
            if state is not None and state.plan is not None:
                assert entry is not None
                found = await self._found_plan(key, entry.version, state, deadline)
                if found is None:
                    continue
                return found
            if state is not None and state.batch >= batch:
                await self.discard(pieces)
                return PublishResult(0, published=False)
            if not pieces.records:
                return PublishResult(0, published=True)
            planned, version = await self._plan(key, entry, state, batch, pieces)
            if version is None:
                continue
            await reached_async("spark-sink.planned")
            return OpenPlan(key, version, planned, pieces, True, deadline)

    async def execute(self, plan: OpenPlan) -> None:
        """Send everything from here, and mark the plan done. Also returns if another process has done so meanwhile."""
        sender = PlanSender(objects=self._objects, producer=self._producer, clock=self._clock)
        try:
            await sender.send(plan.state, plan.pieces, deadline=plan.deadline, own=plan.own)
        except (OutOfSequenceError, StagedObjectMissingError) as failure:
            if not await self.is_done(plan):
                raise CorruptError(f"plan of batch {plan.state.batch} of {plan.key}", str(failure)) from failure
            return
        await self.finish(plan)

    async def finish(self, plan: OpenPlan) -> None:
        """Everything is durable in its partition: mark the plan done, clean up."""
        await reached_async("spark-sink.sent")
        await self._mark_done(plan)
        await reached_async("spark-sink.done")
        await self._clean_up(plan)
        await reached_async("spark-sink.cleaned")

    async def is_done(self, plan: OpenPlan) -> bool:
        """Whether this or another process has marked the plan done."""
        return await self._is_done(plan.key, plan.state.batch)

    async def discard(self, pieces: StagedPieceList) -> None:
        """Delete staged objects that no plan refers to."""
        await self._delete_staged(pieces.keys)

    async def abort(self, query: str, batch: int, pieces: StagedPieceList) -> None:
        """The batch failed here: delete its pieces if it is done anyway.

        Otherwise they stay for the sweeper: a commit that is still in flight might refer to them.
        """
        if await self._is_done(query_state_key(query), batch):
            await self.discard(pieces)

    async def forget(self, query: str) -> None:
        """Delete the state of a query that is done and will never run again."""
        entry = await self._store.get(query_state_key(query))
        if entry is not None and decode_query_state(entry).plan is None:
            await self._store.commit(require=[unchanged(entry.key, entry)], apply=[Delete(entry.key)])

    async def _plan(
        self, key: str, entry: Entry | None, state: QueryState | None, batch: int, pieces: StagedPieceList
    ) -> tuple[QueryState, int | None]:
        """Write the plan; its version, or None if another process planned first."""
        producer = (state.producer_id, state.producer_epoch) if state else await self._producer.init_producer_id()
        text, list_key, keys = encode_piece_list(pieces), "", pieces.keys
        if not text:
            list_key = staged_key(hour_of(self._clock.now_ms()), self._random.token(), prefix=self._prefix)
            await self._objects.put(list_key, [pack(pieces)])
            keys = [*keys, list_key]
        starts = {
            topic.id: await self._producer.end_offsets(topic, sorted(counts))
            for topic, counts in record_counts(pieces).items()
        }
        planned = QueryState(
            batch=batch,
            producer_id=producer[0],
            producer_epoch=producer[1],
            sequences=state.sequences if state is not None else {},
            plan=PublishPlan(listed=text, list_key=list_key, oldest_hour=oldest_staged_hour(keys), starts=starts),
            changed_at_ms=self._clock.now_ms(),
        )
        return planned, await self._write_plan(key, entry, planned, keys)

    async def _write_plan(self, key: str, entry: Entry | None, planned: QueryState, keys: list[str]) -> int | None:
        value = encode_query_state(planned)
        while True:
            swept = await self._store.get(SWEEP_MARK_KEY)
            if keys and oldest_staged_hour(keys) < decode_sweep_mark(swept).before_hour:
                raise ExpiredError(
                    "the staging of this batch", "it is so old that the sweeper may have deleted its pieces"
                )
            outcome = await commit_resolved(
                self._store,
                clock=self._clock,
                random=self._random,
                require=[unchanged(key, entry), unchanged(SWEEP_MARK_KEY, swept)],
                apply=[Put(key, value)],
            )
            if isinstance(outcome, Committed):
                return outcome.version
            found = outcome.found.get(key)
            if (found.version if found else None) != (entry.version if entry else None):
                return None

    async def _found_plan(self, key: str, version: int, state: QueryState, deadline: StallDeadline) -> OpenPlan | None:
        """A plan that another process wrote; None: it has been done meanwhile."""
        assert state.plan is not None
        try:
            pieces = await read_piece_list(self._objects, state.plan)
        except StagedObjectMissingError as failure:
            if not await self._is_done(key, state.batch):
                raise CorruptError(f"plan of batch {state.batch} of {key}", str(failure)) from failure
            return None
        return OpenPlan(key, version, state, pieces, False, deadline)

    async def _mark_done(self, plan: OpenPlan) -> None:
        key, state = plan.key, plan.state
        done = msgspec.structs.replace(
            state, plan=None, sequences=next_sequences(state, plan.pieces), changed_at_ms=self._clock.now_ms()
        )
        planned = Entry(key, b"", plan.version)
        outcome = await commit_resolved(
            self._store,
            clock=self._clock,
            random=self._random,
            require=[unchanged(key, planned)],
            apply=[Put(key, encode_query_state(done))],
        )
        if not isinstance(outcome, Committed) and not await self.is_done(plan):
            raise CorruptError(f"state {key}", f"batch {state.batch} was sent, but another plan has replaced its own")

    async def _is_done(self, key: str, batch: int) -> bool:
        entry = await self._store.get(key)
        if entry is None:
            return False
        state = decode_query_state(entry)
        return state.batch > batch or (state.batch == batch and state.plan is None)

    async def _clean_up(self, plan: OpenPlan) -> None:
        assert plan.state.plan is not None
        list_key = plan.state.plan.list_key
        await self._delete_staged([*plan.pieces.keys, *([list_key] if list_key else [])])

    async def _delete_staged(self, keys: list[str]) -> None:
        try:
            await self._objects.delete(keys)
        except HoldfastError as failure:
            _log.warning("cannot delete %d staged objects, leaving them to the sweeper: %s", len(keys), failure)
