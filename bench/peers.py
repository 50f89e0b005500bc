"""One stream between two agents on loopback: bytes per second, and round trips per second, beside a bare socket that does as much.

    python -m bench.peers [--seconds 3] [--rounds 3]

The answering agent is a process of its own. It answers every message at once and writes nothing. The bare socket sends the same
payloads without frames, checksums or credit, and reads one byte for each. CPU: of the sender, per message.
"""

import argparse
import asyncio
import multiprocessing
import socket
import statistics
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from multiprocessing.connection import Connection
from typing import Final

import uvloop

from holdfast.agent.peers.handshake import PeerIdentity
from holdfast.agent.peers.inbound_stream import ReceivedMessages
from holdfast.agent.peers.peers import PeerEndpoint, Peers
from holdfast.agent.peers.settings import PeerSettings
from holdfast.agent.peers.stream import PeerStream
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom
from holdfast.vocabulary.settings import KIB, MIB
from holdfast.vocabulary.sockets import bind_one
from holdfast.vocabulary.tasks import Notify
from holdfast.vocabulary.types import Member

# payload bytes, messages per frame (one partition each), frames in flight
SHAPES: Final = ((MIB, 1, 16), (64 * KIB, 16, 4), (KIB, 1, 1), (KIB, 1, 64), (KIB, 64, 1), (KIB, 64, 64))


class _Members:
    def __init__(self, *members: Member) -> None:
        self._by_id = {member.id: member for member in members}
        self.members_changed = Notify()

    @property
    def members(self) -> list[Member]:
        return list(self._by_id.values())

    def member(self, member_id: str) -> Member | None:
        return self._by_id.get(member_id)


@asynccontextmanager
async def _peers(name: str, bound: socket.socket, *members: Member) -> AsyncIterator[Peers]:
    endpoint = PeerEndpoint(sockets=[bound], address=_address(bound))
    us = PeerIdentity(cluster="bench", agent=name, wal_id=f"wal-{name}")
    async with (
        Peers.serving(
            us, endpoint, _Members(*members), settings=PeerSettings(), clock=RealClock(), random=SystemRandom()
        ) as peers,
        peers.joined(),
    ):
        yield peers


def _address(bound: socket.socket) -> str:
    return f"127.0.0.1:{bound.getsockname()[1]}"


def _member(name: str, address: str = "") -> Member:
    return Member(id=name, session=name, wal_id=f"wal-{name}", peer_address=address)


def _answering_process(told: Connection) -> None:
    async def serve() -> None:
        bound = bind_one("127.0.0.1", 0)
        async with _peers("replica", bound, _member("leader")) as peers:

            def take(received: ReceivedMessages) -> None:
                for index in range(len(received.messages)):
                    received.answer(index, b"ack")

            peers.on_messages = take
            told.send(_address(bound))
            await asyncio.Event().wait()

    uvloop.run(serve())


async def _run(stream: PeerStream, size: int, together: int, depth: int, seconds: float) -> int:
    """How many frames were answered."""
    payload, done, until = memoryview(bytes(size)), 0, time.perf_counter() + seconds
    keys = [f"topic:{number}".encode() for number in range(together * depth)]

    async def sender(turn: int) -> None:
        nonlocal done
        loop = asyncio.get_running_loop()
        while time.perf_counter() < until:
            answered: asyncio.Future[None] = loop.create_future()
            left = together

            def on_answer(_: object, answered: "asyncio.Future[None]" = answered) -> None:
                nonlocal left
                left -= 1
                if not left:
                    answered.set_result(None)

            for number in range(together):
                assert stream.send(keys[turn * together + number], [payload], on_answer)
            await answered
            done += 1

    await asyncio.gather(*(sender(turn) for turn in range(depth)))
    return done


def _bare(size: int, depth: int, seconds: float) -> int:
    """The same over a bare socket, answered by a byte per payload from another process."""
    ours, theirs = socket.socketpair()
    child = multiprocessing.get_context("fork").Process(target=_bare_answers, args=(theirs, size), daemon=True)
    child.start()
    theirs.close()
    payload, until = bytes(size), time.perf_counter() + seconds
    slots, done = threading.Semaphore(depth), 0

    def read() -> None:
        nonlocal done
        with suppress(OSError):
            while got := len(ours.recv(65_536)):
                done += got
                slots.release(got)

    reader = threading.Thread(target=read)
    reader.start()
    while time.perf_counter() < until:
        slots.acquire()
        ours.sendall(payload)
    ours.shutdown(socket.SHUT_WR)
    reader.join()
    child.join()
    ours.close()
    return done


def _bare_answers(accepted: socket.socket, size: int) -> None:
    buffer, got = memoryview(bytearray(MIB)), 0
    while count := accepted.recv_into(buffer):
        got += count
        if got >= size:
            accepted.sendall(bytes(got // size))
            got %= size


async def measure(address: str, seconds: float, rounds: int, say: Callable[[str], None]) -> None:
    async with _peers("leader", bind_one("127.0.0.1", 0), _member("replica", address)) as peers:
        while (stream := peers.to("wal-replica")) is None or not stream.connected:
            await RealClock().sleep_ms(5)
        say(
            f"{'payload':>9} {'per frame':>9} {'in flight':>9} {'frames/s':>10} {'MB/s':>9} {'bare MB/s':>10} {'ratio':>6}"
        )
        for size, together, depth in SHAPES:
            rates, bare, costs = [], [], []
            for _ in range(rounds):
                used_s = time.process_time()
                answered = await _run(stream, size, together, depth, seconds)
                rates.append(answered / seconds)
                costs.append((time.process_time() - used_s) / max(1, answered * together) * 1e6)
                done = await asyncio.to_thread(_bare, size, depth * together, seconds)
                bare.append(done * size / seconds / 1e6)
            frames, reference = statistics.median(rates), statistics.median(bare)
            moved = frames * together * size / 1e6
            cost_us = statistics.median(costs)  # of the sender, per message: what a busy machine does not change much
            row = (
                size,
                together,
                depth,
                f"{frames:.0f}",
                f"{moved:.1f}",
                f"{reference:.1f}",
                f"{moved / reference:.2f}",
            )
            say(" ".join(f"{value:>10}" for value in (*row, f"{cost_us:.1f}")))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=_answering_process, args=(theirs,), daemon=True)
    child.start()
    try:
        uvloop.run(measure(ours.recv(), args.seconds, args.rounds, print))
    finally:
        child.terminate()
        child.join()


if __name__ == "__main__":
    main()
