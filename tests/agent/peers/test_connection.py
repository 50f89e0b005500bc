"""A connection whose transport takes as much as the test says: when a peer counts as silent, and how closing ends."""

import asyncio
from collections.abc import Iterable

import pytest
from tests.support.peers import QUICK, RecordedEvents

from holdfast.agent.peers.connection import PeerConnection
from holdfast.agent.peers.dial import Peer
from holdfast.agent.peers.frames import Buffer, Frame, FrameKind, encode_frame
from holdfast.agent.peers.handshake import PeerIdentity, Welcome
from holdfast.agent.peers.observations import DialOutcome
from holdfast.agent.peers.stream import PeerStream
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.host_port import HostPort
from holdfast.vocabulary.random import SeededRandom
from holdfast.vocabulary.tasks import background_tasks


class Transport(asyncio.Transport):
    """Takes what is written; the test says how much of it waits."""

    waiting, aborted = 0, False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.waiting += len(data)

    def writelines(self, parts: Iterable[Buffer]) -> None:
        self.waiting += sum(map(len, parts))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is paused here."""

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def close(self) -> None:
        """What waits is sent first."""

    def abort(self) -> None:
        self.aborted = True


class End:
    def opened(self, connection: PeerConnection) -> None: ...
    def frame_received(self, connection: PeerConnection, frame: Frame) -> None: ...
    def writable(self, connection: PeerConnection) -> None: ...
    def ended(self, connection: PeerConnection, outcome: DialOutcome, detail: str) -> None: ...


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def opened(clock: FakeClock) -> tuple[PeerConnection, Transport]:
    connection, transport = PeerConnection(End(), clock=clock), Transport()
    connection.connection_made(transport)
    return connection, transport


async def test_a_peer_that_takes_a_large_frame_slowly_is_not_silent(clock: FakeClock) -> None:
    connection, transport = await opened(clock)
    connection.send([bytes(64 << 20)])
    for _ in range(20):
        clock.advance_ms(1_000)
        assert connection.silent_ms(clock.boot_ms()) <= 1_000
        connection.ping()
        transport.waiting -= 3 << 20


async def test_a_peer_that_takes_nothing_is_silent_whatever_is_sent_to_it(clock: FakeClock) -> None:
    connection, transport = await opened(clock)
    connection.send([bytes(1_000)])
    for second in range(1, 11):
        clock.advance_ms(1_000)
        assert connection.silent_ms(clock.boot_ms()) == 1_000 * second
        connection.ping()
    transport.waiting = 0  # it was all taken
    assert connection.silent_ms(clock.boot_ms()) == 0


async def test_what_only_the_own_system_buffers_is_no_sign_of_life(clock: FakeClock) -> None:
    connection, transport = await opened(clock)
    for second in range(1, 11):
        connection.ping()
        transport.waiting = 0
        clock.advance_ms(1_000)
        assert connection.silent_ms(clock.boot_ms()) == 1_000 * second


async def test_a_peer_that_says_goodbye_and_takes_nothing_more_is_connected_to_again(clock: FakeClock) -> None:
    identity = PeerIdentity(cluster="c", agent="bob", wal_id="wal-bob")
    welcome = Welcome(
        version=1,
        cluster="c",
        agent="bob",
        wal_id="wal-bob",
        stream_credit_bytes=1_000,
        partition_credit_bytes=1_000,
        control_credit_bytes=1_000,
        frame_bytes_max=1_000,
    )
    dialled: list[tuple[PeerConnection, Transport]] = []

    async def dial(peer: Peer) -> tuple[PeerConnection, Welcome]:
        dialled.append(await opened(clock))
        return dialled[-1][0], welcome

    events, peer = RecordedEvents(), Peer(identity=identity, address=HostPort("host", 1))
    stream = PeerStream(peer, events, dial=dial, settings=QUICK, clock=clock, random=SeededRandom(1))
    async with background_tasks(stream.run()):
        await clock.run_for_ms(10)
        connection, transport = dialled[0]
        connection.send([bytes(500)])
        goodbye = b"".join(encode_frame(FrameKind.GOODBYE))
        connection.get_buffer(-1)[: len(goodbye)] = goodbye
        connection.buffer_updated(len(goodbye))
        assert not transport.aborted
        await clock.run_for_ms(2 * (QUICK.keep_alive_ms + QUICK.close_ms))
        assert transport.aborted
        connection.connection_lost(None)
        await clock.run_for_ms(4 * QUICK.reconnect_max_ms, step_ms=QUICK.reconnect_max_ms)
        assert events.connected_to == ["bob", "bob"]
        assert events.outcomes() == [DialOutcome.CLOSED]
        dialled[1][0].connection_lost(None)
