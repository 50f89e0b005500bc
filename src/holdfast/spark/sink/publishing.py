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

from holdfast.contracts.objects import Missing, Objects
from holdfast.contracts.store import Committed, Delete, Entry, Put, Store
from holdfast.contracts.surely import commit_surely
from holdfast.spark.sink.brokers import Brokers, SupersededError
from holdfast.spark.sink.lanes import Lane, Numbered, Numbering
from holdfast.spark.sink.ledger import (
    SWEPT,
    Ledger,
    Plan,
    advanced,
    counted,
    ledger_key,
    listed,
    oldest_hour,
    read_ledger,
    read_swept,
    unlisted,
    unmoved,
    write_ledger,
)
from holdfast.spark.sink.pieces import PieceList, hour_of, pack, staged_key, unpack
from holdfast.vocabulary.clock import Chance, Clock
from holdfast.vocabulary.errors import CorruptError, ExpiredError, HoldfastError

_log: Final = logging.getLogger(__name__)

PUBLISH_MS_MAX: Final = 12 * 3_600_000

Step = Callable[[str], Awaitable[None]]


async def nothing(step: str) -> None:
    """What is done at each step unless a test wants to know of it."""


@dataclass(frozen=True, slots=True)
class Published:
    """What became of a batch. `anew` is False where somebody had planned it before: then these pieces were not used."""

    records: int
    anew: bool


class _Deadline:
    """When to stop: a while after the last progress, and after half of the time brokers remember a producer for, anyway."""

    def __init__(self, now_ms: int, stall_ms: int) -> None:
        self._stall_ms, self._last_ms = stall_ms, now_ms + PUBLISH_MS_MAX
        self.at_ms = min(now_ms + stall_ms, self._last_ms)

    def moved(self, sent_at_ms: int) -> None:
        """What was sent then, was taken."""
        self.at_ms = min(sent_at_ms + self._stall_ms, self._last_ms)


class Publisher:
    """Publishes the batches of queries, one after the other. `on_step` is told of every state that is reached."""

    def __init__(
        self,
        *,
        store: Store,
        objects: Objects,
        brokers: Brokers,
        clock: Clock,
        chance: Chance,
        stall_ms_max: int = 600_000,
        on_step: Step = nothing,
    ) -> None:
        self._store, self._objects, self._brokers = store, objects, brokers
        self._clock, self._chance = clock, chance
        self._stall_ms_max, self._on_step = stall_ms_max, on_step

    async def publish(self, query: str, batch: int, pieces: PieceList) -> Published:
        """Publish batch `batch` of the query, exactly once, whoever else is at it.

        A batch that was planned before is finished as planned, and `pieces` are thrown away.
        """
        await self._on_step("staged")
        key = ledger_key(query)
        while True:
            deadline = _Deadline(self._clock.boot_ms(), self._stall_ms_max)
            entry = await self._store.get(key)
            ledger = read_ledger(entry) if entry is not None else None
            if ledger is not None and ledger.plan is not None:
                assert entry is not None
                await self._carry_out(key, entry.version, ledger, mine=False, deadline=deadline)
                continue
            if ledger is not None and ledger.batch >= batch:
                await self.discard(pieces)
                return Published(0, anew=False)
            if not pieces.records:
                return Published(0, anew=True)
            planned, version = await self._plan(key, entry, ledger, batch, pieces)
            if version is None:
                continue
            await self._on_step("planned")
            await self._carry_out(key, version, planned, mine=True, deadline=deadline)
            return Published(pieces.records, anew=True)

    async def discard(self, pieces: PieceList) -> None:
        """Remove what was staged and is in no plan. What is left behind, the sweeper finds."""
        try:
            await self._objects.delete(pieces.keys)
        except HoldfastError as failure:
            _log.warning("staged pieces are left to the sweeper: %s", failure)

    async def abandon(self, query: str, batch: int, pieces: PieceList) -> None:
        """The batch failed here: remove its pieces if it is done anyway.

        Otherwise they stay for the sweeper: a commit that is still on its way might name them.
        """
        if await self._overtaken(ledger_key(query), batch):
            await self.discard(pieces)

    async def forget(self, query: str) -> None:
        """Remove the record of a query that is done and will never be asked for again."""
        entry = await self._store.get(ledger_key(query))
        if entry is not None and read_ledger(entry).plan is None:
            await self._store.commit(require=[unmoved(entry.key, entry)], apply=[Delete(entry.key)])

    async def _plan(
        self, key: str, entry: Entry | None, ledger: Ledger | None, batch: int, pieces: PieceList
    ) -> tuple[Ledger, int | None]:
        """Write the plan; the version it has then, or None if somebody was faster."""
        producer = (ledger.producer_id, ledger.producer_epoch) if ledger else await self._brokers.new_producer()
        text, list_key, keys = listed(pieces), "", pieces.keys
        if not text:
            list_key = staged_key(hour_of(self._clock.now_ms()), self._chance.token())
            await self._objects.put(list_key, [pack(pieces)])
            keys = [*keys, list_key]
        starts = {
            target.id: await self._brokers.ends(target, sorted(counts)) for target, counts in counted(pieces).items()
        }
        planned = Ledger(
            batch=batch,
            producer_id=producer[0],
            producer_epoch=producer[1],
            sequences=ledger.sequences if ledger is not None else {},
            plan=Plan(listed=text, list_key=list_key, oldest_hour=oldest_hour(keys), starts=starts),
            changed_at_ms=self._clock.now_ms(),
        )
        return planned, await self._write_plan(key, entry, planned, keys)

    async def _write_plan(self, key: str, entry: Entry | None, planned: Ledger, keys: list[str]) -> int | None:
        value = write_ledger(planned)
        while True:
            swept = await self._store.get(SWEPT)
            if keys and oldest_hour(keys) < read_swept(swept).before_hour:
                raise ExpiredError("what was staged", "it waited for so long that the sweeper took it for left behind")
            outcome = await commit_surely(
                self._store,
                clock=self._clock,
                chance=self._chance,
                require=[unmoved(key, entry), unmoved(SWEPT, swept)],
                apply=[Put(key, value)],
            )
            if isinstance(outcome, Committed):
                return outcome.version
            found = outcome.found.get(key)
            if (found.version if found else None) != (entry.version if entry else None):
                return None

    async def _carry_out(self, key: str, version: int, ledger: Ledger, *, mine: bool, deadline: _Deadline) -> None:
        """Do what the plan says, and mark it done. Returns as well if somebody else has done it meanwhile."""
        assert ledger.plan is not None
        try:
            pieces = await self._pieces(ledger.plan)
            standing = {} if mine else await self._standing(ledger, ledger.plan, pieces)
            await self._send(ledger, pieces, standing, deadline)
            await self._on_step("sent")
        except (SupersededError, _GoneError) as failure:
            if not await self._overtaken(key, ledger.batch):
                raise CorruptError(f"plan of batch {ledger.batch} of {key}", str(failure)) from failure
            return
        await self._mark_done(key, version, ledger, pieces)
        await self._on_step("done")
        await self._clean_up(ledger.plan, pieces)
        await self._on_step("cleaned")

    async def _pieces(self, plan: Plan) -> PieceList:
        return unlisted(plan.listed) if plan.listed else unpack(await self._body(plan.list_key))

    async def _standing(self, ledger: Ledger, plan: Plan, pieces: PieceList) -> dict[Lane, int]:
        """How many records of the plan each partition has already."""
        found = {}
        for target, counts in counted(pieces).items():
            await self._brokers.ends(target, sorted(counts))  # the topic is the one that was meant
            for partition in counts:
                lane = Lane(target, partition)
                found[lane] = await self._brokers.standing(
                    lane,
                    start=plan.starts[target.id][partition],
                    producer=(ledger.producer_id, ledger.producer_epoch),
                    sequence=ledger.sequences.get(target.id, {}).get(partition, 0),
                )
        return found

    async def _send(self, ledger: Ledger, pieces: PieceList, standing: dict[Lane, int], deadline: _Deadline) -> None:
        numbering = Numbering(
            producer_id=ledger.producer_id, producer_epoch=ledger.producer_epoch, sequences=ledger.sequences
        )
        for piece in pieces.pieces:
            body = piece.body if not piece.key else await self._body(piece.key)
            queues: dict[Lane, list[Numbered]] = {}
            for batch in numbering.number(pieces, piece, body):
                if batch.ordinal + batch.count > standing.get(batch.lane, 0):
                    queues.setdefault(batch.lane, []).append(batch)
            await self._send_queues(queues, deadline)

    async def _send_queues(self, queues: dict[Lane, list[Numbered]], deadline: _Deadline) -> None:
        """Batches of a lane one after the other, lanes side by side."""
        for round_number in range(max(map(len, queues.values()), default=0)):
            batches = [queue[round_number] for queue in queues.values() if round_number < len(queue)]
            sent_at_ms = self._clock.boot_ms()
            await self._brokers.send(batches, deadline_ms=deadline.at_ms)
            deadline.moved(sent_at_ms)
            await self._on_step("sent some")

    async def _mark_done(self, key: str, version: int, ledger: Ledger, pieces: PieceList) -> None:
        done = msgspec.structs.replace(
            ledger, plan=None, sequences=advanced(ledger, pieces), changed_at_ms=self._clock.now_ms()
        )
        planned = Entry(key, b"", version)
        outcome = await commit_surely(
            self._store,
            clock=self._clock,
            chance=self._chance,
            require=[unmoved(key, planned)],
            apply=[Put(key, write_ledger(done))],
        )
        if not isinstance(outcome, Committed) and not await self._overtaken(key, ledger.batch):
            raise CorruptError(f"record {key}", f"batch {ledger.batch} was sent, and its plan is another one now")

    async def _overtaken(self, key: str, batch: int) -> bool:
        """Whether the batch is done."""
        entry = await self._store.get(key)
        if entry is None:
            return False
        ledger = read_ledger(entry)
        return ledger.batch > batch or (ledger.batch == batch and ledger.plan is None)

    async def _clean_up(self, plan: Plan, pieces: PieceList) -> None:
        try:
            await self._objects.delete([*pieces.keys, *([plan.list_key] if plan.list_key else [])])
        except HoldfastError as failure:
            _log.warning("staged pieces are left to the sweeper: %s", failure)

    async def _body(self, key: str) -> bytes:
        body = await self._objects.get(key)
        if isinstance(body, Missing):
            raise _GoneError(key)
        return bytes(body)


class _GoneError(HoldfastError):
    """A staged object is not there: the plan was carried out by somebody else, or something is wrong."""

    def __str__(self) -> str:
        return f"there is no object {self.args[0]}"
