"""The streams of one agent: one to every other live agent, one from each of them.

The one rule: streams live under the agent's session. Without one it connects to nobody and refuses everybody; its port stays open,
because a port that refuses means that the process is dead.

Whoever sends looks a stream up by WAL id (`to`), since that is what names a replica, and adds itself to `listeners`; whoever takes
messages sets `on_messages`.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from holdfast.agent.peers.dial import Peer, dial
from holdfast.agent.peers.handshake import VERSIONS, PeerIdentity, ProtocolVersions
from holdfast.agent.peers.inbound_stream import OnMessages
from holdfast.agent.peers.observations import Observation
from holdfast.agent.peers.server import PeerServer, serving_peers
from holdfast.agent.peers.settings import PeerSettings
from holdfast.agent.peers.stream import PeerStream, StreamListener
from holdfast.security.tls import CurrentContext
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.host_port import split_host_port
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import Notify, background_tasks, task_group
from holdfast.vocabulary.types import Member

_log: Final = logging.getLogger(__name__)


class MemberView(Protocol):
    """The live agents, as this process sees them."""

    members_changed: Notify

    @property
    def members(self) -> Sequence[Member]:
        """Every live agent."""
        ...

    def member(self, member_id: str) -> Member | None:
        """A live agent."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerEndpoint:
    """Where an agent takes streams: bound sockets and the address it registers. `*_tls`: mutual TLS, if there is to be any."""

    sockets: Sequence[socket.socket]
    address: str
    client_tls: CurrentContext | None = None
    server_tls: CurrentContext | None = None
    versions: ProtocolVersions = field(default=VERSIONS)


class _Listeners:
    """Every listener, as one."""

    def __init__(self) -> None:
        self.each: list[StreamListener] = []

    def connected(self, stream: PeerStream) -> None:
        for listener in self.each:
            listener.connected(stream)

    def disconnected(self, stream: PeerStream) -> None:
        for listener in self.each:
            listener.disconnected(stream)

    def observed(self, observation: Observation) -> None:
        for listener in self.each:
            listener.observed(observation)

    def lagging(self, stream: PeerStream, key: bytes) -> None:
        for listener in self.each:
            listener.lagging(stream, key)

    def recovered(self, stream: PeerStream, key: bytes) -> None:
        for listener in self.each:
            listener.recovered(stream, key)


class Peers:
    """The streams of one agent. Made by `serving`."""

    def __init__(
        self,
        us: PeerIdentity,
        endpoint: PeerEndpoint,
        view: MemberView,
        *,
        settings: PeerSettings,
        clock: Clock,
        random: Random,
    ) -> None:
        self.us, self.address, self.settings = us, endpoint.address, settings
        self.server = PeerServer(us, view.member, settings=settings, clock=clock, versions=endpoint.versions)
        self.server.open = False
        self._endpoint, self._view, self._clock, self._random = endpoint, view, clock, random
        self._listeners = _Listeners()
        self._streams: dict[Peer, tuple[PeerStream, asyncio.Task[None]]] = {}
        self._dial = partial(
            dial,
            us,
            connect_ms=settings.connect_ms,
            versions=endpoint.versions,
            clock=clock,
            tls=endpoint.client_tls,
        )

    @classmethod
    @asynccontextmanager
    async def serving(
        cls,
        us: PeerIdentity,
        endpoint: PeerEndpoint,
        view: MemberView,
        *,
        settings: PeerSettings,
        clock: Clock,
        random: Random,
    ) -> AsyncIterator["Peers"]:
        """Listen for the body. Everybody is refused outside of `joined`."""
        peers = cls(us, endpoint, view, settings=settings, clock=clock, random=random)
        ends = {"peers": endpoint.server_tls, "connections to peers": endpoint.client_tls}
        reload_ms = settings.tls_reload_ms
        reloads = (tls.follow(name, clock=clock, reload_ms=reload_ms) for name, tls in ends.items() if tls is not None)
        async with serving_peers(peers.server, endpoint.sockets, tls=endpoint.server_tls), background_tasks(*reloads):
            yield peers

    @property
    def listeners(self) -> list[StreamListener]:
        """Who is told of streams and of what is seen of peers."""
        return self._listeners.each

    @property
    def on_messages(self) -> OnMessages:
        """Takes what peers send."""
        return self.server.on_messages

    @on_messages.setter
    def on_messages(self, take: OnMessages) -> None:
        self.server.on_messages = take

    @property
    def streams(self) -> Iterable[PeerStream]:
        """The streams to other agents, connected or not."""
        return (stream for stream, _ in self._streams.values())

    def to(self, wal_id: str) -> PeerStream | None:
        """The stream to the live agent that has this WAL."""
        return next((stream for stream in self.streams if stream.peer.identity.wal_id == wal_id), None)

    @asynccontextmanager
    async def joined(self) -> AsyncIterator[None]:
        """This agent is a live member for the body: connect to the others and let them in."""
        self.server.open = True
        try:
            async with background_tasks(self._follow_members()):
                yield
        finally:
            self.server.open = False
            self.server.close_streams(f"agent {self.us.agent!r} has no session any more")

    async def _follow_members(self) -> None:
        async with task_group() as group:
            try:
                while True:
                    self._update(group.create_task)
                    self.server.members_changed()
                    await self._view.members_changed.wait()
            finally:
                for _, task in self._streams.values():
                    task.cancel()
                self._streams = {}

    def _update(self, start: "Callable[..., asyncio.Task[None]]") -> None:
        peers = peers_of(self.us, self._view.members)
        for peer in [each for each in self._streams if each.agent not in peers or peers[each.agent] != each]:
            self._streams.pop(peer)[1].cancel()
        for peer in peers.values():
            if peer not in self._streams:
                stream = PeerStream(
                    peer,
                    self._listeners,
                    dial=self._dial,
                    settings=self.settings,
                    clock=self._clock,
                    random=self._random,
                )
                self._streams[peer] = stream, start(stream.run())


def peers_of(us: PeerIdentity, members: Iterable[Member]) -> Mapping[str, Peer]:
    """The agents to connect to, by id. Those of a release without streams have no address for them."""
    found = {}
    for member in members:
        address = split_host_port(member.peer_address) if member.peer_address else None
        if member.id == us.agent or not member.wal_id:
            continue
        if address is None or not address.host or address.port is None:
            if member.peer_address:
                _log.warning("agent %s has no usable peer address: %r", member.id, member.peer_address)
            continue
        identity = PeerIdentity(cluster=us.cluster, agent=member.id, wal_id=member.wal_id)
        found[member.id] = Peer(identity=identity, address=address)
    return found
