"""Replicas of other agents over their streams, and the own ones directly: the `ReplicaNetwork` of an agent.

The one rule: whatever a peer sends concerns one message. What cannot be read is answered without a payload, and so is what a
replica does not answer; the sender takes that for "outcome unknown". Agents whose release has no replication are sent none of it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Final

import msgspec

from holdfast.agent.peers.frames import Buffer, MalformedFrameError, MessageClass, PeerMessage
from holdfast.agent.peers.handshake import REPLICATION_VERSION
from holdfast.agent.peers.inbound_stream import ReceivedMessages
from holdfast.agent.peers.observations import Observation
from holdfast.agent.peers.peers import Peers
from holdfast.agent.peers.stream import PeerStream
from holdfast.log.replication.hosted_replica import name_of
from holdfast.log.replication.messages import Ack, Answer, Append, ReadTail, Request, decode, encode_parts
from holdfast.log.replication.network import OnAnswer, ReplicaListener
from holdfast.log.replication.positions import PartitionKey
from holdfast.log.replication.replica_host import ReplicaHost
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError

_log: Final = logging.getLogger(__name__)

_KEYS_MAX: Final = 4096  # remembered

TakeMessage = Callable[[ReceivedMessages, int, PeerMessage], None]
"""Takes one message of a frame, and answers it, now or later."""


class PeerReplicaNetwork:
    """One agent's way to the replicas. A `ReplicaNetwork` and a `StreamListener`. `peers`: None if it has no streams."""

    def __init__(self, host: ReplicaHost, peers: Peers | None, *, clock: Clock) -> None:
        self._host, self._peers, self._clock = host, peers, clock
        self._streams: dict[str, PeerStream] = {}  # connected, by WAL id
        self._listeners: dict[ReplicaListener, None] = {}  # one for each partition that is led
        self._recovered: dict[str, None] = {}
        self.others: Mapping[bytes, TakeMessage] = {}  # by key: messages that are not about replicas
        if peers is not None:
            peers.on_messages = self._take
            peers.listeners.append(self)

    # ── what a leader uses ──

    @property
    def wal_id(self) -> str:
        return self._host.wal_id

    def is_connected(self, wal_id: str) -> bool:
        return wal_id == self.wal_id or wal_id in self._streams

    def send(self, wal_id: str, message: Request, on_answer: OnAnswer) -> None:
        if wal_id == self._host.wal_id:
            self._host.handle(message, wal_id, on_answer)
            return
        stream = self._streams.get(wal_id)
        if stream is None or not self._send(stream, message, on_answer):
            asyncio.get_running_loop().call_soon(on_answer, None)

    def listen(self, listener: ReplicaListener) -> Callable[[], None]:
        self._listeners[listener] = None
        return partial(self._listeners.pop, listener, None)

    def _send(self, stream: PeerStream, message: Request, on_answer: OnAnswer) -> bool:
        bulk = isinstance(message, Append) and message.entries
        try:
            return stream.send(
                _key_of(message.partition),
                encode_parts(message),
                partial(_answered, stream.peer.agent, on_answer),
                kind=MessageClass.DATA if bulk else MessageClass.CONTROL,
            )
        except InvalidError as error:  # larger than the peer takes
            _log.warning("a message for %s cannot be sent: %s", name_of(message.partition), error)
            return False

    # ── messages of other agents' leaders ──

    def _take(self, received: ReceivedMessages) -> None:
        if received.version < REPLICATION_VERSION:
            raise MalformedFrameError(f"messages in version {received.version}")
        for index, message in enumerate(received.messages):
            other = self.others.get(message.key) if self.others else None
            if other is not None:
                other(received, index, message)
                continue
            try:
                request = self._decode(message.payload)
            except InvalidError as error:
                self._host.counters.refuse("malformed")
                _log.warning("a message of agent %s is refused: %s", received.peer.agent, error)
                received.answer(index)
            else:
                self._host.handle(request, received.peer.wal_id, partial(_reply, received, index))

    def _decode(self, payload: memoryview) -> Request:
        message = decode(_detached(payload))
        if isinstance(message, Append):
            return message
        if not isinstance(message, Request):
            raise InvalidError("message", type(message).__name__, "a request")
        if isinstance(message, ReadTail) and self._peers is not None:
            return msgspec.structs.replace(
                message, bytes_max=min(message.bytes_max, self._peers.settings.partition_credit_bytes)
            )
        return message

    # ── streams ──

    def connected(self, stream: PeerStream) -> None:
        if stream.version >= REPLICATION_VERSION:
            wal_id = stream.peer.identity.wal_id
            self._streams[wal_id] = stream
            for listener in list(self._listeners):
                listener.connected(wal_id)

    def disconnected(self, stream: PeerStream) -> None:
        wal_id = stream.peer.identity.wal_id
        if self._streams.get(wal_id) is stream:
            del self._streams[wal_id]
            for listener in list(self._listeners):
                listener.disconnected(wal_id)

    def observed(self, observation: Observation) -> None:
        """Whether an agent is dead is for others to say."""

    def lagging(self, stream: PeerStream, key: bytes) -> None:
        """What it was sent has had its answer, None."""

    def recovered(self, stream: PeerStream, key: bytes) -> None:
        """As after a new connection, positions are asked for; once, however many partitions were lagging."""
        if not self._recovered:
            asyncio.get_running_loop().call_soon(self._reconnect)
        self._recovered[stream.peer.identity.wal_id] = None

    def _reconnect(self) -> None:
        recovered, self._recovered = self._recovered, {}
        for wal_id in recovered:
            if wal_id in self._streams:
                for listener in list(self._listeners):
                    listener.connected(wal_id)

    async def run(self) -> None:
        """Tell leaders which replicas are alive, and replicas which leaders are, until cancelled."""
        seen_ms = self._clock.boot_ms()
        interval_ms = 1_000 if self._peers is None else self._peers.settings.keep_alive_ms
        while True:
            await self._clock.sleep_ms(interval_ms)
            since_ms, seen_ms = seen_ms, self._clock.boot_ms()
            alive = [self.wal_id]
            alive += [wal_id for wal_id, stream in self._streams.items() if stream.received_at_ms >= since_ms]
            for wal_id in alive:
                for listener in list(self._listeners):
                    listener.heard(wal_id)
            for inbound in self._peers.server.streams if self._peers is not None else ():
                self._host.heard(inbound.peer.wal_id, inbound.connection.received_at_ms)


@lru_cache(maxsize=_KEYS_MAX)
def _key_of(partition: PartitionKey) -> bytes:
    return name_of(partition).encode()


def _detached(payload: memoryview) -> Buffer:
    """The payload, without the rest of its frame if that is larger: a replica or a leader may keep it."""
    return bytes(payload) if 2 * len(payload) < memoryview(payload.obj).nbytes else payload


def _reply(received: ReceivedMessages, index: int, answer: Answer | None) -> None:
    received.answer(index, *(encode_parts(answer) if answer is not None else ()))


def _answered(agent: str, on_answer: OnAnswer, payload: memoryview | None) -> None:
    """The transport's answer as a replica's. Whatever it is, it ends nobody's connection."""
    answer: Answer | None = None
    if payload:
        try:
            decoded = decode(_detached(payload))
            if not isinstance(decoded, Ack) and not isinstance(decoded, Answer):
                raise InvalidError("answer", type(decoded).__name__, "an answer")
            answer = decoded
        except InvalidError as error:
            _log.warning("an answer of agent %s is ignored: %s", agent, error)
    try:
        on_answer(answer)
    except Exception:
        _log.exception("the answer of agent %s to a replication message failed", agent)
