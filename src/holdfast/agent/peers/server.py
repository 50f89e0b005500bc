"""The accepting end: who is let in, and the streams of those who are.

The one rule: no message is looked at before the store has said who sends it.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, Protocol

from holdfast.agent.peers.connection import PeerConnection
from holdfast.agent.peers.frames import Frame, FrameKind, MalformedFrameError, encode_frame
from holdfast.agent.peers.handshake import (
    NO_SESSION,
    VERSIONS,
    Hello,
    MemberLookup,
    PeerIdentity,
    ProtocolVersions,
    Welcome,
    choose_version,
    decode_handshake,
    encode_handshake,
    refusal_of,
    versions_of,
)
from holdfast.agent.peers.inbound_stream import InboundStream, OnMessages, take_none
from holdfast.agent.peers.observations import DialOutcome
from holdfast.agent.peers.settings import PeerSettings, TrafficCounters
from holdfast.security.tls import CurrentContext
from holdfast.security.tls_listener import TlsListener, accepting_tls
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.tasks import background_tasks
from holdfast.vocabulary.types import Member

_log: Final = logging.getLogger(__name__)

_BACKLOG: Final = 256
_POLL_MS: Final = 100


class PeerServer:
    """The listening end of an agent. Made by `serving_peers`."""

    def __init__(
        self,
        us: PeerIdentity,
        member: MemberLookup,
        *,
        settings: PeerSettings,
        clock: Clock,
        versions: ProtocolVersions = VERSIONS,
    ) -> None:
        self.us, self.settings, self.clock = us, settings, clock
        self.open = True  # False: everybody is refused, as long as this agent has no session
        self.streams: dict[InboundStream, None] = {}
        self.counters: dict[str, TrafficCounters] = {}
        self.refused = 0
        self.on_messages: OnMessages = take_none
        self._member, self._versions = member, versions
        self._arriving: dict[PeerConnection, int] = {}  # connections in the handshake, and since when
        self._hellos: dict[PeerConnection, Hello] = {}

    def connection(self) -> PeerConnection:
        """A protocol for a connection that was accepted."""
        return PeerConnection(self, clock=self.clock)

    @property
    def handshakes(self) -> int:
        """Connections that are in the handshake, or are refused and still open."""
        return len(self._arriving)

    # ── the handshake ──

    def opened(self, connection: PeerConnection) -> None:
        if len(self._arriving) + len(self.streams) >= self.settings.connections_max:
            reason = f"{self.settings.connections_max} connections are open"
            if not self._arriving:
                connection.abort(DialOutcome.REJECTED, reason)
                return
            # Strangers that say nothing must not keep agents out.
            oldest = next((each for each in self._arriving if each not in self._hellos), next(iter(self._arriving)))
            del self._arriving[oldest]
            self._hellos.pop(oldest, None)
            oldest.abort(DialOutcome.REJECTED, reason)
        self._arriving[connection] = self.clock.boot_ms()

    def frame_received(self, connection: PeerConnection, frame: Frame) -> None:
        if frame.kind is not FrameKind.HELLO or connection in self._hellos:
            raise MalformedFrameError(f"{frame.kind.name} in the handshake")
        self._hellos[connection] = decode_handshake(frame.body, Hello)
        self._admit(connection, final=False)

    def writable(self, connection: PeerConnection) -> None:
        """Nothing waits."""

    def ended(self, connection: PeerConnection, outcome: DialOutcome, detail: str) -> None:
        self._arriving.pop(connection, None)
        self._hellos.pop(connection, None)
        if outcome is DialOutcome.MALFORMED:
            _log.warning("connection from %s closed: %s", connection.peer_address, detail)

    def _admit(self, connection: PeerConnection, *, final: bool) -> None:
        """Let the peer in, or refuse it; one that the store does not show yet is waited for, unless this is `final`."""
        if not connection.open:
            return  # it is refused, and the peer has not taken that yet
        hello = self._hellos[connection]
        reason = self._refusal(hello)
        if reason is None:
            self._welcome(connection, hello)
        elif final or not self._may_become_known(hello):
            self.refused += 1
            level = logging.WARNING if self.open else logging.INFO  # it starts, or stops: no peer's fault
            _log.log(level, "peer at %s refused: %s", connection.peer_address, reason)
            connection.refuse(reason)

    def _refusal(self, hello: Hello) -> str | None:
        if not self.open:
            return f"agent {self.us.agent!r} {NO_SESSION}"
        return refusal_of(hello, self.us, self._member(hello.agent), self._versions)

    def _may_become_known(self, hello: Hello) -> bool:
        """Whether it is refused for what our view of the store does not show, or shows no more."""
        member = Member(id=hello.agent, session="", wal_id=hello.wal_id)
        return self.open and refusal_of(hello, self.us, member, self._versions) is None

    def _welcome(self, connection: PeerConnection, hello: Hello) -> None:
        settings, us = self.settings, self.us
        version = choose_version(self._versions, versions_of(hello))
        assert version is not None  # otherwise it was refused
        peer = PeerIdentity(cluster=hello.cluster, agent=hello.agent, wal_id=hello.wal_id)
        del self._arriving[connection], self._hellos[connection]
        for former in [each for each in self.streams if each.peer.agent == peer.agent]:
            former.connection.abort(DialOutcome.CLOSED, "the peer has connected again")
        stream = InboundStream(connection, peer, version, self)
        self.streams[stream] = None
        counters = self.counters.setdefault(peer.agent, TrafficCounters())
        connection.begin(stream, counters, frame_bytes_max=settings.frame_bytes_max)
        welcome = Welcome(
            version=version,
            cluster=us.cluster,
            agent=us.agent,
            wal_id=us.wal_id,
            stream_credit_bytes=settings.stream_credit_bytes,
            partition_credit_bytes=settings.partition_credit_bytes,
            control_credit_bytes=settings.control_credit_bytes,
            frame_bytes_max=settings.frame_bytes_max,
        )
        connection.send(encode_frame(FrameKind.WELCOME, encode_handshake(welcome)))
        _log.info("agent %s connected from %s", peer.agent, connection.peer_address)

    # ── streams ──

    def left(self, stream: InboundStream, outcome: DialOutcome, detail: str) -> None:
        """A stream has ended."""
        self.streams.pop(stream, None)
        level = logging.INFO if outcome in (DialOutcome.CLOSED, DialOutcome.STOPPED) else logging.WARNING
        _log.log(level, "connection from agent %s: %s", stream.peer.agent, f"{outcome.value}: {detail}".rstrip(": "))

    def members_changed(self) -> None:
        """Admit who was waited for, and close the streams of agents that are no members any more, or have another WAL."""
        for connection in list(self._hellos):
            self._admit(connection, final=False)
        for stream in list(self.streams):
            member = self._member(stream.peer.agent)
            if member is None or member.wal_id != stream.peer.wal_id:
                stream.connection.close(
                    DialOutcome.STOPPED, f"agent {stream.peer.agent!r} is not a live member any more"
                )

    def close_streams(self, reason: str) -> None:
        """Close every stream with a reason; `sweep` aborts what does not end."""
        for stream in list(self.streams):
            stream.connection.close(DialOutcome.STOPPED, reason)

    async def sweep(self) -> None:
        """End handshakes that take too long and streams whose peer is silent, until cancelled."""
        settings = self.settings
        while True:
            await self.clock.sleep_ms(min(_POLL_MS, settings.admission_ms or _POLL_MS))
            now_ms = self.clock.boot_ms()
            for connection, since_ms in list(self._arriving.items()):
                if connection.open and connection in self._hellos:
                    if now_ms - since_ms >= settings.admission_ms:
                        self._admit(connection, final=True)
                elif now_ms - since_ms >= settings.connect_ms:
                    connection.abort(DialOutcome.TIMED_OUT, "no handshake")
            for stream in list(self.streams):
                silent_ms = stream.connection.silent_ms(now_ms)
                if silent_ms >= settings.silent_ms:
                    stream.connection.abort(DialOutcome.TIMED_OUT, f"nothing received for {silent_ms} ms")

    async def stop(self, reason: str) -> None:
        """Close everything, within `close_ms`."""
        self.open = False
        ends = [each.connection.ended for each in self.streams] + [each.ended for each in self._arriving]
        self.close_streams(reason)
        for connection in list(self._arriving):
            connection.abort(DialOutcome.STOPPED, reason)
        if ends:
            await asyncio.wait(ends, timeout=self.settings.close_ms / 1000)
        for stream in list(self.streams):
            stream.connection.abort(DialOutcome.STOPPED, reason)


class Listening(Protocol):
    """What is closed to accept no more."""

    def close(self) -> None: ...


@asynccontextmanager
async def serving_peers(
    server: PeerServer, sockets: Sequence[socket.socket], *, tls: CurrentContext | None = None
) -> AsyncIterator[PeerServer]:
    """Accept peers on the sockets for the body."""
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop, "the agent stops")
        if tls is not None:
            settings = server.settings
            listener = TlsListener(
                server.connection,
                tls,
                connections=lambda: server.handshakes + len(server.streams),
                connections_max=settings.connections_max,
                handshake_ms=settings.connect_ms,
            )
            await stack.enter_async_context(accepting_tls(listener, sockets))
        else:
            loop = asyncio.get_running_loop()
            for each in sockets:
                made: Listening = await loop.create_server(server.connection, sock=each, backlog=_BACKLOG)
                stack.callback(made.close)
        async with background_tasks(server.sweep()):
            yield server
