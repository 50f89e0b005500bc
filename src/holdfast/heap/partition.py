"""A heap partition that is led here, as producers, consumers, batches and its spine use it.

Its rules: decide, append, apply, answer, in this order (`journal`). A token is valid while it names the current lease in the log.
"""

import asyncio
from collections.abc import Sequence
from itertools import repeat

from holdfast.heap.batch.coordinator import Promise
from holdfast.heap.batch.messages import Prepare, Promised
from holdfast.heap.batch.model import Prepared, Resolved
from holdfast.heap.batch.reservation import check_not_reserved, decide_reservation
from holdfast.heap.decisions import (
    HeapRules,
    check_epoch_here,
    decide_extension,
    decide_failure,
    known_enqueue,
    lost_lease,
)
from holdfast.heap.errors import LeaseLostError
from holdfast.heap.inspected_partition import InspectedPartition
from holdfast.heap.lease_token import LeaseToken, encode_tokens
from holdfast.heap.message_id import PARTITIONS_MAX, message_ids
from holdfast.heap.model import Enqueued, NewMessage, PoppedMessage
from holdfast.heap.partition_grants import PartitionGrants
from holdfast.heap.partition_state import HeapState
from holdfast.heap.payloads import PayloadCache
from holdfast.heap.records import (
    NO_RETRIES_OF_ITS_OWN,
    Ack,
    Enqueue,
    Op,
    Operation,
    Reserve,
    Retry,
)
from holdfast.heap.settings import HeapSettings
from holdfast.heap.spine.leader_end import LeaderEnd
from holdfast.heap.spine.link import SpineLink
from holdfast.heap.spine.takers import Taker
from holdfast.heap.waiting_pops import POP_BYTES_MAX, WaitingPop
from holdfast.log.errors import NotLeaderError
from holdfast.log.owned_partition import OwnedPartition
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random


class HeapPartition(InspectedPartition):
    """One partition during one leadership."""

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
        super().__init__(log, state, rules, payloads=payloads, settings=settings, clock=clock, random=random)
        if state.spine_epoch:
            self.link()

    # ── producers ──

    async def enqueue(self, messages: Sequence[NewMessage]) -> list[Enqueued]:
        """Enqueue messages, all or none. Returns when they are durable. The caller has checked them.

        `ProducerFencedError`, `SequenceForgottenError`, `BatchAbortedError`: nothing was enqueued.
        """
        self._journal.check()
        now_ms, state = self._journal.now_ms(), self.state
        reserved = state.reserved.keys
        window_ms, dedup, next_offset = self.rules.config.dedup_window_ms, state.dedup, state.next_offset
        keys = [message.producer for message in messages]
        if not any(keys) or (not reserved and dedup.is_next_run(keys)):
            new = _records(messages, now_ms)
            first = self._add_messages(new, now_ms)
            self._reader.keep(first, new, now_ms)
            await self._answerable()
            offsets = range(first, first + len(new))
            ids = message_ids(self._topic_id, self.number, offsets, (now_ms,) * len(new))
            return list(map(Enqueued, ids, repeat(False), repeat(self.number)))
        places: list[tuple[int, int]] = []  # offset and time
        duplicates: list[bool] = []
        chosen: list[NewMessage] = []
        here: dict[object, int] = {}  # keys of this call
        epochs: dict[str, int] = {}
        for message in messages:
            key = message.producer
            if key is not None:
                if reserved:
                    check_not_reserved(state, self.rules.topic, key)
                known = None if dedup.is_next(key) else known_enqueue(state, key, window_ms, now_ms)
                if known is not None or key in here:
                    places.append(known if known is not None else (here[key], now_ms))
                    duplicates.append(True)
                    continue
                check_epoch_here(epochs, key)
                here[key] = next_offset + len(chosen)
            places.append((next_offset + len(chosen), now_ms))
            duplicates.append(False)
            chosen.append(message)
        new = _records(chosen, now_ms)
        if new:
            first = self._add_messages(new, now_ms)
            self._reader.keep(first, new, now_ms)
        self.duplicates += len(messages) - len(new)
        held = self._take_held() if new else None
        again = self._repeated([offset for (offset, _), known in zip(places, duplicates, strict=True) if known])
        await self._told(held, again)
        offsets_known, times = zip(*places, strict=True)
        ids = message_ids(self._topic_id, self.number, offsets_known, times)
        return [Enqueued(each, again, self.number) for each, again in zip(ids, duplicates, strict=True)]

    # ── batches over several partitions ──

    async def prepare(self, prepare: Prepare) -> Promised:
        """Reserve messages of a batch; returns when that is durable. The caller has checked them.

        `ProducerFencedError`, `SequenceForgottenError`, `BatchAbortedError`, `ResourceExhaustedError`: nothing was reserved.
        """
        self._journal.check()
        config, settings, now_ms = self.rules.config, self._settings, self._journal.now_ms()
        found = decide_reservation(
            self.state,
            self.rules.topic,
            prepare.messages,
            window_ms=config.dedup_window_ms,
            count_max=settings.reserved_messages_max,
            now_ms=now_ms,
        )
        new, first = _records(found.new, now_ms), self.state.next_offset
        if new or prepare.always:
            prepared = Prepared(
                prepare.batch, self.number, self.log.epoch, prepare.coordinator_epoch, prepare.partitions
            )
            records: list[Operation] = [Reserve(prepare.batch, each) for each in new]
            records.append(prepared)
            self._add(records, self._journal.checked_bytes(new) if new else 0)
            self.batches_changed.notify()
        enqueued_ms = self.state.reserved.messages[first].enqueued_ms if new else now_ms
        self._reader.keep(first, new, enqueued_ms)
        self.duplicates += sum(found.duplicates)
        await self._journal.durable()
        places = [(first + at, enqueued_ms) if isinstance(at, int) else at for at in found.places]
        offsets, times = [offset for offset, _ in places], [time_ms for _, time_ms in places]
        ids = message_ids(self._topic_id, self.number, offsets, times)
        lease = self.log.lease
        enqueued = [Enqueued(each, again, self.number) for each, again in zip(ids, found.duplicates, strict=True)]
        return Promised(Promise(lease.resource, lease.epoch, lease.version), enqueued, len(new))

    async def resolve(self, resolved: Resolved) -> None:
        """Make the messages of a batch ready, or drop them; returns when that is durable. The same again changes nothing."""
        self._journal.check()
        if resolved.batch not in self.state.reserved.prepared:
            await self._journal.durable()
            return
        self._add((resolved,))
        self.batches_changed.notify()
        await self._answerable()

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
        left_ms = max(0, grant.deadline_ms - self._journal.now_ms())
        messages = await self._reader.read_first(offsets, bytes_max, leased_ms=left_ms)
        if len(messages) < len(offsets):
            self._give_back(pop, beyond=len(messages))
            offsets, attempts = offsets[: len(messages)], attempts[: len(messages)]
        if not messages:
            return []
        stored, times = zip(*messages, strict=True)
        _, payloads, _, retries, producers, partition_keys, _, headers, fairness_keys = zip(*stored, strict=True)
        number, own = self.number, self.rules.config.max_retries
        each = map(
            PoppedMessage,
            message_ids(self._topic_id, number, offsets, times),
            *(repeat(self.rules.topic), repeat(number), payloads),
            [priority for _, priority in grant.entries[: len(messages)]],
            times,
            encode_tokens(number, grant.epoch, pop.granted_at, offsets, self._mark),
            *(repeat(grant.deadline_ms), attempts),
            [own if limit == NO_RETRIES_OF_ITS_OWN else limit for limit in retries],
            *(producers, partition_keys, headers, repeat(0), fairness_keys, repeat(self.state.fair_rules.has_limits)),
            repeat(pop.visibility_ms),
        )
        return list(each)

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

    async def ack(self, tokens: Sequence[LeaseToken]) -> list[LeaseLostError | None]:
        """The messages are done. For each token: None, or why its lease is not the current one.

        That a message is gone is not told either before it is durable: whoever asks again would take it for done.
        """
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
        await (self._answerable() if held else self._journal.durable())
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
        """The tokens that name current leases, each once, and for every token what is wrong with it.

        `NotLeaderError`: a later leader granted one of them, so that what is known here says nothing of it.
        """
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
            elif epoch > self.log.epoch:
                raise NotLeaderError(self.rules.topic, self.number, reason="a later leader took over")
            else:
                lost = lost_lease(self.state, self.rules.topic, token)
                lost.epochs, lost.now_ms = self.log.epoch - epoch, self._journal.now_ms()
                results.append(lost)
        return list(held.values()), results

    # ── its spine ──

    def link(self) -> SpineLink:
        """The link to its spine; there is one from the first hello on, and from the start if the log knows of a spine."""
        if self.spine is None:
            self.spine = SpineLink(self, self._leader_end())
            self.spine.opened()
        return self.spine

    def _leader_end(self) -> LeaderEnd:
        return LeaderEnd(self.number, self.log.epoch, spine_epoch=self.state.spine_epoch, unknown_to_spines=True)

    @property
    def created_with(self) -> int:
        """How many partitions the heap had at first; this one knows of no growth."""
        return PARTITIONS_MAX

    @property
    def room(self) -> int:
        """How many messages may be leased beside those that are."""
        return max(0, self.rules.inflight_max - len(self.state.leases))

    def grant(self, takers: Sequence[Taker], count: int) -> PartitionGrants:
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
