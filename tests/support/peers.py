"""Agents that have nothing but streams: real sockets, a table of members instead of a store."""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.support.waiting import async_until

from holdfast.agent.peers.frames import (
    Buffer,
    Frame,
    FrameDecoder,
    FrameKind,
    MessageClass,
    PeerMessage,
    encode_frame,
    encode_messages,
)
from holdfast.agent.peers.handshake import VERSIONS, Hello, PeerIdentity, ProtocolVersions, encode_handshake
from holdfast.agent.peers.inbound_stream import ReceivedMessages
from holdfast.agent.peers.observations import DialOutcome, Observation
from holdfast.agent.peers.peers import PeerEndpoint, Peers
from holdfast.agent.peers.settings import PeerSettings
from holdfast.agent.peers.stream import PeerStream
from holdfast.security.tls import CurrentContext
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SeededRandom
from holdfast.vocabulary.sockets import bind_one
from holdfast.vocabulary.tasks import Notify
from holdfast.vocabulary.types import Member

CLUSTER = "cluster-1"
# Waits that end by an event are long, so that a busy machine ends none of them early; pauses are short.
QUICK = PeerSettings(
    lag_ms=60_000,
    connect_ms=60_000,
    keep_alive_ms=50,
    silent_ms=60_000,
    reconnect_ms=5,
    reconnect_max_ms=50,
    admission_ms=20,
)


def key(partition: int) -> bytes:
    return f"orders:{partition}".encode()


class MemberTable:
    """The members of a cluster. What a node sees of it is a view of its own: a notification wakes one waiter."""

    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}
        self._views: list[TableView] = []

    def view(self) -> "TableView":
        self._views.append(TableView(self))
        return self._views[-1]

    def put(self, member: Member) -> None:
        self.by_id[member.id] = member
        self._changed()

    def remove(self, name: str) -> None:
        del self.by_id[name]
        self._changed()

    def _changed(self) -> None:
        for view in self._views:
            view.members_changed.notify()


class TableView:
    def __init__(self, table: MemberTable) -> None:
        self._table = table
        self.members_changed = Notify()

    @property
    def members(self) -> list[Member]:
        return list(self._table.by_id.values())

    def member(self, member_id: str) -> Member | None:
        return self._table.by_id.get(member_id)


@dataclass
class RecordedEvents:
    """A listener that remembers."""

    connected_to: list[str] = field(default_factory=list)
    disconnected_from: list[str] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    lagging_keys: list[bytes] = field(default_factory=list)
    recovered_keys: list[bytes] = field(default_factory=list)

    def connected(self, stream: PeerStream) -> None:
        self.connected_to.append(stream.peer.agent)

    def disconnected(self, stream: PeerStream) -> None:
        self.disconnected_from.append(stream.peer.agent)

    def observed(self, observation: Observation) -> None:
        self.observations.append(observation)

    def lagging(self, stream: PeerStream, key: bytes) -> None:
        self.lagging_keys.append(key)

    def recovered(self, stream: PeerStream, key: bytes) -> None:
        self.recovered_keys.append(key)

    def outcomes(self) -> list[DialOutcome]:
        return [each.outcome for each in self.observations]


class Answers:
    """What became of messages."""

    def __init__(self) -> None:
        self.got: list[bytes | None] = []

    def __call__(self, answer: memoryview | None) -> None:
        self.got.append(None if answer is None else bytes(answer))


class StreamNode:
    """An agent with streams alone. It answers every message with `ok:` and the payload, unless `hold` says otherwise."""

    def __init__(self, peers: Peers, table: MemberTable) -> None:
        self.peers, self.table = peers, table
        self.name, self.events = peers.us.agent, RecordedEvents()
        self.received: list[ReceivedMessages] = []
        self.held: list[tuple[ReceivedMessages, int]] = []
        self.hold: Callable[[PeerMessage], bool] = lambda _: False
        peers.on_messages = self._take
        peers.listeners.append(self.events)

    def _take(self, received: ReceivedMessages) -> None:
        self.received.append(received)
        for index, message in enumerate(received.messages):
            if self.hold(message):
                self.held.append((received, index))
            else:
                received.answer(index, b"ok:", message.payload)

    def answer_held(self) -> None:
        held, self.held = self.held, []
        for received, index in held:
            received.answer(index, b"late:", received.messages[index].payload)

    def frames(self) -> list[list[bytes]]:
        """The payloads of each frame of messages that came."""
        return [[bytes(each.payload) for each in received.messages] for received in self.received]

    async def stream_to(self, other: str) -> PeerStream:
        """The stream to another agent, once it is connected."""
        wal_id = f"wal-{other}"
        await async_until(lambda: (found := self.peers.to(wal_id)) is not None and found.connected, what=f"to {other}")
        stream = self.peers.to(wal_id)
        assert stream is not None
        return stream

    async def ask(self, other: str, *payloads: bytes, partition: int = 0) -> list[bytes | None]:
        """Send the payloads in one turn, and wait for their answers."""
        stream, answers = await self.stream_to(other), Answers()
        for payload in payloads:
            assert stream.send(key(partition), [payload], answers)
        await async_until(lambda: len(answers.got) == len(payloads), what=lambda: f"answers: {answers.got}")
        return answers.got


@asynccontextmanager
async def listening_node(
    table: MemberTable,
    name: str,
    *,
    settings: PeerSettings = QUICK,
    versions: ProtocolVersions = VERSIONS,
    client_tls: CurrentContext | None = None,
    server_tls: CurrentContext | None = None,
    cluster: str = CLUSTER,
    register: bool = True,
    host: str = "127.0.0.1",
    send_buffer_bytes: int = 0,
) -> AsyncIterator[StreamNode]:
    """A node that listens and is a member; it has no session: enter `peers.joined()`.

    `send_buffer_bytes`: what the system buffers of what it sends to those who connect.
    """
    clock, random = RealClock(), SeededRandom(7)
    bound = bind_one(host, 0)
    if send_buffer_bytes:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    address = f"{host}:{bound.getsockname()[1]}"
    endpoint = PeerEndpoint(
        sockets=[bound], address=address, client_tls=client_tls, server_tls=server_tls, versions=versions
    )
    us = PeerIdentity(cluster=cluster, agent=name, wal_id=f"wal-{name}")
    async with Peers.serving(us, endpoint, table.view(), settings=settings, clock=clock, random=random) as peers:
        if register:
            table.put(member_of(peers))
        yield StreamNode(peers, table)


def member_of(peers: Peers) -> Member:
    us = peers.us
    return Member(id=us.agent, session=f"session-{us.agent}", peer_address=peers.address, wal_id=us.wal_id)


@asynccontextmanager
async def stream_node(table: MemberTable, name: str, **options: object) -> AsyncIterator[StreamNode]:
    """A node with a session."""
    async with listening_node(table, name, **options) as node, node.peers.joined():  # type: ignore[arg-type]
        yield node


class RawPeer:
    """A peer by hand, for what a proper one never sends. Blocking: its other end must be on another thread, or awaited between."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.socket.setblocking(False)
        self._decoder = FrameDecoder(memoryview(bytearray(65536)), bytes_max=1 << 20)
        self.frames: list[Frame] = []
        self.closed = False

    def __enter__(self) -> "RawPeer":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def hello(self, **changes: object) -> None:
        fields = {"version": 1, "cluster": CLUSTER, "agent": "raw", "wal_id": "wal-raw", **changes}
        self.send(encode_frame(FrameKind.HELLO, encode_handshake(Hello(**fields))))  # type: ignore[arg-type]

    def messages(self, sequence: int, *payloads: bytes, partition: int = 0) -> None:
        self.send(encode_messages(sequence, [(key(partition), MessageClass.DATA, [each]) for each in payloads]))

    def send(self, frame: list[Buffer]) -> None:
        self.socket.sendall(b"".join(frame))

    async def receive(self, kind: FrameKind) -> Frame:
        """The next frame of this kind."""
        await async_until(lambda: self._poll() or self.closed or any(each.kind is kind for each in self.frames))
        found = next((each for each in self.frames if each.kind is kind), None)
        assert found is not None, f"{kind.name} awaited, got {self.frames}"
        self.frames.remove(found)
        return found

    async def until_closed(self) -> None:
        await async_until(lambda: self._poll() or self.closed, what="the connection is closed")

    def _poll(self) -> bool:
        try:
            count = self.socket.recv_into(self._decoder.buffer)
        except BlockingIOError:
            return False
        except OSError:
            count = 0
        if count:
            self.frames += self._decoder.received(count)
        else:
            self.closed = True
        return False
