"""The spine of one topic, driven: says hello to leaders, sends pops and hands their messages to consumers that wait.

The one rule: one pop at a time is under way to a partition, and it carries what everybody waits for. Whatever goes wrong with a
leader is answered by losing it and saying hello again; consumers wait meanwhile, and see no error.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

import msgspec

from holdfast.heap.errors import ResourceExhaustedError
from holdfast.heap.model import PoppedMessage
from holdfast.heap.spine.messages import Advert, AdvertAck, Granted, Pop, Refill, Refused, SpineHello
from holdfast.heap.spine.rank_bound import RankBound
from holdfast.heap.spine.spine import Spine
from holdfast.heap.spine.takers import Taken, Taker
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError, UnavailableError
from holdfast.vocabulary.tasks import Notify, task_group

_log: Final = logging.getLogger(__name__)

FAN_OUT: Final = 64
RETRY_MS: Final = 50
NO_ROOM_MS: Final = 10  # before a partition that has as many leases as it may have is asked again


class Leaders(Protocol):
    """The way to the leaders of one topic's partitions, wherever they are. Failing raises `HoldfastError`."""

    async def hello(self, partition: int, hello: SpineHello, send_advert: Callable[[Advert], None]) -> Advert | Refused:
        """Introduce a spine; later adverts come by `send_advert`."""
        ...

    async def pop(self, partition: int, pop: Pop, takers: Sequence[Taker]) -> tuple[Granted | Refused, list[Taken]]:
        """Have messages granted."""
        ...

    def send(self, partition: int, message: AdvertAck | Refill) -> None:
        """What needs no answer. If it is lost, so is the leader, and `lost` is called."""
        ...

    def release(self, partition: int, tokens: Sequence[bytes]) -> None:
        """Give leases back that nobody holds. Where that fails they end by themselves."""
        ...


@dataclass(slots=True, eq=False)
class _Demand:
    """A consumer that waits."""

    left: int
    consumer: str
    visibility_ms: int
    done: "asyncio.Future[None]"
    under_way: int = 0
    is_over: bool = False  # its time is over: it asks for nothing more
    is_gone: bool = False  # it was cancelled, too: what it gets is given back
    messages: list[PoppedMessage] = field(default_factory=list)
    refusal: ResourceExhaustedError | None = None


class SpineDriver:
    """The spine of one topic during one lease of its shard."""

    def __init__(self, topic: str, epoch: int, bound: RankBound, leaders: Leaders, *, clock: Clock) -> None:
        self.topic, self._leaders, self._clock = topic, leaders, clock
        self._spine = Spine(epoch, bound, fan_out=FAN_OUT)
        self._demands: deque[_Demand] = deque()
        self._changed = Notify()  # partitions are lost, or new
        self._greeting: set[int] = set()
        self._start: Callable[..., object] | None = None
        self._ended: HoldfastError | None = None

    @property
    def bound(self) -> RankBound:
        """The topic's."""
        return self._spine.bound

    # ── lifecycle ──

    async def run(self) -> None:
        """Serve, until cancelled; then everybody who waits is told."""
        try:
            async with task_group() as group:
                self._start = group.create_task
                try:
                    while True:
                        for partition in self._spine.unknown():
                            if partition not in self._greeting:
                                self._greeting.add(partition)
                                group.create_task(self._greet(partition))
                        await self._changed.wait()
                finally:
                    self._start = None  # before its tasks are cancelled: what they do last begins nothing any more
        finally:
            self._ended = UnavailableError(f"spine of heap {self.topic}", "it is not served here any more")
            for demand in self._demands:
                _settle(demand)
            self._demands.clear()

    async def _greet(self, partition: int) -> None:
        """Say hello until it is answered."""
        try:
            while True:
                hello = self._spine.hello(partition)
                try:
                    answer = await self._leaders.hello(partition, hello, self.take_advert)
                except HoldfastError as error:
                    _log.debug("hello to %s-%d failed, retrying: %s", self.topic, partition, error)
                else:
                    if isinstance(answer, Advert) and self._spine.take_advert(answer):
                        return
                await self._clock.sleep_ms(RETRY_MS)
        finally:
            self._greeting.discard(partition)
            self._pump()

    def lost(self, partition: int) -> None:
        """The leader cannot be reached, or is another one by now."""
        if partition < self.bound.partitions and partition not in self._greeting:
            self._spine.lose(partition)
            self._changed.notify()

    def reconfigure(self, bound: RankBound) -> None:
        """Another bound, or more partitions."""
        if bound != self.bound:
            self._spine.reconfigure(bound)
            self._changed.notify()

    def take_advert(self, advert: Advert) -> None:
        """A leader tells what it has."""
        if self._spine.take_advert(advert):
            self._pump()

    # ── consumers ──

    async def pop(self, *, count: int, consumer: str, visibility_ms: int, wait_ms: float) -> list[PoppedMessage]:
        """Lease up to `count` messages of the topic, each within its bound; none after `wait_ms` without any.

        `ResourceExhaustedError`: the consumer has all the leases it may have. `UnavailableError`: the spine has ended.
        """
        if self._ended is not None:
            raise self._ended
        demand = _Demand(count, consumer, visibility_ms, asyncio.get_running_loop().create_future())
        self._demands.append(demand)
        self._pump()
        if not demand.done.done():
            try:
                await self._wait(demand, wait_ms)
            except asyncio.CancelledError:
                demand.is_gone = True
                self._give_back(demand.messages)
                raise
        if not demand.messages:
            if demand.refusal is not None:
                raise demand.refusal
            if self._ended is not None:
                raise self._ended
        return demand.messages

    async def _wait(self, demand: _Demand, wait_ms: float) -> None:
        sleep = asyncio.ensure_future(self._clock.sleep_ms(max(0.0, wait_ms)))
        sleep.add_done_callback(partial(_time_is_over, demand))
        try:
            await demand.done  # also where the time is over, if its messages are being leased
        finally:
            sleep.cancel()
            if demand in self._demands:
                demand.left, demand.is_over = 0, True
                if not demand.under_way:
                    self._demands.remove(demand)

    # ── the protocol ──

    def _pump(self) -> None:
        """Send what is due, and answer those who have what they get."""
        if self._start is None:
            return
        self._send_acks()
        wanted = sum(demand.left + demand.under_way for demand in self._demands)
        for partition, message in self._spine.plan(wanted):
            if isinstance(message, Refill):
                self._leaders.send(partition, message)
            else:
                self._start(self._pop(partition, message, self._takers(message.count)))
        for demand in [each for each in self._demands if each.messages or each.refusal is not None or not each.left]:
            if not demand.under_way:
                self._demands.remove(demand)
                _settle(demand)

    def _send_acks(self) -> None:
        for partition, ack in self._spine.acks():
            self._leaders.send(partition, ack)

    def _takers(self, count: int) -> list[tuple[_Demand, int]]:
        """Share a pop among those who wait, first come, first served."""
        takers = []
        for demand in self._demands:
            share = min(count, demand.left)
            if share:
                demand.left -= share
                demand.under_way += share
                count -= share
                takers.append((demand, share))
        return takers

    async def _pop(self, partition: int, pop: Pop, shares: Sequence[tuple[_Demand, int]]) -> None:
        takers = [Taker(share, demand.consumer, demand.visibility_ms) for demand, share in shares]
        taken: Sequence[Taken] = ()
        try:
            answer, found = await self._leaders.pop(partition, pop, takers)
            if isinstance(answer, Granted) and (settled := self._spine.take_granted(answer)) is not None:
                bound = settled.rank_bound
                taken = [_bounded(each, bound) for each in found]
            else:
                self.lost(partition)
            if _has_no_room(pop, answer, found):
                self._send_acks()  # others' answers may wait for them
                await self._clock.sleep_ms(NO_ROOM_MS)
        except HoldfastError as error:
            _log.debug("pop of %s-%d failed: %s", self.topic, partition, error)
            self.lost(partition)
        finally:
            for at, (demand, share) in enumerate(shares):
                got = taken[at] if at < len(taken) else Taken()
                demand.under_way -= share
                if demand.is_gone:
                    self._give_back(got.messages)
                else:
                    demand.messages += got.messages
                if got.refusal is not None:
                    demand.refusal, demand.left = ResourceExhaustedError(*got.refusal), 0
                elif not demand.messages and not demand.is_over:
                    demand.left += share
            self._pump()

    def _give_back(self, messages: Sequence[PoppedMessage]) -> None:
        """Nobody receives these."""
        for partition, tokens in tokens_of(messages).items():
            self._leaders.release(partition, tokens)


def _time_is_over(demand: _Demand, _: object) -> None:
    """It asks for nothing more. Messages that are being leased are waited for."""
    demand.left, demand.is_over = 0, True
    if not demand.under_way:
        _settle(demand)


def tokens_of(messages: Iterable[PoppedMessage]) -> dict[int, list[bytes]]:
    """The lease tokens of messages, by partition."""
    tokens: dict[int, list[bytes]] = {}
    for message in messages:
        tokens.setdefault(message.partition, []).append(message.lease_token)
    return tokens


def _bounded(taken: Taken, bound: int) -> Taken:
    return Taken(tuple(msgspec.structs.replace(message, rank_bound=bound) for message in taken.messages), taken.refusal)


def _has_no_room(pop: Pop, answer: Granted | Refused, found: Sequence[Taken]) -> bool:
    """Whether a leader granted nothing of what it was asked for and has: to ask again at once would get the same answer."""
    if isinstance(answer, Refused) or answer.ranks or answer.advert is None or any(each.refusal for each in found):
        return False
    head = next(iter(answer.advert.ranks), None)
    return head is not None and (pop.limit is None or head <= pop.limit)


def _settle(demand: _Demand) -> None:
    if not demand.done.done():
        demand.done.set_result(None)
