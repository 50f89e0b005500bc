"""The driver's part: what was staged for a batch is planned once, published, marked done and cleaned up.

    staged      the tasks are done; nothing can be seen
    planned     one commit: the pieces, the producer, the first sequence of each partition
    sent        every batch is durable in its partition
    done        one commit: the sequences have moved on, the plan is gone
    cleaned     the staged objects are removed

The one rule: what a plan says is done by whoever finds it. Dying anywhere leaves a state from which the next one goes on: before
`planned` there is only rubbish; behind it the plan is carried out again, with the same bytes under the same numbers.

Brokers forget a producer that is silent for a day, and take anything from one they do not know. So whoever did not write the plan
himself looks first at what the partitions hold of it; and whoever publishes stops for good when he got nowhere for a while, counted
from before he wrote the plan, or looked, or sent the last batch that was taken.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from holdfast.client.producer import IdempotentProducer, OutOfSequenceError
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
from holdfast.spark.sink.sequences import SequenceAssigner, SequencedBatch, TargetPartition
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError, ExpiredError, HoldfastError
from holdfast.vocabulary.random import Random

_log: Final = logging.getLogger(__name__)

PUBLISH_MS_MAX: Final = 12 * 3_600_000

Step = Callable[[str], Awaitable[None]]


async def ignore_step(step: str) -> None:
    """What is done at each step unless a test wants to know of it."""


@dataclass(frozen=True, slots=True)
class PublishResult:
    """What became of a batch. `anew` is False where somebody had planned it before: then these pieces were not used."""

    records: int
    anew: bool


class _StallDeadline:
    """When to stop: a while after the last progress, and after half of the time brokers remember a producer for, anyway."""

    def __init__(self, now_ms: int, stall_ms: int) -> None:
        self._stall_ms, self._last_ms = stall_ms, now_ms + PUBLISH_MS_MAX
        self.at_ms = min(now_ms + stall_ms, self._last_ms)

    def moved(self, sent_at_ms: int) -> None:
        """What was sent then, was taken."""
        self.at_ms = min(sent_at_ms + self._stall_ms, self._last_ms)


class SinkPublisher:
    """Publishes the batches of queries, one after the other. `on_step` is told of every state that is reached."""

    def __init__(
        self,
        *,
        store: Store,
        objects: Objects,
        brokers: IdempotentProducer,
        clock: Clock,
        random: Random,
        stall_ms_max: int = 600_000,
        on_step: Step = ignore_step,
    ) -> None:
        self._store, self._objects, self._brokers = store, objects, brokers
        self._clock, self._random = clock, random
        self._stall_ms_max, self._on_step = stall_ms_max, on_step

    async def publish(self, query: str, batch: int, pieces: StagedPieceList) -> PublishResult:
        """Publish batch `batch` of the query, exactly once, whoever else is at it.

        A batch that was planned before is finished as planned, and `pieces` are thrown away.
        """
        await self._on_step("staged")
        key = query_state_key(query)
        while True:
            deadline = _StallDeadline(self._clock.boot_ms(), self._stall_ms_max)
            entry = await self._store.get(key)
            ledger = decode_query_state(entry) if entry is not None else None
            if ledger is not None and ledger.plan is not None:
                assert entry is not None
                await self._execute_plan(key, entry.version, ledger, mine=False, deadline=deadline)
                continue
            if ledger is not None and ledger.batch >= batch:
                await self.discard(pieces)
                return PublishResult(0, anew=False)
            if not pieces.records:
                return PublishResult(0, anew=True)
            planned, version = await self._plan(key, entry, ledger, batch, pieces)
            if version is None:
                continue
            await self._on_step("planned")
            await self._execute_plan(key, version, planned, mine=True, deadline=deadline)
            return PublishResult(pieces.records, anew=True)

    async def discard(self, pieces: StagedPieceList) -> None:
        """Remove what was staged and is in no plan. What is left behind, the sweeper finds."""
        try:
            await self._objects.delete(pieces.keys)
        except HoldfastError as failure:
            _log.warning("staged pieces are left to the sweeper: %s", failure)

    async def abandon(self, query: str, batch: int, pieces: StagedPieceList) -> None:
        """The batch failed here: remove its pieces if it is done anyway.

        Otherwise they stay for the sweeper: a commit that is still on its way might name them.
        """
        if await self._is_done(query_state_key(query), batch):
            await self.discard(pieces)

    async def forget(self, query: str) -> None:
        """Remove the record of a query that is done and will never be asked for again."""
        entry = await self._store.get(query_state_key(query))
        if entry is not None and decode_query_state(entry).plan is None:
            await self._store.commit(require=[unchanged(entry.key, entry)], apply=[Delete(entry.key)])

    async def _plan(
        self, key: str, entry: Entry | None, ledger: QueryState | None, batch: int, pieces: StagedPieceList
    ) -> tuple[QueryState, int | None]:
        """Write the plan; the version it has then, or None if somebody was faster."""
        producer = (ledger.producer_id, ledger.producer_epoch) if ledger else await self._brokers.init_producer_id()
        text, list_key, keys = encode_piece_list(pieces), "", pieces.keys
        if not text:
            list_key = staged_key(hour_of(self._clock.now_ms()), self._random.token())
            await self._objects.put(list_key, [pack(pieces)])
            keys = [*keys, list_key]
        starts = {
            target.id: await self._brokers.ends(target, sorted(counts))
            for target, counts in record_counts(pieces).items()
        }
        planned = QueryState(
            batch=batch,
            producer_id=producer[0],
            producer_epoch=producer[1],
            sequences=ledger.sequences if ledger is not None else {},
            plan=PublishPlan(listed=text, list_key=list_key, oldest_hour=oldest_staged_hour(keys), starts=starts),
            changed_at_ms=self._clock.now_ms(),
        )
        return planned, await self._write_plan(key, entry, planned, keys)

    async def _write_plan(self, key: str, entry: Entry | None, planned: QueryState, keys: list[str]) -> int | None:
        value = encode_query_state(planned)
        while True:
            swept = await self._store.get(SWEEP_MARK_KEY)
            if keys and oldest_staged_hour(keys) < decode_sweep_mark(swept).before_hour:
                raise ExpiredError("what was staged", "it waited for so long that the sweeper took it for left behind")
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
        self, key: str, version: int, ledger: QueryState, *, mine: bool, deadline: _StallDeadline
    ) -> None:
        """Do what the plan says, and mark it done. Returns as well if somebody else has done it meanwhile."""
        assert ledger.plan is not None
        try:
            pieces = await self._pieces(ledger.plan)
            appended_records = {} if mine else await self._appended_records(ledger, ledger.plan, pieces)
            await self._send(ledger, pieces, appended_records, deadline)
            await self._on_step("sent")
        except (OutOfSequenceError, _StagedObjectMissingError) as failure:
            if not await self._is_done(key, ledger.batch):
                raise CorruptError(f"plan of batch {ledger.batch} of {key}", str(failure)) from failure
            return
        await self._mark_done(key, version, ledger, pieces)
        await self._on_step("done")
        await self._clean_up(ledger.plan, pieces)
        await self._on_step("cleaned")

    async def _pieces(self, plan: PublishPlan) -> StagedPieceList:
        return decode_piece_list(plan.listed) if plan.listed else unpack(await self._body(plan.list_key))

    async def _appended_records(
        self, ledger: QueryState, plan: PublishPlan, pieces: StagedPieceList
    ) -> dict[TargetPartition, int]:
        """How many records of the plan each partition has already."""
        found = {}
        for target, counts in record_counts(pieces).items():
            await self._brokers.ends(target, sorted(counts))  # the topic is the one that was meant
            for partition in counts:
                lane = TargetPartition(target, partition)
                found[lane] = await self._brokers.appended_records(
                    lane,
                    start=plan.starts[target.id][partition],
                    producer=(ledger.producer_id, ledger.producer_epoch),
                    sequence=ledger.sequences.get(target.id, {}).get(partition, 0),
                )
        return found

    async def _send(
        self,
        ledger: QueryState,
        pieces: StagedPieceList,
        appended_records: dict[TargetPartition, int],
        deadline: _StallDeadline,
    ) -> None:
        numbering = SequenceAssigner(
            producer_id=ledger.producer_id, producer_epoch=ledger.producer_epoch, sequences=ledger.sequences
        )
        for piece in pieces.pieces:
            body = piece.body if not piece.key else await self._body(piece.key)
            queues: dict[TargetPartition, list[SequencedBatch]] = {}
            for batch in numbering.number(pieces, piece, body):
                if batch.ordinal + batch.count > appended_records.get(batch.lane, 0):
                    queues.setdefault(batch.lane, []).append(batch)
            await self._send_queues(queues, deadline)

    async def _send_queues(self, queues: dict[TargetPartition, list[SequencedBatch]], deadline: _StallDeadline) -> None:
        """Batches of a lane one after the other, lanes side by side."""
        for round_number in range(max(map(len, queues.values()), default=0)):
            batches = [queue[round_number] for queue in queues.values() if round_number < len(queue)]
            sent_at_ms = self._clock.boot_ms()
            await self._brokers.send(batches, deadline_ms=deadline.at_ms)
            deadline.moved(sent_at_ms)
            await self._on_step("sent some")

    async def _mark_done(self, key: str, version: int, ledger: QueryState, pieces: StagedPieceList) -> None:
        done = msgspec.structs.replace(
            ledger, plan=None, sequences=next_sequences(ledger, pieces), changed_at_ms=self._clock.now_ms()
        )
        planned = Entry(key, b"", version)
        outcome = await commit_resolved(
            self._store,
            clock=self._clock,
            random=self._random,
            require=[unchanged(key, planned)],
            apply=[Put(key, encode_query_state(done))],
        )
        if not isinstance(outcome, Committed) and not await self._is_done(key, ledger.batch):
            raise CorruptError(f"record {key}", f"batch {ledger.batch} was sent, and its plan is another one now")

    async def _is_done(self, key: str, batch: int) -> bool:
        """Whether the batch is done."""
        entry = await self._store.get(key)
        if entry is None:
            return False
        ledger = decode_query_state(entry)
        return ledger.batch > batch or (ledger.batch == batch and ledger.plan is None)

    async def _clean_up(self, plan: PublishPlan, pieces: StagedPieceList) -> None:
        try:
            await self._objects.delete([*pieces.keys, *([plan.list_key] if plan.list_key else [])])
        except HoldfastError as failure:
            _log.warning("staged pieces are left to the sweeper: %s", failure)

    async def _body(self, key: str) -> bytes:
        body = await self._objects.get(key)
        if isinstance(body, Missing):
            raise _StagedObjectMissingError(key)
        return bytes(body)


class _StagedObjectMissingError(HoldfastError):
    """A staged object is not there: the plan was carried out by somebody else, or something is wrong."""

    def __str__(self) -> str:
        return f"there is no object {self.args[0]}"
