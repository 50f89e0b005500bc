"""What every operation of a heap partition goes through: its journal, its timers, and the end of its leadership.

Everything that time decides becomes a record before it shows: a delay that is over is a READY, a lease that is over an EXPIRE.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.heap.decisions import (
    HeapRules,
    decide_due,
    decide_failure,
    decide_fairness,
    decide_forget,
)
from holdfast.heap.journal import Journal
from holdfast.heap.lease_token import heap_mark
from holdfast.heap.partition_state import HeapState
from holdfast.heap.payloads import MessageReader, PayloadCache
from holdfast.heap.records import (
    Enqueue,
    Move,
    Op,
    Operation,
)
from holdfast.heap.settings import HeapSettings
from holdfast.heap.snapshots import SnapshotKeeper
from holdfast.heap.spine.link import SpineLink, ready_ranks
from holdfast.heap.waiting_pops import WaitingPops
from holdfast.log.errors import NotLeaderError
from holdfast.log.owned_partition import OwnedPartition
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import LoopTurns, Notify

_TOGETHER: Final = 1_000  # timers that fire in one step
_IDLE_MS: Final = 60_000
_MOVING_MS: Final = 20
_LOOK_MS: Final = 500  # between two looks at whether a backlog is worth being copied


class PartitionCore:
    """One partition during one leadership. `state` is what its log says, `outbox_changed` that there is something to move."""

    def __init__(
        self,
        log: OwnedPartition,
        state: HeapState,
        rules: HeapRules,
        *,
        payloads: PayloadCache,
        settings: HeapSettings,
        clock: Clock,
        random: Random,
    ) -> None:
        self.log, self.state, self.number = log, state, log.partition_id.number
        self.outbox_changed = Notify()
        self.batches_changed = Notify()  # a batch was prepared, or is to be ended
        self.duplicates = 0
        self.snapshots: SnapshotKeeper | None = None  # set where snapshots are taken
        self.spine: SpineLink | None = None  # None: no spine knows this partition
        self._held: asyncio.Future[None] | None = None  # what the last operation's answer waits for, beside durability
        self._settings, self._clock, self._random = settings, clock, random
        self._topic_id = bytes.fromhex(log.partition_id.topic_id)
        self._mark = heap_mark(self._topic_id)
        self._journal = Journal(
            log, state, clock=clock, append_bytes=settings.append_bytes, before_append=self._serve_pops
        )
        self.apply_ms = self._journal.apply_ms
        self._woken_for_ms: int | None = None  # when `run` looks at timers next
        self._begins = True  # until the rules of fairness were compared with the log's
        self.rules = rules
        self._pops = WaitingPops(
            state, epoch=log.epoch, now_ms=self._journal.now_ms, add=lambda grant: self._journal.add((grant,))
        )
        self._reader = MessageReader(log, payloads, state, durable=self._journal.durable)
        self._forget_at_ms = 0

    # ── lifecycle ──

    @property
    def rules(self) -> HeapRules:
        """The heap's settings; they may be changed at any time."""
        return self._rules

    @rules.setter
    def rules(self, rules: HeapRules) -> None:
        self._rules = rules
        self._journal.compression = rules.config.compression
        self._journal.schedule()  # pops may have room now
        if not self._begins:
            self.log_rules()

    def log_rules(self) -> None:
        """Have the rules of fairness in the log, if they are others, or the clock went back. Called before anything is served.

        Where nothing is taken just now, `run` does it.
        """
        try:
            self._journal.check()
        except (NotLeaderError, UnavailableError):
            self._journal.wake.notify()
            return
        rules = decide_fairness(self.state, self.rules, self._journal.now_ms(), begins=self._begins)
        self._begins = False
        if rules is not None:
            self._add((rules,))

    @property
    def ended(self) -> HoldfastError | None:
        """Why this view ended, if it did."""
        return self._journal.ended

    def end(self, error: HoldfastError) -> None:
        """The leadership is over: everybody who waits is told."""
        self._journal.end(error)
        self._pops.fail(error)
        if self.spine is not None:
            self.spine.end(error)
        self._reader.close()
        self.outbox_changed.notify()

    async def run(self) -> None:
        """Fire timers until the view has ended."""
        turns = LoopTurns()
        try:
            while self._journal.ended is None:
                await self._journal.append_deferred()
                try:
                    self._journal.check()
                except UnavailableError:  # it may be moving, or stay after all
                    await self._journal.wake.wait_ms(self._clock, _MOVING_MS)
                    continue
                self._woken_for_ms = None
                now_ms = self._journal.now_ms()
                if self._fire(now_ms):
                    await turns.next()
                else:
                    self._woken_for_ms = self._next_timer_ms(now_ms)
                    await self._journal.wake.wait_ms(self._clock, max(0, self._woken_for_ms - now_ms))
        except HoldfastError as error:
            self.end(error)
        if self._journal.ended is not None:
            self.end(self._journal.ended)

    async def copy_backlog(self) -> None:
        """Have a large backlog copied in the order of pops before anybody pops it, at a rate, until the view has ended."""
        rate = self._settings.spill_bytes_per_s
        while rate and self._journal.ended is None:
            copied_bytes = await self._reader.ahead.prepare()
            await self._clock.sleep_ms(max(_LOOK_MS, copied_bytes * 1000 / rate))

    def _fire(self, now_ms: int) -> bool:
        """Do what is due; whether there was anything."""
        due: list[Operation] = []
        self.log_rules()
        self._open_limits(now_ms)
        ready = decide_due(self.state, now_ms, _TOGETHER)
        if ready is not None:
            due.append(ready)
        overdue = self.state.overdue(now_ms, _TOGETHER)
        due += decide_failure(self.state, self.rules, Op.EXPIRE, overdue, now_ms=now_ms, random=self._random)
        if now_ms >= self._forget_at_ms:
            self._forget_at_ms = now_ms + _IDLE_MS
            forget = decide_forget(
                self.state,
                window_ms=self.rules.config.dedup_window_ms,
                count_max=self._settings.dedup_entries_max,
                now_ms=now_ms,
            )
            due += [forget] if forget is not None else []
        if due:
            self._add(due)
        return bool(due)

    def _open_limits(self, now_ms: int) -> None:
        """Hand out what rates have held back until now."""
        fair = self.state.fair
        if fair is not None and fair.tick(now_ms):
            self._tell_opened()
            self._journal.schedule()

    def _tell_opened(self) -> None:
        if self.spine is not None and self.state.fair is not None:
            self.spine.opened()

    def _next_open_ms(self) -> int | None:
        return None if self.state.fair is None else self.state.fair.next_tick_ms()

    def _next_timer_ms(self, now_ms: int) -> int:
        times = (self.state.next_ready_ms(), self.state.next_deadline_ms(), self._forget_at_ms, self._next_open_ms())
        return min([now_ms + _IDLE_MS, *(time for time in times if time is not None)])

    def _add(self, operations: Sequence[Operation], size_bytes: int = 0) -> int:
        ranks = ready_ranks(self.state, operations) if self.spine is not None else ()
        first = self._journal.add(operations, size_bytes)
        self._held = self.spine.ready(ranks) if self.spine is not None and ranks else None
        self._tell_opened()
        if any(isinstance(operation, Move) for operation in operations):
            self.outbox_changed.notify()
        self._added()
        return first

    def _add_messages(self, messages: Sequence[Enqueue], now_ms: int) -> int:
        ranks = ready_ranks(self.state, messages) if self.spine is not None else ()
        first = self._journal.add_messages(messages, self._journal.checked_bytes(messages), now_ms)
        self._held = self.spine.ready(ranks) if self.spine is not None and ranks else None
        self._added()
        return first

    def _added(self) -> None:
        self._schedule_timers()
        if self.snapshots is not None:
            self.snapshots.added(self.state.next_offset)

    async def _answerable(self) -> None:
        """The operation just added may be answered: it is durable, and no spine would have to know of it first."""
        await self._told(self._take_held())

    def _take_held(self) -> "asyncio.Future[None] | None":
        """What the answer to the operation just added waits for."""
        held, self._held = self._held, None
        return held

    def _repeated(self, offsets: Iterable[int]) -> "asyncio.Future[None] | None":
        """What the answer to repeated enqueues waits for: the first call may still wait for the spine, or have waited elsewhere.

        It is one more event, of the least rank there is, so that it waits for no less than they do.
        """
        if self.spine is None or not any(offset in self.state.ready for offset in offsets):
            return None
        return self.spine.ready((0,))

    async def _told(self, *held: "asyncio.Future[None] | None") -> None:
        """What was added is durable, and the spine knows what it has to. Nothing is kept of a wait that is given up.

        `OutcomeUnknownError`: it is in the log, and to do it again elsewhere would be a second time.
        """
        waiting = [each for each in held if each is not None]
        try:
            await self._journal.durable()
            if waiting:
                await self._spine_knows(waiting)
        finally:
            for each in waiting:
                each.cancel()

    async def _spine_knows(self, waiting: "Sequence[asyncio.Future[None]]") -> None:
        """Bounded: who asked may be gone without a word, and ask again, while a spine is away for hours."""
        within_ms = self._settings.spine_wait_ms
        try:
            if all(each.done() for each in waiting):  # before the operation was durable, as nearly always
                for each in waiting:
                    each.result()
                return
            async with asyncio.timeout(within_ms / 1000):
                for each in waiting:
                    await each
        except TimeoutError:
            why = f"its spine did not answer within {within_ms} ms"
            raise OutcomeUnknownError(f"operation of {self.log.partition_id}", why) from None
        except HoldfastError as error:
            raise OutcomeUnknownError(f"operation of {self.log.partition_id}", str(error)) from error

    def _schedule_timers(self) -> None:
        """Wake `run` if something is due before it looks."""
        if self._woken_for_ms is None:
            return
        for time_ms in (self.state.next_ready_ms(), self.state.next_deadline_ms(), self._next_open_ms()):
            if time_ms is not None and time_ms < self._woken_for_ms:
                self._woken_for_ms = None
                self._journal.wake.notify()
                return

    def _serve_pops(self) -> None:
        if self._pops:
            self._pops.serve(self.rules)
            self._schedule_timers()

    # ── for those who do more than one thing ──

    def now_ms(self) -> int:
        """The time of this leadership."""
        return self._journal.now_ms()

    def add(self, operations: Sequence[Operation]) -> int:
        """Append operations of the spine's protocol."""
        self._journal.check()
        return self._add(operations)

    async def durable(self) -> None:
        """Everything added so far is durable."""
        await self._journal.durable()

    def removals_durable(self) -> "asyncio.Future[None]":
        """Done once every message that is not ready any more is so durably."""
        return self._journal.removals_durable()

    async def confirm(self) -> None:
        """Raise unless the store knows of no later leader. `NotLeaderError`, `UnavailableError`."""
        await self.log.confirm()
