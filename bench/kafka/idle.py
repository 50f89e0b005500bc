"""`python -m bench.kafka.idle`: what a server costs that has much and does nothing.

A thousand connections and two thousand partitions: resident memory and CPU while nobody asks anything, and CPU while every
connection waits for records of its two partitions as a consumer does, in fetches of half a second that find nothing.
"""

import argparse
import asyncio
import json
import resource
import struct
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.kafka.cases import OURS, SYSTEMS
from bench.kafka.processes import cpu_seconds, resident_bytes, wait_until_quiet
from bench.kafka.targets import KafkaTarget
from holdfast.vocabulary.errors import UnavailableError

TOPICS: Final = 20
PARTITIONS: Final = 2_000
CONNECTIONS: Final = 1_000
FETCH_WAIT_MS: Final = 500
CHOICES: Final = (OURS, "kafka")


@dataclass(frozen=True)
class Idle:
    """Memory in MiB after each step; CPU as a share of one core, in percent."""

    system: str
    started_mib: float
    with_partitions_mib: float
    with_connections_mib: float
    idle_cpu_percent: float
    waiting_cpu_percent: float
    fetches_per_second: float


class IdleConnection(asyncio.Protocol):
    """One client. It says hello; once told to, it fetches again whenever it is answered."""

    def __init__(self, topic: str, partitions: tuple[int, int]) -> None:
        self._fetch = _fetch(topic, partitions)
        self._transport: asyncio.WriteTransport | None = None
        self._received = bytearray()
        self.answers, self.fetching = 0, False
        self.greeted = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        transport.write(_request(18, 0, b""))

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            size = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < size:
                return
            del self._received[:size]
            self.greeted.set()
            if self.fetching:
                self.answers += 1
                self.fetch()

    def fetch(self) -> None:
        assert self._transport is not None
        self.fetching = True
        self._transport.write(self._fetch)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _request(key: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhih", key, version, 1, -1)
    return struct.pack(">i", len(head) + len(body)) + head + body


def _fetch(topic: str, partitions: tuple[int, int]) -> bytes:
    """Version 4, from the first offset of empty partitions."""
    name = topic.encode()
    asked = b"".join(struct.pack(">iqi", each, 0, 1 << 20) for each in partitions)
    body = struct.pack(">iiiibi", -1, FETCH_WAIT_MS, 1, 1 << 24, 0, 1)
    return _request(1, 4, body + struct.pack(">h", len(name)) + name + struct.pack(">i", len(partitions)) + asked)


async def measure(system: str, target: KafkaTarget, seconds: float) -> Idle:
    def mib() -> float:
        return resident_bytes(target.pid) / (1 << 20)

    async def cpu_percent() -> float:
        cpu_s, started = cpu_seconds(target.pid), time.monotonic()
        await asyncio.sleep(seconds)
        return 100 * (cpu_seconds(target.pid) - cpu_s) / (time.monotonic() - started)

    await asyncio.to_thread(wait_until_quiet, target.pid)
    started_mib = mib()
    each = PARTITIONS // TOPICS
    topics = [await asyncio.to_thread(target.create, each) for _ in range(TOPICS)]
    await asyncio.to_thread(wait_until_quiet, target.pid, at_most_s=60)
    with_partitions_mib = mib()

    host, _, port = target.bootstrap.rpartition(":")
    loop, connections = asyncio.get_running_loop(), []
    for number in range(CONNECTIONS):
        topic, first = topics[number % TOPICS], number // TOPICS * 2 % each
        connection = IdleConnection(topic, (first, first + 1))
        await loop.create_connection(lambda made=connection: made, host, int(port))  # type: ignore[misc]
        connections.append(connection)
    for connection in connections:
        await connection.greeted.wait()
    await asyncio.to_thread(wait_until_quiet, target.pid)
    with_connections_mib, idle = mib(), await cpu_percent()

    for connection in connections:
        connection.fetch()
    await asyncio.sleep(2 * FETCH_WAIT_MS / 1000)  # the first fetch of a partition may open it
    before = sum(connection.answers for connection in connections)
    waiting = await cpu_percent()
    answers = sum(connection.answers for connection in connections) - before
    for connection in connections:
        connection.close()
    return Idle(
        system,
        started_mib,
        with_partitions_mib,
        with_connections_mib,
        idle,
        waiting,
        fetches_per_second=answers / seconds,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.kafka.idle", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=CHOICES, default=CHOICES, metavar="NAME", help=", ".join(CHOICES))
    parser.add_argument("--seconds", type=float, default=30.0, help="how long CPU is watched (30), twice")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the servers inherit it
    console, found = Console(stderr=True, log_path=False), []
    for system in SYSTEMS:
        if system.name not in args.only:
            continue
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as made, console.status(system.name):
            try:
                with system.serving(Path(made) / system.name) as target:
                    assert isinstance(target, KafkaTarget)
                    found.append(asyncio.run(measure(system.name, target, args.seconds)))
            except UnavailableError as error:
                console.log(f"{system.name} is not measured: {error}")
    if args.json:
        sys.stdout.write(json.dumps([asdict(each) for each in found], indent=1) + "\n")
        return 0
    table = Table(title=f"{CONNECTIONS:,} connections, {PARTITIONS:,} partitions, {args.seconds:g} s each")
    table.add_column("what")
    for each in found:
        table.add_column(each.system, justify="right")
    for row, words in (
        ("started_mib", "RSS when started, MiB"),
        ("with_partitions_mib", "RSS with the partitions, MiB"),
        ("with_connections_mib", "RSS with the connections too, MiB"),
        ("idle_cpu_percent", "CPU while nobody asks, % of a core"),
        ("waiting_cpu_percent", "CPU while all wait for records, % of a core"),
        ("fetches_per_second", "fetches answered per second meanwhile"),
    ):
        table.add_row(words, *(f"{getattr(each, row):,.1f}" for each in found))
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
