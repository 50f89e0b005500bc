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
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.host_port import split_host_port

UNKNOWN_MS: Final = 500  # after which an unknown place is asked for again
KNOWN_MS: Final = 60_000  # after which a known one is
SHUNNED_MS: Final = 10_000  # after which a node that could not be reached is tried again


class AnsweredPlaces(NamedTuple):
    """Addresses; "": nobody leads a partition now, or the spine is not placed. `spine` is None if there is none to be known."""

    leaders: Sequence[str]
    spine: str | None


Ask = Callable[[str], Awaitable[AnsweredPlaces]]


class _Heap(NamedTuple):
    """What is known of a heap. `partitions`: how many; 0: somebody asks for the first time."""

    asked_ms: float
    partitions: int
    leaders: tuple[BrokerAddress | None, ...] = ()
    spine: BrokerAddress | None = None
    has_spine: bool = True


class HeapPlaces:
    """Partitions and leaders of the heaps that a client uses."""

    def __init__(self, ask: Ask, clock: Clock) -> None:
        self._ask, self._clock = ask, clock
        self._heaps: dict[str, _Heap] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._shunned: dict[BrokerAddress, float] = {}  # and until when

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
        return None if place is not None and self._is_shunned(place) else place

    def moved(self, topic: str) -> None:
        """A request failed: the leaders of this heap may be others now, and its spine elsewhere."""
        if (heap := self._heaps.get(topic)) is not None:
            self._heaps[topic] = heap._replace(leaders=(), spine=None)

    def shun(self, address: BrokerAddress) -> None:
        """It cannot be reached from here, though others may reach it: for a while any node will do, which forwards."""
        self._shunned[address] = self._clock.boot_ms() + SHUNNED_MS

    def _is_shunned(self, address: BrokerAddress) -> bool:
        until_ms = self._shunned.get(address)
        if until_ms is not None and self._clock.boot_ms() >= until_ms:
            del self._shunned[address]
            until_ms = None
        return until_ms is not None

    def forget(self, topic: str) -> None:
        """A heap was changed: nothing of it is known any more."""
        self._heaps.pop(topic, None)

    def close(self) -> None:
        """Ask no more."""
        for task in self._asking.values():
            task.cancel()

    def _ask_again(self, topic: str, heap: _Heap) -> None:
        if topic not in self._asking:
            self._heaps[topic] = heap._replace(asked_ms=self._clock.boot_ms())
            task = self._asking[topic] = asyncio.ensure_future(self._learn_again(topic))
            task.add_done_callback(lambda _: self._asking.pop(topic, None))

    async def _learn_again(self, topic: str) -> None:
        try:
            await self._learn(topic)
        except LoginRefusedError:  # each try counts against its user
            if (heap := self._heaps.get(topic)) is not None:
                self._heaps[topic] = heap._replace(asked_ms=self._clock.boot_ms() + KNOWN_MS)
        except HoldfastError:
            pass  # it is asked for again

    async def _learn(self, topic: str) -> int:
        leaders, spine = await self._ask(topic)
        self._heaps[topic] = _Heap(
            *(self._clock.boot_ms(), len(leaders), tuple(map(_address, leaders))),
            *(_address(spine or ""), spine is not None),
        )
        return len(leaders)


def _address(text: str) -> BrokerAddress | None:
    found = split_host_port(text)
    return None if found is None or found.port is None else BrokerAddress(found.host, found.port)
