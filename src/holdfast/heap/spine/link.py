"""A heap partition's side of its spine, driven: hellos and pops in, adverts out, operations that wait until they may be answered.

The one rule: what `LeaderEnd` decides is applied in the turn of the loop in which it is decided; waiting comes after. So a pop
that was begun is granted before anything else is looked at, and an advert shows the state as it is when it is made. It is sent
once what it does not show any more is durable: otherwise a later leader may still have it.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from holdfast.heap.batch.model import Resolved
from holdfast.heap.fairness.index import FairIndex
from holdfast.heap.partition_state import HeapState
from holdfast.heap.records import Enqueue, GrantBasis, Operation, PartitionCount, Ready, Reprioritise, Retry, SpineEpoch
from holdfast.heap.spine.leader_end import LeaderEnd
from holdfast.heap.spine.messages import Advert, AdvertAck, Granted, Pop, Refill, Refused, SpineHello
from holdfast.heap.spine.takers import Taken, Taker
from holdfast.vocabulary.errors import HoldfastError


class Grants(Protocol):
    """The grants of one pop: applied already; `messages` waits until they are durable."""

    @property
    def ranks(self) -> Sequence[int]:
        """Those of the messages, in the order in which they were granted."""
        ...

    async def messages(self) -> list[Taken]:
        """What each taker got."""
        ...

    def give_back(self) -> None:
        """Nobody gets them: they wait again, and it does not count."""
        ...


class LinkedPartition(Protocol):
    """What a link needs of its partition."""

    @property
    def state(self) -> HeapState: ...

    @property
    def created_with(self) -> int:
        """How many partitions the heap had at first."""
        ...

    @property
    def room(self) -> int:
        """How many messages may be leased beside those that are."""
        ...

    def add(self, operations: Sequence[Operation]) -> int:
        """Append and apply; the offset of the first. Raises unless the partition is led here."""
        ...

    def grant(self, takers: Sequence[Taker], count: int) -> Grants:
        """Lease the best messages to takers, at most `count`."""
        ...

    async def durable(self) -> None:
        """Everything added so far is durable."""
        ...

    def removals_durable(self) -> "asyncio.Future[None]":
        """Done once every message that is not ready any more is so durably."""
        ...

    async def confirm(self) -> None:
        """Raise unless the store knows of no later leader. `NotLeaderError`, `UnavailableError`."""
        ...


def ready_ranks(state: HeapState, operations: Iterable[Operation]) -> list[int]:
    """The ranks of messages that become ready by operations, which are not applied yet."""
    ranks: list[int] = []
    for operation in operations:
        if isinstance(operation, Enqueue):
            if not operation.not_before_ms:
                ranks.append(state.rank(operation.priority))
        elif isinstance(operation, Ready):
            ranks += [state.rank(priority) for _, priority in operation.entries]
        elif isinstance(operation, Retry):
            leases = ((state.leases.get(offset), ready_ms) for offset, ready_ms in operation.entries)
            ranks += [lease.rank for lease, ready_ms in leases if lease is not None and not ready_ms]
        elif isinstance(operation, Reprioritise):
            ranks += [state.rank(priority) for offset, priority in operation.entries if offset in state.ready]
        elif isinstance(operation, Resolved) and operation.committed:
            reserved = [message.enqueue for message in state.reserved.of_batch(operation.batch)]
            ranks += [state.rank(each.priority) for each in reserved if not each.not_before_ms]
    return ranks


@dataclass(slots=True)
class _Held:
    """An operation that waits, and how many of its events do."""

    may_answer: "asyncio.Future[None]"
    events: int


class SpineLink:
    """The link of one leadership. `send_advert` of a hello is how its spine is told."""

    def __init__(self, partition: LinkedPartition, end: LeaderEnd) -> None:
        self._partition, self._end = partition, end
        self._send: Callable[[Advert], None] | None = None
        self._held: dict[int, _Held] = {}  # by the events that wait
        self._last_grants: Grants | None = None
        self._scheduled = False
        self._known = (
            end.spine_epoch,
            partition.state.partitions,
        )  # epoch and partitions that every later leader knows

    def ready(self, ranks: Sequence[int]) -> "asyncio.Future[None] | None":
        """Messages of one operation became ready; what its answer waits for. None: nothing.

        Whoever waits no longer cancels it, and nothing of it is kept.
        """
        waiting = [event for rank in ranks if (event := self._end.ready(rank))]
        self._schedule()
        if not waiting:
            return None
        held = _Held(asyncio.get_running_loop().create_future(), len(waiting))
        self._held.update(dict.fromkeys(waiting, held))
        held.may_answer.add_done_callback(partial(self._settled, waiting))
        return held.may_answer

    def _settled(self, events: Sequence[int], may_answer: "asyncio.Future[None]") -> None:
        if may_answer.cancelled():
            for event in events:
                self._held.pop(event, None)
            self._end.withdraw(events)
            self._schedule()

    def opened(self) -> None:
        """Messages may go that a limit or a rate held back; nobody's answer waits for it that the spine knows."""
        fair = self._partition.state.fair
        if fair is not None:
            fair.tells = True
            for rank in fair.take_opened():
                self._end.ready(rank)
            self._schedule()

    def end(self, error: HoldfastError) -> None:
        """The leadership is over: what waited is not answered here."""
        held, self._held, self._send = self._held, {}, None
        for each in held.values():
            if not each.may_answer.done():
                each.may_answer.set_exception(error)
                each.may_answer.exception()  # a timer's operation has nobody who waits

    async def hello(self, hello: SpineHello, send_advert: Callable[[Advert], None]) -> Advert | Refused:
        """A spine introduces itself. Its epoch is durable, in the log that a later leader finds, before it has any advert.

        So a leader that was replaced unawares gives it none: its successor, whose log does not know of the spine, would not tell
        it of messages.
        """
        refused = self._refusal(hello)
        if refused is not None:
            return refused
        if self._is_new(hello):
            self._log_news(hello)
            await self._partition.durable()
            await self._partition.confirm()
            refused = self._refusal(hello)  # another spine may have come meanwhile
            if refused is not None:
                return refused
            self._known = (max(self._known[0], hello.spine_epoch), max(self._known[1], hello.partitions))
        grants, self._last_grants = self._last_grants, None
        if self._end.adopt(hello) and grants is not None:
            grants.give_back()
        self._send = send_advert
        advert = self._advert()
        await self._partition.durable()
        return advert

    def _refusal(self, hello: SpineHello) -> Refused | None:
        self._end.partitions = self._partition.state.partitions
        return self._end.refuses(hello)

    def _is_new(self, hello: SpineHello) -> bool:
        """Whether a later leader might not know of this spine, or of its partitions. One that was told before may still wait."""
        spine_epoch, partitions = self._known
        return hello.spine_epoch > spine_epoch or hello.partitions > max(partitions, self._partition.created_with)

    def _log_news(self, hello: SpineHello) -> None:
        state, news = self._partition.state, list[Operation]()
        if hello.spine_epoch > state.spine_epoch:
            news.append(SpineEpoch(hello.spine_epoch))
        if hello.partitions > max(state.partitions, self._partition.created_with):
            news.append(PartitionCount(hello.partitions))
        if news:
            self._partition.add(news)

    async def pop(self, pop: Pop, takers: Sequence[Taker]) -> tuple[Granted | Refused, list[Taken]]:
        """Grant the root, as often and as far as the pop says."""
        refused = self._end.begin(pop)
        if refused is not None:
            return refused, []
        state = self._partition.state
        top = state.ready.peek(min(pop.count, self._partition.room))
        count = sum(pop.limit is None or rank <= pop.limit for rank, _ in top)
        if count:
            self._partition.add((GrantBasis(pop.spine_epoch, pop.sequence, pop.bound, pop.basis),))
        grants = self._last_grants = self._partition.grant(takers, count)
        granted = self._end.granted(pop, grants.ranks, state.next_offset, self._least_ranks)
        removed = self._partition.removals_durable()  # of those that the advert of the answer does not show
        messages = await grants.messages()
        await removed
        return granted, messages

    def acknowledged(self, ack: AdvertAck) -> None:
        """The spine has an advert."""
        for event in self._end.acknowledged(ack):
            held = self._held.pop(event, None)
            if held is not None:
                held.events -= 1
                if not held.events and not held.may_answer.done():
                    held.may_answer.set_result(None)
        self._schedule()

    def refill(self, refill: Refill) -> None:
        """The spine wants more."""
        self._end.refill(refill)
        self._schedule()

    def tell(self) -> bool:
        """Called now and then: the spine is told of what became ready silently. False: it has to introduce itself first."""
        self._end.tell()
        self._schedule()
        return not self._end.needs_hello

    def _schedule(self) -> None:
        if not self._scheduled and self._end.advert_due:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if self._send is not None and self._end.advert_due:
            advert, removed = self._advert(), self._partition.removals_durable()
            if removed.done():
                self._send_advert(self._send, advert, removed)
            else:
                removed.add_done_callback(partial(self._send_advert, self._send, advert))

    def _send_advert(self, send: Callable[[Advert], None], advert: Advert, removed: "asyncio.Future[None]") -> None:
        """Unless a later leader may have more than it shows, or it is of an earlier round."""
        if removed.exception() is None and send is self._send:
            send(advert)

    def _advert(self) -> Advert:
        return self._end.advert(self._least_ranks, self._partition.state.next_offset)

    def _least_ranks(self, count: int) -> tuple[list[int], bool]:
        ready = self._partition.state.ready
        if isinstance(ready, FairIndex):
            return ready.least_ranks(count)
        return [rank for rank, _ in ready.peek(count)], len(ready) <= count
