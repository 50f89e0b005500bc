"""A heap partition that is led here: its operations, its timers, and the end of its leadership.

Its rules: decide, append, apply, answer, in this order (`journal`). Everything that time decides becomes a record before it shows:
a delay that is over is a READY, a lease that is over an EXPIRE. A token is valid while it names the current lease in the log.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from itertools import repeat
from typing import Final

import msgspec

from holdfast.heap.decisions import (
    HeapRules,
    decide_due,
    decide_extension,
    decide_failure,
    decide_fairness,
    decide_forget,
    known_enqueue,
    lost_lease,
)
from holdfast.heap.errors import LeaseLostError, MessageNotFoundError, ResourceExhaustedError
from holdfast.heap.fairness.index import Throttled
from holdfast.heap.journal import Journal
from holdfast.heap.lease_token import LeaseToken, encode_tokens, heap_mark
from holdfast.heap.message_id import message_id, message_ids
from holdfast.heap.model import Enqueued, NewMessage, PartitionStats, PeekedMessage, PoppedMessage, StoredMessage
from holdfast.heap.partition_state import PartitionState
from holdfast.heap.payloads import MessageReader, PayloadCache
from holdfast.heap.records import (
    NO_RETRIES_OF_ITS_OWN,
    Ack,
    Cancel,
    Copy,
    Enqueue,
    Move,
    Moved,
    Op,
    Operation,
    Purge,
    Reprioritise,
    Retry,
)
from holdfast.heap.settings import HeapSettings
from holdfast.heap.snapshots import SnapshotKeeper
from holdfast.heap.spine.leader_end import LeaderEnd
from holdfast.heap.spine.link import SpineLink, ready_ranks
from holdfast.heap.spine.takers import Taken, Taker
from holdfast.heap.state_image import StateImage, capture
from holdfast.heap.waiting_pops import WaitingPop, WaitingPops
from holdfast.log.errors import NotLeaderError
from holdfast.log.owned_partition import OwnedPartition
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import MIB
from holdfast.vocabulary.tasks import LoopTurns, Notify

POP_BYTES_MAX: Final = 32 * MIB  # payloads of one answer, however many messages were asked for
_TOGETHER: Final = 1_000  # timers that fire in one step
_IDLE_MS: Final = 60_000
_MOVING_MS: Final = 20


class HeapPartition:
    """One partition during one leadership. `state` is what its log says, `outbox_changed` that there is something to move."""

    def __init__(
        self,
        log: OwnedPartition,
        state: PartitionState,
        rules: HeapRules,
        *,
        payloads: PayloadCache,
        settings: HeapSettings,
        clock: Clock,
        random: Random,
    ) -> None:
        self.log, self.state, self.number = log, state, log.partition_id.number
        self.outbox_changed = Notify()
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
        self._reader = MessageReader(log, payloads, waits=state.__contains__, place=state.place)
        if state.spine_epoch:
            self.link()
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
        self._schedule_timers()
        return first

    def _add_messages(self, messages: Sequence[Enqueue], now_ms: int) -> int:
        ranks = ready_ranks(self.state, messages) if self.spine is not None else ()
        first = self._journal.add_messages(messages, self._journal.checked_bytes(messages), now_ms)
        self._held = self.spine.ready(ranks) if self.spine is not None and ranks else None
        self._schedule_timers()
        return first

    async def _answerable(self) -> None:
        """The operation just added may be answered: it is durable, and no spine would have to know of it first."""
        held, self._held = self._held, None
        await self._journal.durable()
        if held is not None:
            try:
                await held
            except HoldfastError as error:  # it is in the log: to do it again elsewhere would be a second time
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

    # ── producers ──

    async def enqueue(self, messages: Sequence[NewMessage]) -> list[Enqueued]:
        """Enqueue messages, all or none. Returns when they are durable. The caller has checked them.

        `ProducerFencedError`, `SequenceForgottenError`: nothing was enqueued.
        """
        self._journal.check()
        now_ms, state = self._journal.now_ms(), self.state
        window_ms, dedup, next_offset = self.rules.config.dedup_window_ms, state.dedup, state.next_offset
        keys = [message.producer for message in messages]
        if not any(keys) or dedup.is_next_run(keys):
            new = _records(messages, now_ms)
            first = self._add_messages(new, now_ms)
            self._reader.keep(first, new, now_ms)
            await self._answerable()
            offsets = range(first, first + len(new))
            ids = message_ids(self._topic_id, self.number, offsets, (now_ms,) * len(new))
            each = zip(ids, repeat(False), repeat(self.number), strict=False)
            return list(map(tuple.__new__, repeat(Enqueued), each))
        places: list[tuple[int, int]] = []  # offset and time
        duplicates: list[bool] = []
        chosen: list[NewMessage] = []
        here: dict[object, int] = {}  # keys of this call
        for message in messages:
            key = message.producer
            if key is not None:
                known = None if dedup.is_next(key) else known_enqueue(state, key, window_ms, now_ms)
                if known is not None or key in here:
                    places.append(known if known is not None else (here[key], now_ms))
                    duplicates.append(True)
                    continue
                here[key] = next_offset + len(chosen)
            places.append((next_offset + len(chosen), now_ms))
            duplicates.append(False)
            chosen.append(message)
        new = _records(chosen, now_ms)
        if new:
            first = self._add_messages(new, now_ms)
            self._reader.keep(first, new, now_ms)
        self.duplicates += len(messages) - len(new)
        await (self._answerable() if new else self._journal.durable())
        offsets_known, times = zip(*places, strict=True)
        ids = message_ids(self._topic_id, self.number, offsets_known, times)
        return [Enqueued(each, again, self.number) for each, again in zip(ids, duplicates, strict=True)]

    # ── consumers ──

    async def pop(self, *, count: int, consumer: str, visibility_ms: int, wait_ms: float) -> list[PoppedMessage]:
        """Lease up to `count` messages, the best ones here; none after `wait_ms` without any.

        `ResourceExhaustedError`: the consumer has all the leases it may have. At the limit of the heap a pop waits.
        """
        self._journal.check()
        pop = WaitingPop(count, consumer, visibility_ms)
        self._pops.add(pop)
        self._serve_pops()
        try:
            if not pop.done.done():
                await self._wait(pop.done, wait_ms)
            if not pop.done.done():
                return []
            pop.done.result()
            return await self._granted(pop)
        except BaseException:
            self._give_back(pop)
            raise
        finally:
            self._pops.remove(pop)

    async def _granted(self, pop: WaitingPop, bytes_max: int = POP_BYTES_MAX) -> list[PoppedMessage]:
        """The messages of a pop, once their GRANT is durable: the first ones if all would be too large, the rest waits again."""
        grant = pop.grant
        assert grant is not None
        offsets = [offset for offset, _ in grant.entries]
        failed = self.state.attempts
        attempts = [failed.get(offset, 0) for offset in offsets] if failed else [0] * len(offsets)
        await self._journal.durable()
        messages = await self._reader.read_first(offsets, bytes_max)
        if len(messages) < len(offsets):
            self._give_back(pop, beyond=len(messages))
            offsets, attempts = offsets[: len(messages)], attempts[: len(messages)]
        if not messages:
            return []
        stored, times = zip(*messages, strict=True)
        _, payloads, _, retries, producers, partition_keys, _, headers, fairness_keys = zip(*stored, strict=True)
        number, own = self.number, self.rules.config.max_retries
        each = zip(
            message_ids(self._topic_id, number, offsets, times),
            *(repeat(self.rules.topic), repeat(number), payloads),
            [priority for _, priority in grant.entries[: len(messages)]],
            times,
            encode_tokens(number, grant.epoch, pop.granted_at, offsets, self._mark),
            *(repeat(grant.deadline_ms), attempts),
            [own if limit == NO_RETRIES_OF_ITS_OWN else limit for limit in retries],
            *(producers, partition_keys, headers, repeat(0), fairness_keys),
            repeat(self.state.fair_rules.has_limits),
            strict=False,
        )
        return list(map(tuple.__new__, repeat(PoppedMessage), each))

    async def _wait(self, done: "asyncio.Future[None]", wait_ms: float) -> None:
        if wait_ms <= 0:
            return
        sleep = asyncio.ensure_future(self._clock.sleep_ms(wait_ms))
        try:
            await asyncio.wait({done, sleep}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()

    def _give_back(self, pop: WaitingPop, beyond: int = 0) -> None:
        """The messages of a pop that nobody receives: they wait again, and it does not count."""
        if pop.grant is not None and self._journal.ended is None:
            leases = ((offset, self.state.leases.get(offset)) for offset, _ in pop.grant.entries[beyond:])
            mine = tuple(
                (offset, 0) for offset, lease in leases if lease is not None and lease.granted_at == pop.granted_at
            )
            if mine:
                self._add((Retry(Op.RELEASE, mine),))

    # ── its spine ──

    def link(self) -> SpineLink:
        """The link to its spine; there is one from the first hello on, and from the start if the log knows of a spine."""
        if self.spine is None:
            end = LeaderEnd(self.number, self.log.epoch, spine_epoch=self.state.spine_epoch, unknown_to_spines=True)
            self.spine = SpineLink(self, end)
            self.spine.opened()
        return self.spine

    def add(self, operations: Sequence[Operation]) -> int:
        """Append operations of the spine's protocol."""
        self._journal.check()
        return self._add(operations)

    async def durable(self) -> None:
        """Everything added so far is durable."""
        await self._journal.durable()

    def grant(self, takers: Sequence[Taker], count: int) -> "PartitionGrants":
        """Lease the best messages to takers, at most `count`, in their order."""
        self._journal.check()
        grants = PartitionGrants(self)
        for taker in takers:
            pop = WaitingPop(min(taker.count, count), taker.consumer, taker.visibility_ms)
            if pop.count:
                refusal = self._pops.grant(pop, self.rules)
                count -= len(pop.grant.entries) if pop.grant is not None else 0
                grants.add(pop, refusal)
        self._schedule_timers()
        return grants

    async def taken(self, pop: WaitingPop, bytes_max: int) -> list[PoppedMessage]:
        """The messages that were granted to a pop, once that is durable, and as far as they are not too large together."""
        return await self._granted(pop, bytes_max)

    def give_back(self, pop: WaitingPop) -> None:
        """Nobody receives the messages of a pop."""
        self._give_back(pop)

    async def ack(self, tokens: Sequence[LeaseToken]) -> list[LeaseLostError | None]:
        """The messages are done. For each token: None, or why its lease is not the current one."""
        held, results = self._current(tokens)
        if held:
            offsets = tuple([token.offset for token in held])
            self._add((Ack(offsets),))
            self._reader.forget(offsets)
            await self._journal.durable()
        return results

    async def nack(
        self, tokens: Sequence[LeaseToken], *, backoff_ms: int | None = None, reason: str = "", op: Op = Op.NACK
    ) -> list[LeaseLostError | None]:
        """The messages failed, and are tried again after a pause, or go to the dead letters. RELEASE: they did not fail."""
        held, results = self._current(tokens)
        if held:
            operations = decide_failure(
                self.state,
                self.rules,
                op,
                [token.offset for token in held],
                now_ms=self._journal.now_ms(),
                random=self._random,
                backoff_ms=backoff_ms,
                reason=reason,
            )
            self._add(operations)
            await self._answerable()
        return results

    async def extend(self, tokens: Sequence[LeaseToken], extension_ms: int) -> list[int | LeaseLostError]:
        """Deadlines `extension_ms` from now, capped; of each token the new one, or why its lease is not the current one."""
        held, lost = self._current(tokens)
        results: list[int | LeaseLostError] = []
        deadlines: dict[int, int] = {}
        if held:
            extension = decide_extension(self.state, self.rules, held, extension_ms, self._journal.now_ms())
            deadlines = dict(extension.entries)
            self._add((extension,))
            await self._journal.durable()
        for token, error in zip(tokens, lost, strict=True):
            results.append(deadlines[token.offset] if error is None else error)
        return results

    def _current(self, tokens: Sequence[LeaseToken]) -> tuple[list[LeaseToken], list[LeaseLostError | None]]:
        """The tokens that name current leases, each once, and for every token what is wrong with it."""
        self._journal.check()
        held: dict[int, LeaseToken] = {}
        results: list[LeaseLostError | None] = []
        leases, mark = self.state.leases, self._mark
        for token in tokens:
            _, epoch, offset, granted_at, heap = token
            lease = leases.get(offset)
            if lease is not None and lease[3] == granted_at and lease[4] == epoch and heap == mark:
                held[offset] = token  # a message has one current lease, so this is the only token of it
                results.append(None)
                continue
            if heap != mark:
                results.append(LeaseLostError(self.rules.topic, "", "it is a lease of another heap"))
            else:
                results.append(lost_lease(self.state, self.rules.topic, token))
        return list(held.values()), results

    # ── operators ──

    async def peek(self, count: int) -> list[PeekedMessage]:
        """The messages that would be popped next."""
        self._journal.check()
        top = [(offset, self.state.priority(rank)) for rank, offset in self.state.ready.peek(count)]
        await self._journal.durable()
        first = await self._reader.read_first([offset for offset, _ in top], POP_BYTES_MAX)
        return await self._peeked(top[: len(first)])

    async def find(self, offsets: Collection[int]) -> list[PeekedMessage]:
        """Messages that wait or are leased, by their offsets; those that are gone are left out."""
        self._journal.check()
        here = [offset for offset in offsets if offset in self.state]
        await self._journal.durable()
        return await self._peeked([(offset, None) for offset in here])

    async def _peeked(self, chosen: Sequence[tuple[int, int | None]]) -> list[PeekedMessage]:
        stored = await self._reader.read([offset for offset, _ in chosen])
        return [
            PeekedMessage(
                self._message_id(offset, stored[offset]),
                self.number,
                stored[offset].enqueue.payload,
                self.state.priority_of(offset, stored[offset].enqueue.priority) if priority is None else priority,
                stored[offset].enqueued_ms,
                self.state.attempts.get(offset, 0),
                stored[offset].enqueue.partition_key,
                stored[offset].enqueue.headers,
                stored[offset].enqueue.origin,
                stored[offset].enqueue.fairness_key,
            )
            for offset, priority in chosen
        ]

    async def cancel(self, offsets: Collection[int]) -> list[int]:
        """Withdraw messages, leased or not; those that were there."""
        return await self._change(offsets, lambda here: Cancel(tuple(here)))

    async def reprioritise(self, offset: int, priority: int, message: str) -> None:
        """Give a message another priority. One that is leased has it when it comes back. `MessageNotFoundError`."""
        if not await self._change((offset,), lambda here: Reprioritise(((offset, priority),))):
            raise MessageNotFoundError(self.rules.topic, message)

    async def _change(self, offsets: Collection[int], operation: Callable[[Sequence[int]], Operation]) -> list[int]:
        self._journal.check()
        here = list(dict.fromkeys(offset for offset in offsets if offset in self.state))
        if here:
            self._add((operation(here),))
            await self._answerable()
        return here

    async def purge(self) -> int:
        """Withdraw every message that is here now; how many."""
        self._journal.check()
        count = len(self.state)
        if count:
            self._add((Purge(self.state.next_offset),))
            await self._journal.durable()
        return count

    async def move(self, moves: Sequence[Move]) -> int:
        """Send messages to other heaps; how many were still here. They arrive soon after."""
        self._journal.check()
        here = [move for move in moves if move.offset in self.state]
        if here:
            self._add(here)
            await self._journal.durable()
        return len(here)

    async def moved(self, moves: Sequence[int]) -> None:
        """These moves have arrived."""
        self._journal.check()
        self._add((Moved(tuple(moves)),))
        await self._journal.durable()

    async def stored(self, offsets: Sequence[int], bytes_max: int) -> list[StoredMessage]:
        """The first of these messages, as the log has them, also of those that are gone, when everything so far is durable."""
        self._journal.check()
        await self._journal.durable()
        return await self._reader.read_first(offsets, bytes_max)

    async def stored_at(self, offsets: Collection[int]) -> dict[int, StoredMessage]:
        """All of these messages, as `stored`, by their offsets."""
        self._journal.check()
        await self._journal.durable()
        return await self._reader.read(offsets)

    # ── its history ──

    def now_ms(self) -> int:
        """The time of this leadership."""
        return self._journal.now_ms()

    def image(self) -> StateImage:
        """A copy of the state, for a snapshot."""
        self._journal.check()
        return capture(self.state)

    async def copy_forward(self, offsets: Collection[int]) -> int:
        """Write messages again, those that are still needed, so that their records may go; how many bytes. Returns when durable."""
        stored = await self.stored_at(offsets)
        self._journal.check()
        copies = [Copy(offset, stored[offset].enqueued_ms, stored[offset].enqueue) for offset in offsets]
        copies = [copy for copy in copies if self.state.needs(copy.offset)]
        for copy in copies:
            self._add((copy,), self._journal.checked_bytes((copy.enqueue,)))
        await self._journal.durable()
        return sum(len(copy.enqueue.payload) for copy in copies)

    def stats(self) -> PartitionStats:
        """How many messages are where."""
        state, counters = self.state, self.state.counters
        throttled = state.fair.throttled() if state.fair is not None else Throttled()
        newest = self.snapshots.newest if self.snapshots is not None else None
        return PartitionStats(
            partition=self.number,
            ready=len(state.ready),
            delayed=len(state.delayed),
            inflight=len(state.leases),
            moving=len(state.outbox),
            duplicates=self.duplicates,
            snapshot_bytes=newest.size_bytes if newest is not None else 0,
            snapshot_age_ms=max(0, self.now_ms() - newest.taken_at_ms) if newest is not None else -1,
            snapshot_pause_ms=self.snapshots.figures.pause_ms if self.snapshots is not None else 0.0,
            keys=throttled.keys,
            keys_at_limit=throttled.by_leases,
            keys_at_rate=throttled.by_rate,
            **msgspec.structs.asdict(counters),
        )

    def _message_id(self, offset: int, stored: StoredMessage) -> str:
        return message_id(self._topic_id, self.number, offset, stored.enqueued_ms)


class PartitionGrants:
    """The grants of one pop of a spine."""

    def __init__(self, partition: HeapPartition) -> None:
        self._partition = partition
        self._pops: list[tuple[WaitingPop, ResourceExhaustedError | None]] = []

    def add(self, pop: WaitingPop, refusal: ResourceExhaustedError | None) -> None:
        """A taker's share was decided."""
        self._pops.append((pop, refusal))

    @property
    def ranks(self) -> list[int]:
        """The ranks of the messages that were granted, in their order."""
        granted = [pop.grant for pop, _ in self._pops if pop.grant is not None]
        return [self._partition.state.rank(priority) for grant in granted for _, priority in grant.entries]

    async def messages(self) -> list[Taken]:
        """What each taker got, once it is durable."""
        found = []
        left = POP_BYTES_MAX
        for pop, refusal in self._pops:
            messages: Sequence[PoppedMessage] = ()
            if pop.grant is not None and left > 0:
                messages = await self._partition.taken(pop, left)
                left -= sum([len(message.payload) for message in messages])
            else:
                self._partition.give_back(pop)
            found.append(
                Taken(tuple(messages), None if refusal is None else (refusal.what, refusal.used, refusal.limit))
            )
        return found

    def give_back(self) -> None:
        """Nobody gets them."""
        for pop, _ in self._pops:
            self._partition.give_back(pop)


def _records(messages: Sequence[NewMessage], now_ms: int) -> list[Enqueue]:
    """The records of new messages. Made without a call for each: this is what every message passes."""
    fields = [
        (
            message.priority,
            message.payload,
            now_ms + message.delay_ms if message.delay_ms > 0 else 0,
            NO_RETRIES_OF_ITS_OWN if message.max_retries is None else message.max_retries,
            message.producer,
            message.partition_key,
            message.origin,
            message.headers,
            message.fairness_key,
        )
        for message in messages
    ]
    return list(map(tuple.__new__, repeat(Enqueue), fields))
