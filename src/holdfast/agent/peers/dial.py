"""Connecting to a peer: every address of its host, the handshake, and what an attempt in vain shows."""

import asyncio
import socket
from dataclasses import dataclass
from typing import Protocol

from holdfast.agent.peers.connection import PeerConnection
from holdfast.agent.peers.frames import Frame, FrameKind, MalformedFrameError, encode_frame
from holdfast.agent.peers.handshake import (
    Hello,
    PeerIdentity,
    ProtocolVersions,
    Refusal,
    Welcome,
    decode_handshake,
    encode_handshake,
    mismatch_of,
)
from holdfast.agent.peers.observations import DialOutcome, outcome_of, outcome_of_attempts
from holdfast.security.tls import CurrentContext
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.host_port import HostPort


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another agent, and where it listens."""

    identity: PeerIdentity
    address: HostPort

    @property
    def agent(self) -> str:
        """Its id."""
        return self.identity.agent


class DialError(Exception):
    """There is no connection."""

    def __init__(self, outcome: DialOutcome, reason: str) -> None:
        super().__init__(outcome, reason)
        self.outcome, self.reason = outcome, reason


class Dial(Protocol):
    """Connects to a peer: `dial`, or something that a test puts in its place."""

    async def __call__(self, peer: Peer) -> tuple[PeerConnection, Welcome]:
        """`DialError`: there is no connection."""
        ...


class _Handshake:
    """The connecting end, up to the peer's answer."""

    def __init__(self, hello: Hello, expected: PeerIdentity, versions: ProtocolVersions) -> None:
        self._hello, self._expected, self._versions = hello, expected, versions
        self.connection: PeerConnection | None = None
        self.welcomed: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()

    def opened(self, connection: PeerConnection) -> None:
        self.connection = connection
        connection.send(encode_frame(FrameKind.HELLO, encode_handshake(self._hello)))

    def frame_received(self, connection: PeerConnection, frame: Frame) -> None:
        if self.welcomed.done():
            raise MalformedFrameError(f"{frame.kind.name} before the first message")
        if frame.kind is FrameKind.REFUSAL:
            self._fail(DialOutcome.REJECTED, decode_handshake(frame.body, Refusal).reason)
        elif frame.kind is FrameKind.WELCOME:
            welcome = decode_handshake(frame.body, Welcome)
            mismatch = mismatch_of(welcome, self._expected, self._versions)
            if mismatch is None:
                self.welcomed.set_result(welcome)
            else:
                self._fail(DialOutcome.REJECTED, mismatch)
        else:
            raise MalformedFrameError(f"{frame.kind.name} in the handshake")

    def writable(self, connection: PeerConnection) -> None:
        """Nothing waits."""

    def ended(self, connection: PeerConnection, outcome: DialOutcome, detail: str) -> None:
        self._fail(outcome, detail)

    def _fail(self, outcome: DialOutcome, reason: str) -> None:
        if not self.welcomed.done():
            self.welcomed.set_exception(DialError(outcome, reason))
            self.welcomed.exception()  # looked at: whoever dialled may have given up


async def dial(
    us: PeerIdentity,
    peer: Peer,
    *,
    connect_ms: int,
    versions: ProtocolVersions,
    clock: Clock,
    tls: CurrentContext | None,
) -> tuple[PeerConnection, Welcome]:
    """A connection to the peer, after the handshake, within `connect_ms`."""
    hello = Hello(version=versions.newest, oldest=versions.oldest, cluster=us.cluster, agent=us.agent, wal_id=us.wal_id)
    handshake = _Handshake(hello, peer.identity, versions)
    failure = DialError(DialOutcome.TIMED_OUT, f"not connected within {connect_ms} ms")
    try:
        async with asyncio.timeout(connect_ms / 1000):
            await _connect(handshake, peer.address, clock=clock, tls=tls)
            welcome = await handshake.welcomed
        assert handshake.connection is not None
        return handshake.connection, welcome
    except DialError as error:
        failure = error
    except (TimeoutError, OSError, UnicodeError) as error:  # the last of a host that can be no name
        if not isinstance(error, TimeoutError):
            failure = DialError(outcome_of(error), str(error))
    finally:
        if handshake.connection is not None and not _succeeded(handshake):
            handshake.connection.abort(failure.outcome, failure.reason)
    raise failure


def _succeeded(handshake: _Handshake) -> bool:
    welcomed = handshake.welcomed
    return welcomed.done() and not welcomed.cancelled() and welcomed.exception() is None


async def _connect(handshake: _Handshake, address: HostPort, *, clock: Clock, tls: CurrentContext | None) -> None:
    """Connect to the first address of the host that accepts."""
    loop = asyncio.get_running_loop()
    errors: list[BaseException] = []
    for family, _, _, _, found in await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM):
        try:
            await loop.create_connection(
                lambda: PeerConnection(handshake, clock=clock),
                str(found[0]),
                int(found[1]),
                family=family,
                ssl=tls.context if tls is not None else None,
                server_hostname=address.host if tls is not None else None,
            )
        except OSError as error:
            errors.append(error)
        else:
            return
    outcome, cause = outcome_of_attempts(errors or [OSError(f"{address.host} has no address")])
    raise DialError(outcome, str(cause))
