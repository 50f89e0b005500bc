"""The driver's part: what was staged for a batch is planned once, published, marked done and cleaned up.

    staged      the tasks are done; nothing is visible in a topic
    planned     one commit: the pieces, the producer, the first sequence of each partition
    sent        every batch is durable in its partition
    done        one commit: the sequences have advanced, the plan is removed
    cleaned     the staged objects are deleted

The one rule: a plan is executed by the process that finds it. A driver that dies leaves a state from which the next one continues:
before `planned` there are only unreferenced objects; after it, the plan is executed again with the same bytes and numbers.

Brokers forget an idle producer after a day, and accept anything from an unknown one. So a process that did not write the plan first
reads what the partitions already hold of it; and a publisher stops for good after a while without progress, counted from before it
wrote the plan, read the partitions, or sent the last acknowledged batch.
"""

import logging
from dataclasses import dataclass
from typing import Final

import msgspec

from holdfast.client.producer import IdempotentProducer, OutOfSequenceError, SequencedBatch, TargetPartition
from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.objects import Missing, Objects
from holdfast.contracts.store import Committed, Delete, Entry, Put, Store
from holdfast.spark.sink.pieces import StagedPieceList, hour_of, pack, staged_key, unpack
from holdfast.spark.sink.query_state import (
    SWEEP_MARK_KEY,
    PublishPlan,
    QueryState,
    decode_piece_list,
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
from holdfast.spark.sink.sequences import SequenceAssigner
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError, ExpiredError, HoldfastError
from holdfast.vocabulary.failpoints import reached_async
from holdfast.vocabulary.random import Random

_log: Final = logging.getLogger(__name__)

PUBLISH_MS_MAX: Final = 12 * 3_600_000


@dataclass(frozen=True, slots=True)
class PublishResult:
    """The outcome of a batch. `published` is False where it had been planned before: then these pieces were not used."""

    records: int
    published: bool


class _StallDeadline:
    """When to stop: a while after the last progress, and at the latest after half the time brokers remember a producer."""

    def __init__(self, now_ms: int, stall_ms: int) -> None:
        self._stall_ms, self._last_ms = stall_ms, now_ms + PUBLISH_MS_MAX
        self.at_ms = min(now_ms + stall_ms, self._last_ms)

    def extend(self, sent_at_ms: int) -> None:
        """What was sent then was acknowledged."""
        self.at_ms = min(sent_at_ms + self._stall_ms, self._last_ms)


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
        await reached_async("spark-sink.staged")
        key = query_state_key(query)
        while True:
            deadline = _StallDeadline(self._clock.boot_ms(), self._stall_ms_max)
            entry = await self._store.get(key)
            state = decode_query_state(entry) if entry is not None else None
            if state is not None and state.plan is not None:
                assert entry is not None
                await self._execute_plan(key, entry.version, state, own=False, deadline=deadline)
                continue
            if state is not None and state.batch >= batch:
                await self.discard(pieces)
                return PublishResult(0, published=False)
            if not pieces.records:
                return PublishResult(0, published=True)
            planned, version = await self._plan(key, entry, state, batch, pieces)
            if version is None:
                continue
            await reached_async("spark-sink.planned")
            await self._execute_plan(key, version, planned, own=True, deadline=deadline)
            return PublishResult(pieces.records, published=True)

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

    async def _execute_plan(
        self, key: str, version: int, state: QueryState, *, own: bool, deadline: _StallDeadline
    ) -> None:
        """Execute the plan and mark it done. Also returns if another process has done so meanwhile."""
        assert state.plan is not None
        try:
            pieces = await self._pieces(state.plan)
            appended_records = {} if own else await self._appended_records(state, state.plan, pieces)
            await self._send(state, pieces, appended_records, deadline)
            await reached_async("spark-sink.sent")
        except (OutOfSequenceError, _StagedObjectMissingError) as failure:
            if not await self._is_done(key, state.batch):
                raise CorruptError(f"plan of batch {state.batch} of {key}", str(failure)) from failure
            return
        await self._mark_done(key, version, state, pieces)
        await reached_async("spark-sink.done")
        await self._clean_up(state.plan, pieces)
        await reached_async("spark-sink.cleaned")

    async def _pieces(self, plan: PublishPlan) -> StagedPieceList:
        return decode_piece_list(plan.listed) if plan.listed else unpack(await self._body(plan.list_key))

    async def _appended_records(
        self, state: QueryState, plan: PublishPlan, pieces: StagedPieceList
    ) -> dict[TargetPartition, int]:
        """How many records of the plan each partition already has."""
        found = {}
        for topic, counts in record_counts(pieces).items():
            await self._producer.end_offsets(topic, sorted(counts))  # refuses a recreated topic
            for partition in counts:
                target = TargetPartition(topic, partition)
                found[target] = await self._producer.appended_records(
                    target,
                    start=plan.starts[topic.id][partition],
                    producer=(state.producer_id, state.producer_epoch),
                    sequence=state.sequences.get(topic.id, {}).get(partition, 0),
                )
        return found

    async def _send(
        self,
        state: QueryState,
        pieces: StagedPieceList,
        appended_records: dict[TargetPartition, int],
        deadline: _StallDeadline,
    ) -> None:
        sequences = SequenceAssigner(
            producer_id=state.producer_id, producer_epoch=state.producer_epoch, sequences=state.sequences
        )
        for piece in pieces.pieces:
            body = piece.body if not piece.key else await self._body(piece.key)
            queues: dict[TargetPartition, list[SequencedBatch]] = {}
            for batch in sequences.assign(pieces, piece, body):
                if batch.ordinal + batch.count > appended_records.get(batch.target, 0):
                    queues.setdefault(batch.target, []).append(batch)
            await self._send_queues(queues, deadline)

    async def _send_queues(self, queues: dict[TargetPartition, list[SequencedBatch]], deadline: _StallDeadline) -> None:
        """The batches of a partition one after the other, partitions in parallel."""
        for round_number in range(max(map(len, queues.values()), default=0)):
            batches = [queue[round_number] for queue in queues.values() if round_number < len(queue)]
            sent_at_ms = self._clock.boot_ms()
            await self._producer.send(batches, deadline_ms=deadline.at_ms)
            deadline.extend(sent_at_ms)
            await reached_async("spark-sink.round-sent")

    async def _mark_done(self, key: str, version: int, state: QueryState, pieces: StagedPieceList) -> None:
        done = msgspec.structs.replace(
            state, plan=None, sequences=next_sequences(state, pieces), changed_at_ms=self._clock.now_ms()
        )
        planned = Entry(key, b"", version)
        outcome = await commit_resolved(
            self._store,
            clock=self._clock,
            random=self._random,
            require=[unchanged(key, planned)],
            apply=[Put(key, encode_query_state(done))],
        )
        if not isinstance(outcome, Committed) and not await self._is_done(key, state.batch):
            raise CorruptError(f"state {key}", f"batch {state.batch} was sent, but another plan has replaced its own")

    async def _is_done(self, key: str, batch: int) -> bool:
        entry = await self._store.get(key)
        if entry is None:
            return False
        state = decode_query_state(entry)
        return state.batch > batch or (state.batch == batch and state.plan is None)

    async def _clean_up(self, plan: PublishPlan, pieces: StagedPieceList) -> None:
        await self._delete_staged([*pieces.keys, *([plan.list_key] if plan.list_key else [])])

    async def _delete_staged(self, keys: list[str]) -> None:
        try:
            await self._objects.delete(keys)
        except HoldfastError as failure:
            _log.warning("cannot delete %d staged objects, leaving them to the sweeper: %s", len(keys), failure)

    async def _body(self, key: str) -> bytes:
        body = await self._objects.get(key)
        if isinstance(body, Missing):
            raise _StagedObjectMissingError(key)
        return bytes(body)


class _StagedObjectMissingError(HoldfastError):
    """A staged object is missing: another process has executed the plan, or the object was lost."""

    def __str__(self) -> str:
        return f"object {self.args[0]} does not exist"
