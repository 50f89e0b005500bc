"""The text protocol: PUT and GET a second at 1 and 64 connections, forwarded against direct, rotation against none.

Direct is at the leader for PUT, and at the owner of the cursor for GET.

Two real servers on one SQLite store. The ratios compare runs of the same minute on the same machine: forwarded to direct, rotation
every 1,000 entries to none. `--quick` is a smoke run.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import Any, cast

import uvloop
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

LENGTH = Struct("<I")
PAYLOAD = b"x" * 100
CONNECTIONS = (1, 64)


class Load(asyncio.Protocol):
    """One connection that sends a request as soon as the one before is answered."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.waiting: deque[asyncio.Future[bytes]] = deque()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.data += data
        while len(self.data) >= 4:
            (length,) = LENGTH.unpack_from(self.data)
            if len(self.data) < 4 + length:
                return
            reply = bytes(self.data[4 : 4 + length])
            del self.data[: 4 + length]
            self.waiting.popleft().set_result(reply)

    def ask(self, request: bytes) -> "asyncio.Future[bytes]":
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.waiting.append(answered)
        self.transport.write(LENGTH.pack(len(request)) + request)
        return answered


async def connect(address: str, count: int) -> list[Load]:
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(Load, host, int(port)))[1] for _ in range(count)]


async def rate(address: str, connections: int, request: bytes, seconds: float) -> float:
    """Answers a second, all connections together."""
    loads = await connect(address, connections)
    done, began = 0, time.perf_counter()
    until = began + seconds

    async def work(load: Load) -> None:
        nonlocal done
        while time.perf_counter() < until:
            reply = await load.ask(request)
            assert reply.startswith((b"OK", b"EMPTY")), reply
            done += reply != b"EMPTY"

    await asyncio.gather(*map(work, loads))
    took = time.perf_counter() - began
    for load in loads:
        load.transport.close()
    return done / took


async def one(address: str, request: bytes) -> bytes:
    [load] = await connect(address, 1)
    reply = await load.ask(request)
    load.transport.close()
    return reply


async def fill(address: str, topic: bytes, count: int) -> None:
    """Records for the runs that read, pipelined."""
    [load] = await connect(address, 1)
    for _ in range(0, count, 500):
        await asyncio.gather(*(load.ask(b"PUT %s %s" % (topic, PAYLOAD)) for _ in range(500)))
    load.transport.close()


@contextmanager
def servers(count: int) -> Iterator[list[dict[str, str]]]:
    """The addresses of so many servers of one cluster."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-text-") as folder:
        started, addresses = [], []
        try:
            for number in range(count):
                data = Path(folder) / str(number)
                data.mkdir()
                argv = [
                    *(sys.executable, "-m", "holdfast", "serve", "--data", str(data), "--kafka", "127.0.0.1:0"),
                    *(
                        "--http",
                        "off",
                        "--grpc",
                        "off",
                        "--roles",
                        "api,agent",
                        "--text",
                        "127.0.0.1:0",
                        "--log-level",
                        "error",
                    ),
                    *("--store", f"sqlite:///{folder}/store.db", "--objects", f"file://{folder}/objects"),
                    *("--print-addresses", str(data / "addresses.json")),
                ]
                started.append(subprocess.Popen(argv, stdout=subprocess.DEVNULL))
            for number, process in enumerate(started):
                file = Path(folder) / str(number) / "addresses.json"
                while not file.exists():
                    if process.poll() is not None:
                        raise SystemExit(f"the server ended with {process.returncode}")
                    time.sleep(0.02)
                addresses.append(json.loads(file.read_text()))
            yield addresses
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait()


async def leader_first(addresses: list[str], topic: bytes) -> list[str]:
    """The servers, the leader of the topic first."""
    while (node := json.loads(await one(addresses[0], b"STATE " + topic))["leader_node"]) is None:
        await asyncio.sleep(0.02)
    nodes = {json.loads(await one(address, b"METRICS"))["node"]: address for address in addresses}
    return [nodes[node], *(address for at, address in nodes.items() if at != node)]


async def owner_first(addresses: list[str], topic: bytes) -> list[str]:
    """The servers, the owner of the topic's cursor first: the one that counts what is delivered."""

    async def delivered() -> dict[str, int]:
        found = {address: json.loads(await one(address, b"METRICS")) for address in addresses}
        return {address: metrics["cursors"]["delivered"] for address, metrics in found.items()}

    before = await delivered()
    await one(addresses[0], b"GET " + topic)
    while (now := await delivered()) == before:
        await asyncio.sleep(0.02)
    return sorted(addresses, key=lambda address: before[address] - now[address])


async def measure(addresses: list[str], seconds: float, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    await one(addresses[0], b"PUT direct first")
    direct, forwarded = (await leader_first(addresses, b"direct"))[:2]
    say(f"{'request':>8} {'connections':>11} {'direct/s':>10} {'forwarded/s':>12} {'ratio':>6}")
    for count in CONNECTIONS:
        runs = [
            [await rate(address, count, b"PUT direct " + PAYLOAD, seconds) for address in (direct, forwarded)]
            for _ in range(rounds)
        ]
        _report(figures, say, "PUT", count, runs)
    owner, other = (await owner_first(addresses, b"direct"))[:2]
    for count in CONNECTIONS:
        runs = []
        for _ in range(rounds):
            pair = []
            for address in (owner, other):
                await fill(direct, b"direct", int(20_000 * seconds))
                pair.append(await rate(address, count, b"GET direct", seconds))
            runs.append(pair)
        _report(figures, say, "GET", count, runs)
    await _rotation(addresses, seconds, rounds, say, figures)
    return figures


async def _rotation(
    addresses: list[str], seconds: float, rounds: int, say: Callable[[str], None], figures: dict[str, Any]
) -> None:
    """Any node, 64 connections, a topic that rotates every 1,000 entries and one that does not."""
    runs = []
    for _ in range(rounds):
        pair = [
            await rate(addresses[0], 64, b"PUT %s %s" % (topic, PAYLOAD), seconds) for topic in (b"still", b"turns")
        ]
        runs.append(pair)
    segments = json.loads(await one(addresses[0], b"STATE turns"))["current_segment"]
    ratio = statistics.median(turning / still for still, turning in runs)
    still, turning = (statistics.median(column) for column in zip(*runs, strict=True))
    figures["rotation"] = {"none": still, "every_1000": turning, "ratio": ratio, "segments": segments}
    say(f"PUT, 64 connections: {still:.0f}/s without rotation, {turning:.0f}/s every 1,000 entries, ratio {ratio:.2f}")
    say(f"{segments} segments")


def _report(
    figures: dict[str, Any], say: Callable[[str], None], verb: str, connections: int, runs: list[list[float]]
) -> None:
    direct, forwarded = (statistics.median(column) for column in zip(*runs, strict=True))
    ratio = statistics.median(theirs / ours for ours, theirs in runs)
    figures[f"{verb} {connections}"] = {"direct": direct, "forwarded": forwarded, "ratio": ratio}
    say(f"{verb:>8} {connections:>11} {direct:>10.0f} {forwarded:>12.0f} {ratio:>6.2f}")


def run(seconds: float, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    with servers(2) as found:
        _create_rotating(found[0]["kafka"])
        return uvloop.run(measure([each["text"] for each in found], seconds, rounds, say))


def _create_rotating(kafka: str) -> None:
    """Over Kafka: a text request gives no settings."""
    client = AdminClient({"bootstrap.servers": kafka})
    topic = NewTopic("turns", 1, 1, config={"holdfast.rotation.entries": "1000"})
    client.create_topics([topic])["turns"].result(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    seconds, rounds = (0.3, 1) if args.quick else (args.seconds, args.rounds)
    found = run(seconds, rounds, (lambda _: None) if args.json else print)
    if args.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
