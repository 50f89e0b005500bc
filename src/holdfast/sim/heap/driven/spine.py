"""A spine on a host, and its way to the leaders of partitions.

The one rule: as `agent.heap_network`, a message that is not answered lost its leader. A leader on the same host is called directly.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.heap.lease_token import parse_token
from holdfast.heap.partition import HeapPartition
from holdfast.heap.records import Op
from holdfast.heap.spine.link import SpineLink
from holdfast.heap.spine.messages import Advert, AdvertAck, Granted, Pop, Refill, Refused, SpineHello
from holdfast.heap.spine.rank_bound import RankBound
from holdfast.heap.spine.takers import Taken, Taker
from holdfast.sim.heap.driven.leader import DrivenLeader
from holdfast.sim.heap.driven.network import SimNetwork, SimStream
from holdfast.sim.heap.driven.variant import DrivenVariant
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError


class DrivenSpine:
    """One lease of the spine. Implements `heap.spine.driver.Leaders` for its driver."""

    def __init__(
        self,
        epoch: int,
        host: int,
        bound: RankBound,
        leaders: Sequence[DrivenLeader],
        *,
        fan_out: int,
        variant: DrivenVariant,
        network: SimNetwork,
        clock: Clock,
        knock: Callable[[int], None],
    ) -> None:
        self.epoch, self.host, self.is_over = epoch, host, False
        self._leaders, self._network, self._knock = [*leaders], network, knock
        self._streams: dict[int, SimStream] = {}
        self._adverts: dict[int, SimStream] = {}
        self.driver = variant.driver("t", epoch, bound, self, clock=clock)
        self.driver._spine = variant.spine(epoch, bound, fan_out=fan_out)  # small ones ask for more
        self._running = network.start(self.driver.run(), f"spine.{epoch}")

    def end(self) -> None:
        """The lease is over, and it knows."""
        self.is_over = True
        self._running.cancel()

    def leader_changed(self, leader: DrivenLeader) -> None:
        """It has noticed who leads a partition."""
        self._leaders[leader.number] = leader
        self.lose(leader.number)

    def lose(self, partition: int) -> None:
        """Streams to and from a leader break."""
        for streams in (self._streams, self._adverts):
            if partition in streams:
                streams.pop(partition).lose()

    # ── messages ──

    async def hello(self, partition: int, hello: SpineHello, send_advert: Callable[[Advert], None]) -> Advert | Refused:
        leader = self._leaders[partition]
        if leader.host == self.host:
            return await _link(leader).hello(hello, send_advert)
        told = partial(self._tell, partition)

        async def serve() -> Advert | Refused:
            return await _link(leader).hello(hello, told)

        answer: Advert | Refused = await self._stream(partition).ask(serve)
        return answer

    async def pop(self, partition: int, pop: Pop, takers: Sequence[Taker]) -> tuple[Granted | Refused, list[Taken]]:
        leader = self._leaders[partition]
        if leader.host == self.host:
            return await _link(leader).pop(pop, takers)

        async def serve() -> tuple[Granted | Refused, list[Taken]]:
            return await _link(leader).pop(pop, takers)

        answer: tuple[Granted | Refused, list[Taken]] = await self._stream(partition).ask(serve)
        return answer

    def send(self, partition: int, message: AdvertAck | Refill) -> None:
        leader = self._leaders[partition]

        async def serve() -> bool:
            _deliver(_link(leader), message)
            return True

        if leader.host != self.host:
            self._stream(partition).send(serve, partial(self._answered, partition))
            return
        try:
            _deliver(_link(leader), message)
        except HoldfastError:
            self._network.loop.call_soon(self._lost, partition)

    def release(self, partition: int, tokens: Sequence[bytes]) -> None:
        leader = self._leaders[partition]

        async def serve() -> bool:
            await _released(leader.open_view(), tokens)
            return True

        if leader.host != self.host:
            self._stream(partition).send(serve, lambda found: None)
        else:
            with suppress(HoldfastError):
                self._network.start(_released(leader.open_view(), tokens), "release")

    def _stream(self, partition: int) -> SimStream:
        return self._streams.setdefault(partition, SimStream(self._network))

    def _answered(self, partition: int, found: Any) -> None:
        if found is None:
            self._lost(partition)

    def _lost(self, partition: int) -> None:
        if not self.is_over:
            self.driver.lost(partition)

    # ── adverts ──

    def _tell(self, partition: int, advert: Advert) -> None:
        """A leader on another host tells this spine."""

        async def serve() -> bool:
            if not self.is_over:
                self.driver.take_advert(advert)
            return True

        def answered(found: Any) -> None:
            if found is None:
                self._knock(partition)

        self._adverts.setdefault(partition, SimStream(self._network)).send(serve, answered)

    def knocked(self, partition: int) -> None:
        """A leader needs a hello."""
        self._lost(partition)


def _link(leader: DrivenLeader) -> SpineLink:
    return leader.open_view().link()


def _deliver(link: SpineLink, message: AdvertAck | Refill) -> None:
    if isinstance(message, AdvertAck):
        link.acknowledged(message)
    else:
        link.refill(message)


async def _released(view: HeapPartition, tokens: Sequence[bytes]) -> None:
    with suppress(HoldfastError):
        await view.nack([parse_token(token) for token in tokens], op=Op.RELEASE)
