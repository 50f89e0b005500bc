"""Leaders of a heap's partitions as the coordinator of a batch reaches them: over the streams between agents, or in this process.

The one rule: a request is sent once. One that is not answered may have been served: its batch is aborted, or told again.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from holdfast.agent.peers.frames import MessageClass, PeerMessage
from holdfast.agent.peers.handshake import HEAP_VERSION
from holdfast.agent.peers.inbound_stream import ReceivedMessages
from holdfast.agent.peers.peers import Peers
from holdfast.heap.batch.messages import Prepare, Promised
from holdfast.heap.batch.model import Resolved
from holdfast.heap.growth.growing_partition import GrowingPartition
from holdfast.heap.growth.look_up import Found, LookUp
from holdfast.heap.local_heaps import LocalHeaps
from holdfast.heap.wire import decode_failure, encode_failure, encode_result
from holdfast.kernel.lease import Held
from holdfast.log.topics import Topic
from holdfast.vocabulary.errors import HoldfastError, InvalidError, UnavailableError
from holdfast.vocabulary.types import Member

_log: Final = logging.getLogger(__name__)

KEY: Final = b"\0heap-batch"  # no partition's replica has such a name


class _Prepare(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    topic: str
    partition: int
    prepare: Prepare


class _Resolve(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    topic: str
    partition: int
    resolved: Resolved


class _IsDeciding(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    topic: str
    partition: int
    batch: str
    epoch: int


class _LookUp(msgspec.Struct, frozen=True, array_like=True, tag="l"):
    topic: str
    partition: int
    look_up: LookUp


_Request = _Prepare | _Resolve | _IsDeciding | _LookUp
_REQUEST: Final[msgspec.msgpack.Decoder[_Request]] = msgspec.msgpack.Decoder(_Request)
_ANSWERS: Final[dict[type, msgspec.msgpack.Decoder[Any]]] = {
    _Prepare: msgspec.msgpack.Decoder(Promised),
    _Resolve: msgspec.msgpack.Decoder(bool),
    _IsDeciding: msgspec.msgpack.Decoder(bool),
    _LookUp: msgspec.msgpack.Decoder(Found),
}


class HeapBatchNetwork:
    """One agent's way to the leaders of batches. Implements `heap.batch.local_batches.BatchPeers`, and
    `heap.growth.growing_partition.EarlierPartitions`."""

    def __init__(
        self,
        agent: str,
        heaps: LocalHeaps,
        peers: Peers | None,
        *,
        topic: Callable[[str], Topic | None],
        leader: Callable[[str, int], Held | None],
        member: Callable[[str], Member | None],
    ) -> None:
        self._agent, self._heaps, self._peers = agent, heaps, peers
        self._topic, self._leader, self._member = topic, leader, member
        self._serving: set[asyncio.Task[None]] = set()

    async def prepare(self, topic: str, partition: int, prepare: Prepare) -> Promised:
        promised: Promised = await self._ask(_Prepare(topic, partition, prepare))
        return promised

    async def resolve(self, topic: str, partition: int, resolved: Resolved) -> None:
        await self._ask(_Resolve(topic, partition, resolved))

    async def is_deciding(self, topic: str, partition: int, batch: str, epoch: int) -> bool:
        deciding: bool = await self._ask(_IsDeciding(topic, partition, batch, epoch))
        return deciding

    async def look_up(self, topic: str, partition: int, look_up: LookUp) -> Found:
        found: Found = await self._ask(_LookUp(topic, partition, look_up))
        return found

    # ── asking ──

    async def _ask(self, request: _Request) -> Any:
        held = self._leader(request.topic, request.partition)
        if held is None:
            raise UnavailableError(f"heap partition {request.topic}-{request.partition}", "it has no leader")
        if held.holder == self._agent:
            return await self._answer(request)
        body = await self._send(held.holder, request)
        try:
            if body[:1] == b"\0":
                return _ANSWERS[type(request)].decode(body[1:])
            failure = decode_failure(body, request.topic)
        except msgspec.DecodeError as error:
            raise UnavailableError(f"agent {held.holder}", f"its answer cannot be read: {error}") from error
        raise failure

    async def _send(self, agent: str, request: _Request) -> bytes:
        member = self._member(agent)
        stream = self._peers.to(member.wal_id) if self._peers is not None and member is not None else None
        if stream is None or stream.version < HEAP_VERSION:
            raise UnavailableError(f"agent {agent}", "there is no stream to it")
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def answered(payload: memoryview | None) -> None:
            if not answer.done():
                answer.set_result(bytes(payload) if payload else b"")

        kind = MessageClass.DATA if isinstance(request, _Prepare | _LookUp) else MessageClass.CONTROL
        try:
            sent = stream.send(KEY, (msgspec.msgpack.encode(request),), answered, kind=kind)
        except InvalidError as error:
            raise UnavailableError(f"agent {agent}", str(error)) from error
        found = await answer if sent else b""
        if not found:
            raise UnavailableError(f"agent {agent}", "it did not answer")
        return found

    # ── answering ──

    def take(self, received: ReceivedMessages, index: int, message: PeerMessage) -> None:
        """A request of another agent; its answer is empty if it is none."""
        try:
            request = _REQUEST.decode(message.payload)
        except msgspec.DecodeError as error:
            _log.warning("a message of agent %s about batches is refused: %s", received.peer.agent, error)
            received.answer(index)
            return
        task = asyncio.ensure_future(self._serve(request, partial(received.answer, index)))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, request: _Request, answer: Callable[..., None]) -> None:
        try:
            found = encode_result(await self._answer(request))
        except HoldfastError as error:
            found = encode_failure(error)
        answer(found)

    async def _answer(self, request: _Request) -> object:
        view = self._view(request.topic, request.partition)
        match request:
            case _Prepare(prepare=prepare):
                return await view.prepare(prepare)
            case _LookUp(look_up=look_up):
                return await view.look_up(look_up)
            case _Resolve(resolved=resolved):
                await view.resolve(resolved)
            case _IsDeciding(batch=batch, epoch=epoch):
                if view.log.epoch != epoch or self._heaps.batches is None:
                    raise UnavailableError(f"coordinator of batch {batch}", f"it is not at epoch {epoch}")
                return self._heaps.batches.is_coordinating(batch)
        return True

    def _view(self, topic: str, partition: int) -> GrowingPartition:
        found = self._topic(topic)
        if found is None:
            raise UnavailableError(f"heap {topic}", "it is not known here")
        return self._heaps.partition(found, partition)
