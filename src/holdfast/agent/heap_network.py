"""Spines and partition leaders of heaps, over the streams between agents; those of this process directly.

The one rule: a message that is not answered lost its leader. The spine says hello again, and whatever was under way is void. So
nothing is sent twice, and a stream that breaks needs no further care.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from holdfast.agent.peers.frames import MessageClass, PeerMessage
from holdfast.agent.peers.handshake import HEAP_VERSION
from holdfast.agent.peers.inbound_stream import ReceivedMessages
from holdfast.agent.peers.peers import Peers
from holdfast.heap.lease_token import LeaseToken, parse_token
from holdfast.heap.local_heaps import LocalHeaps
from holdfast.heap.model import PoppedMessage
from holdfast.heap.partition import HeapPartition
from holdfast.heap.records import Op
from holdfast.heap.spine.driver import tokens_of
from holdfast.heap.spine.link import SpineLink
from holdfast.heap.spine.local_spines import LocalSpines
from holdfast.heap.spine.messages import Advert, AdvertAck, Granted, Pop, Refill, Refused, SpineHello
from holdfast.heap.spine.takers import Taken, Taker
from holdfast.kernel.lease import Held
from holdfast.log.topics import Topic
from holdfast.vocabulary.errors import HoldfastError, InvalidError, UnavailableError
from holdfast.vocabulary.types import Member

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")
KEY: Final = b"\0heap"  # no partition's replica has such a name


class _Said(msgspec.Struct, frozen=True, array_like=True, tag="h"):
    topic: str
    partition: int
    hello: SpineHello


class _Popping(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    topic: str
    partition: int
    pop: Pop
    takers: list[Taker]


class _Sent(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    topic: str
    partition: int
    message: AdvertAck | Refill


class _Told(msgspec.Struct, frozen=True, array_like=True, tag="a"):
    topic: str
    advert: Advert


class _Knock(msgspec.Struct, frozen=True, array_like=True, tag="k"):
    topic: str
    partition: int


class _TopicPop(msgspec.Struct, frozen=True, array_like=True, tag="t"):
    topic: str
    count: int
    consumer: str
    visibility_ms: int
    wait_ms: float


class _Released(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    topic: str
    partition: int
    tokens: list[bytes]


_AT_ONCE: Final = (_Sent, _Told, _Released, _Knock)
_DONE: Final = msgspec.msgpack.encode(True)
_Request = _Released | _Said | _Popping | _Sent | _Told | _Knock | _TopicPop
_REQUEST: Final[msgspec.msgpack.Decoder[_Request]] = msgspec.msgpack.Decoder(_Request)
_HELLO_ANSWER: Final[msgspec.msgpack.Decoder[Advert | Refused]] = msgspec.msgpack.Decoder(Advert | Refused)
_POP_ANSWER: Final[msgspec.msgpack.Decoder[tuple[Granted | Refused, list[Taken]]]] = msgspec.msgpack.Decoder(
    tuple[Granted | Refused, list[Taken]]
)
_MESSAGES: Final[msgspec.msgpack.Decoder[list[PoppedMessage]]] = msgspec.msgpack.Decoder(list[PoppedMessage])


class HeapNetwork:
    """One agent's way to spines and leaders. A `SpineNetwork`. `peers`: None if it has no streams."""

    def __init__(
        self,
        agent: str,
        heaps: LocalHeaps,
        peers: Peers | None,
        *,
        topic: Callable[[str], Topic | None],
        leader: Callable[[str, int], Held | None],
        holder: Callable[[str], Held | None],
        member: Callable[[str], Member | None],
    ) -> None:
        self._agent, self._heaps, self._peers = agent, heaps, peers
        self._topic, self._leader, self._holder, self._member = topic, leader, holder, member
        self.spines: LocalSpines | None = None
        self._serving: set[asyncio.Task[None]] = set()
        heaps.knock = self.knock

    # ── a spine's leaders ──

    def leaders(self, topic: Topic) -> "TopicLeaders":
        """The leaders of a heap's partitions."""
        return TopicLeaders(self, topic.name)

    def link(self, topic: str, partition: int) -> SpineLink:
        """The link of a partition that is led here. `HoldfastError`: it is not."""
        found = self._topic(topic)
        if found is None:
            raise UnavailableError(f"heap {topic}", "it is not known here")
        return self._heaps.partition(found, partition).link()

    def holder_of(self, topic: str, partition: int) -> str:
        """The agent that leads a partition."""
        held = self._leader(topic, partition)
        if held is None:
            raise UnavailableError(f"heap partition {topic}-{partition}", "it has no leader")
        return held.holder

    def is_here(self, agent: str) -> bool:
        """Whether that is this agent."""
        return agent == self._agent

    async def pop(
        self, resource: str, topic: Topic, *, count: int, consumer: str, visibility_ms: int, wait_ms: float
    ) -> list[PoppedMessage]:
        """A pop at the owner of a shard of spines."""
        held = self._holder(resource)
        if held is None or self.is_here(held.holder):
            raise UnavailableError(f"spine of heap {topic.name}", "it has no owner yet")
        asked = asyncio.ensure_future(
            self.ask(held.holder, _TopicPop(topic.name, count, consumer, visibility_ms, wait_ms))
        )
        try:
            return _decoded(_MESSAGES, await asyncio.shield(asked))
        except asyncio.CancelledError:
            asked.add_done_callback(partial(self._give_back, topic))
            raise

    def _give_back(self, topic: Topic, asked: "asyncio.Future[bytes]") -> None:
        """The answer to a pop whose caller is gone: nobody holds these leases."""
        if not asked.cancelled() and asked.exception() is None:
            with suppress(UnavailableError):
                popped: list[PoppedMessage] = _decoded(_MESSAGES, asked.result())
                for partition, tokens in tokens_of(popped).items():
                    self.leaders(topic).release(partition, tokens)

    def release(self, topic: str, partition: int, tokens: Sequence[bytes]) -> None:
        """Give leases of a partition that is led here back."""
        found = self._topic(topic)
        if found is not None:
            parsed = [parse_token(token) for token in tokens]
            self._start(_released(self._heaps.partition(found, partition), parsed))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    def knock(self, topic: str, partition: int) -> None:
        """A partition here needs the hello of its spine."""
        found = self._topic(topic)
        if found is None or self.spines is None:
            return
        driver = self.spines.driver(found)
        if driver is not None:
            driver.lost(partition)
            return
        resource = self.spines.resource(found)
        held = self._holder(resource) if resource is not None else None
        if held is not None and not self.is_here(held.holder):
            self.post(held.holder, _Knock(topic, partition), lambda: None)

    def told(self, agent: str, topic: str, advert: Advert) -> None:
        """A leader here tells a spine."""
        if self.is_here(agent):
            self._take_advert(topic, advert)
        else:
            self.post(agent, _Told(topic, advert), partial(self.knock, topic, advert.partition))

    def _take_advert(self, topic: str, advert: Advert) -> None:
        found = self._topic(topic)
        driver = self.spines.driver(found) if found is not None and self.spines is not None else None
        if driver is not None:
            driver.take_advert(advert)

    def lost(self, topic: str, partition: int) -> None:
        """What was sent to a leader was not answered."""
        found = self._topic(topic)
        driver = self.spines.driver(found) if found is not None and self.spines is not None else None
        if driver is not None:
            driver.lost(partition)

    # ── streams ──

    def post(self, agent: str, request: _Request, on_lost: Callable[[], None]) -> None:
        """Send a message that needs no answer but one."""

        def answered(payload: memoryview | None) -> None:
            if payload is None or not payload:
                on_lost()

        if not self._send(agent, request, answered):
            asyncio.get_running_loop().call_soon(on_lost)

    async def ask(self, agent: str, request: _Request) -> bytes:
        """The answer to a message. `UnavailableError`: there is none."""
        answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

        def answered(payload: memoryview | None) -> None:
            if not answer.done():
                answer.set_result(bytes(payload) if payload else None)

        if not self._send(agent, request, answered):
            raise UnavailableError(f"agent {agent}", "there is no stream to it")
        found = await answer
        if found is None:
            raise UnavailableError(f"agent {agent}", "it did not answer")
        return found

    def _send(self, agent: str, request: _Request, answered: Callable[[memoryview | None], None]) -> bool:
        member = self._member(agent)
        stream = self._peers.to(member.wal_id) if self._peers is not None and member is not None else None
        if stream is None or stream.version < HEAP_VERSION:
            return False
        try:
            return stream.send(KEY, (msgspec.msgpack.encode(request),), answered, kind=MessageClass.CONTROL)
        except InvalidError as error:
            _log.warning("a message about heaps for agent %s cannot be sent: %s", agent, error)
            return False

    def take(self, received: ReceivedMessages, index: int, message: PeerMessage) -> None:
        """A message of another agent; its answer is empty if it cannot be served."""
        try:
            request = _REQUEST.decode(message.payload)
        except msgspec.DecodeError as error:
            _log.warning("a message of agent %s about heaps is refused: %s", received.peer.agent, error)
            received.answer(index)
            return
        answer = partial(received.answer, index)
        if not isinstance(request, _AT_ONCE):
            self._start(self._serve(request, received.peer.agent, answer))
            return
        try:  # nothing waits: it needs no task
            self._handle(request)
        except HoldfastError as error:
            self._refuse(received.peer.agent, error, answer)
        else:
            answer(_DONE)

    async def _serve(self, request: "_Said | _Popping | _TopicPop", agent: str, answer: Callable[..., None]) -> None:
        try:
            found = await self._answer(request, agent)
        except HoldfastError as error:
            self._refuse(agent, error, answer)
        else:
            answer(msgspec.msgpack.encode(found))

    @staticmethod
    def _refuse(agent: str, error: HoldfastError, answer: Callable[..., None]) -> None:
        _log.debug("a message of agent %s about heaps is not served: %s", agent, error)
        answer()

    def _handle(self, request: "_Sent | _Released | _Told | _Knock") -> None:
        match request:
            case _Sent(topic, partition, message):
                deliver(self.link(topic, partition), message)
            case _Told(topic, advert):
                self._take_advert(topic, advert)
            case _Released(topic, partition, tokens):
                self.release(topic, partition, tokens)
            case _Knock(topic, partition):
                self.lost(topic, partition)

    async def _answer(self, request: "_Said | _Popping | _TopicPop", agent: str) -> object:
        match request:
            case _Said(topic, partition, hello):
                return await self.link(topic, partition).hello(hello, partial(self.told, agent, topic))
            case _Popping(topic, partition, pop, takers):
                return await self.link(topic, partition).pop(pop, takers)
            case _TopicPop(topic, count, consumer, visibility_ms, wait_ms):
                found = self._topic(topic)
                driver = self.spines.driver(found) if found is not None and self.spines is not None else None
                if driver is None:
                    raise UnavailableError(f"spine of heap {topic}", "it is not here")
                return await driver.pop(count=count, consumer=consumer, visibility_ms=visibility_ms, wait_ms=wait_ms)


class TopicLeaders:
    """The leaders of one heap's partitions, wherever they are. Implements `heap.spine.driver.Leaders`."""

    def __init__(self, network: HeapNetwork, topic: str) -> None:
        self._network, self._topic = network, topic

    async def hello(self, partition: int, hello: SpineHello, send_advert: Callable[[Advert], None]) -> Advert | Refused:
        agent = self._network.holder_of(self._topic, partition)
        if self._network.is_here(agent):
            return await self._network.link(self._topic, partition).hello(hello, send_advert)
        return _decoded(_HELLO_ANSWER, await self._network.ask(agent, _Said(self._topic, partition, hello)))

    async def pop(self, partition: int, pop: Pop, takers: Sequence[Taker]) -> tuple[Granted | Refused, list[Taken]]:
        agent = self._network.holder_of(self._topic, partition)
        if self._network.is_here(agent):
            return await self._network.link(self._topic, partition).pop(pop, takers)
        request = _Popping(self._topic, partition, pop, [*takers])
        return _decoded(_POP_ANSWER, await self._network.ask(agent, request))

    def send(self, partition: int, message: AdvertAck | Refill) -> None:
        try:
            agent = self._network.holder_of(self._topic, partition)
            if self._network.is_here(agent):
                deliver(self._network.link(self._topic, partition), message)
                return
        except HoldfastError:
            asyncio.get_running_loop().call_soon(self._network.lost, self._topic, partition)
            return
        lost = partial(self._network.lost, self._topic, partition)
        self._network.post(agent, _Sent(self._topic, partition, message), lost)

    def release(self, partition: int, tokens: Sequence[bytes]) -> None:
        with suppress(HoldfastError):
            agent = self._network.holder_of(self._topic, partition)
            if self._network.is_here(agent):
                self._network.release(self._topic, partition, tokens)
            else:
                self._network.post(agent, _Released(self._topic, partition, [*tokens]), lambda: None)


async def _released(view: HeapPartition, tokens: Sequence[LeaseToken]) -> None:
    with suppress(HoldfastError):
        await view.nack(tokens, op=Op.RELEASE)


def _decoded(decoder: "msgspec.msgpack.Decoder[T]", answer: bytes) -> T:
    try:
        return decoder.decode(answer)
    except msgspec.DecodeError as error:
        raise UnavailableError("answer of another agent", str(error)) from error


def deliver(link: SpineLink, message: AdvertAck | Refill) -> None:
    """Hand a spine's message to a partition."""
    if isinstance(message, AdvertAck):
        link.acknowledged(message)
    else:
        link.refill(message)
