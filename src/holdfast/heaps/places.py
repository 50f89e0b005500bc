"""Where the partitions of heaps are led and where their spines are, as far as one client knows.

It is a hint: any node forwards a request, at the price of a hop. That is why nobody ever hears that the hint is old, and why it is
asked for again: soon where a place is unknown, now and then where it is known.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from holdfast.client.addresses import BrokerAddress
from holdfast.client.broker_login import LoginRefusedError
from holdfast.heap.wire import HeapRequest, PopRequest
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ClosedError, HoldfastError
from holdfast.vocabulary.host_port import split_host_port

UNKNOWN_MS: Final = 500  # after which an unknown place is asked for again
KNOWN_MS: Final = 60_000  # after which a known one is
FORGOTTEN_MS: Final = 3_600_000  # after which a heap that nobody has used is


class AnsweredPlaces(NamedTuple):
    """Addresses; "": nobody leads a partition now, or the spine is not placed. `spine` is None if there is none to be known."""

    leaders: Sequence[str]
    spine: str | None


Ask = Callable[[str], Awaitable[AnsweredPlaces]]


class _Heap(NamedTuple):
    """What is known of a heap. `partitions`: how many; 0: somebody asks for the first time. `nodes`: those of the last answer."""

    asked_ms: float
    partitions: int
    leaders: tuple[BrokerAddress | None, ...] = ()
    spine: BrokerAddress | None = None
    has_spine: bool = True
    nodes: frozenset[BrokerAddress] = frozenset()


class HeapPlaces:
    """Partitions and leaders of the heaps that a client uses."""

    def __init__(self, ask: Ask, clock: Clock) -> None:
        self._ask, self._clock = ask, clock
        self._heaps: dict[str, _Heap] = {}
        self._asking: dict[str, asyncio.Task[int]] = {}
        self._tasks: set[asyncio.Task[int]] = set()

    async def count(self, topic: str) -> int:
        """How many partitions a heap has, or had a minute ago: where a message is sent is never wrong, more are only used later."""
        heap = self._heaps.get(topic)
        return heap.partitions if heap is not None and heap.partitions else await self._learn(topic)

    async def find(self, topic: str) -> None:
        """Ask for the leaders of a heap, unless somebody did. Without an answer any node will do."""
        if topic not in self._heaps:
            self._heaps[topic] = _Heap(self._clock.boot_ms(), 0)  # one asks
            try:
                await self._learn(topic)
            except HoldfastError as error:
                self.forget(topic)
                if isinstance(error, LoginRefusedError):
                    raise

    def of(self, request: HeapRequest) -> BrokerAddress | None:
        """Where to send a request: to the leader of its partition, a pop of several to their spine. None: to any node."""
        heap = self._heaps.get(request.topic)
        number = request.partition
        if heap is None:
            return None
        if number is not None or heap.partitions == 1:
            place = heap.leaders[number or 0] if (number or 0) < len(heap.leaders) else None
        elif isinstance(request, PopRequest) and heap.has_spine:
            place = heap.spine
        else:
            return None
        age_ms = self._clock.boot_ms() - heap.asked_ms
        if age_ms >= (UNKNOWN_MS if place is None else KNOWN_MS):
            self._ask_again(request.topic, heap)
        return place

    @property
    def nodes(self) -> frozenset[BrokerAddress]:
        """Every node that was in an answer, also if a request failed there since."""
        return frozenset[BrokerAddress]().union(*(heap.nodes for heap in self._heaps.values()))

    def moved(self, topic: str) -> None:
        """A request failed: the leaders of this heap may be others now, and its spine elsewhere."""
        if (heap := self._heaps.get(topic)) is not None:
            self._heaps[topic] = heap._replace(leaders=(), spine=None)

    def lost(self, address: BrokerAddress) -> None:
        """A node does not answer, or cannot be reached: what was there may be elsewhere now."""
        for topic, heap in self._heaps.items():
            if address in heap.nodes:
                leaders = tuple([None if each == address else each for each in heap.leaders])
                spine = None if heap.spine == address else heap.spine
                self._heaps[topic] = heap._replace(leaders=leaders, spine=spine)

    def forget(self, topic: str) -> None:
        """A heap was changed: nothing of it is known any more, and what is on its way may be old."""
        self._heaps.pop(topic, None)
        self._asking.pop(topic, None)

    def close(self) -> None:
        """Ask no more."""
        for task in self._tasks:
            task.cancel()

    def _ask_again(self, topic: str, heap: _Heap) -> None:
        if topic not in self._asking:
            self._heaps[topic] = heap._replace(asked_ms=self._clock.boot_ms())
            self._begin(topic)

    async def _learn(self, topic: str) -> int:
        """How many partitions a heap has. Whoever asks at the same time shares one lookup, whose end no single caller decides."""
        task = self._asking.get(topic) or self._begin(topic)
        await asyncio.wait((task,))
        if task.cancelled():
            raise ClosedError("heap client")
        return task.result()

    def _begin(self, topic: str) -> "asyncio.Task[int]":
        task = self._asking[topic] = asyncio.ensure_future(self._look_up(topic))
        self._tasks.add(task)
        task.add_done_callback(lambda ended: self._ended(topic, ended))
        return task

    def _ended(self, topic: str, task: "asyncio.Task[int]") -> None:
        self._tasks.discard(task)
        if self._asking.get(topic) is task:
            del self._asking[topic]
        failure = None if task.cancelled() else task.exception()
        heap = self._heaps.get(topic)
        if isinstance(failure, LoginRefusedError) and heap is not None:  # each try counts against its user
            self._heaps[topic] = heap._replace(asked_ms=self._clock.boot_ms() + KNOWN_MS)

    async def _look_up(self, topic: str) -> int:
        answer = await self._ask(topic)
        if self._asking.get(topic) is asyncio.current_task():
            leaders, spine = tuple(map(_address, answer.leaders)), _address(answer.spine or "")
            self._heaps[topic] = _Heap(
                *(self._clock.boot_ms(), len(leaders), leaders, spine, answer.spine is not None),
                nodes=frozenset(each for each in (*leaders, spine) if each is not None),
            )
            self._forget_unused()
        return len(answer.leaders)

    def _forget_unused(self) -> None:
        """Whatever is used is asked for again now and then."""
        since_ms = self._clock.boot_ms() - FORGOTTEN_MS
        self._heaps = {
            topic: heap for topic, heap in self._heaps.items() if heap.asked_ms > since_ms or topic in self._asking
        }


def _address(text: str) -> BrokerAddress | None:
    found = split_host_port(text)
    return None if found is None or found.port is None else BrokerAddress(found.host, found.port)
