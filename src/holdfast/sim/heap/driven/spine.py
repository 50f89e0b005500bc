"""A spine on a host, and its way to the leaders of partitions.

The one rule: as `agent.heap_network`, a message that is not answered lost its leader. A leader on the same host is called directly.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.heap.growth.growing_partition import GrowingPartition
from holdfast.heap.lease_token import parse_token
from holdfast.heap.records import Op
from holdfast.heap.spine.link import SpineLink
from holdfast.heap.spine.messages import Advert, AdvertAck, Granted, Pop, Refill, Refused, SpineHello
from holdfast.heap.spine.rank_bound import RankBound
from holdfast.heap.spine.spine import Spine
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
        acknowledged: Callable[[int, int], None] | None = None,
    ) -> None:
        self.epoch, self.host, self.is_over = epoch, host, False
        self._leaders = {leader.number: leader for leader in leaders}
        self._network, self._knock, self._acknowledged = network, knock, acknowledged
        self._streams: dict[int, SimStream] = {}
        self._adverts: dict[int, SimStream] = {}
        self._offsets: dict[tuple[int, int, int], int] = {}  # of adverts, by partition, epoch and number
        self.driver = variant.driver("t", epoch, bound, self, clock=clock)
        self.driver._spine = spine = variant.spine(epoch, bound, fan_out=fan_out)  # small ones ask for more
        _note_adverts(spine, self.note)
        self._running = network.start(self.driver.run(), f"spine.{epoch}")

    def end(self) -> None:
        """The lease is over, and it knows."""
        self.is_over = True
        self._running.cancel()

    def leader_changed(self, leader: DrivenLeader) -> None:
        """It has noticed who leads a partition."""
        self._leaders[leader.number] = leader
        self.lose(leader.number)

    def heap_grown(self, bound: RankBound, leaders: Sequence[DrivenLeader]) -> None:
        """It has noticed that there are more partitions."""
        for leader in leaders:
            self._leaders.setdefault(leader.number, leader)
        if not self.is_over and bound.partitions > self.driver.bound.partitions:
            self.driver.reconfigure(bound)

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
        if self._acknowledged is not None and isinstance(message, AdvertAck):
            offset = self._offsets.get((partition, message.epoch, message.number))
            if offset is not None:
                self._acknowledged(partition, offset)
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

    def note(self, advert: Advert) -> None:
        """An advert is taken: as of which offset it is."""
        self._offsets[advert.partition, advert.epoch, advert.number] = advert.offset

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


def _note_adverts(spine: Spine, note: Callable[[Advert], None]) -> None:
    """Have `note` called with every advert that a spine is given."""
    take = spine.take_advert

    def noted(advert: Advert) -> bool:
        taken = take(advert)
        if taken:
            note(advert)
        return taken

    spine.take_advert = noted  # type: ignore[method-assign]


async def _released(view: GrowingPartition, tokens: Sequence[bytes]) -> None:
    with suppress(HoldfastError):
        await view.nack([parse_token(token) for token in tokens], op=Op.RELEASE)
