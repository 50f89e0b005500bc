"""Who is measured. A server is started in a fresh folder, and killed afterwards.

A peer that cannot be had (no jars, no wheel) raises UnavailableError with the reason, and the others are measured without it.
"""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tests.support.store_engines.redis import ValkeyServer

from bench.kafka import targets
from bench.kafka.nats_target import NatsServer
from bench.kafka.targets import HoldfastServer, KafkaTarget
from bench.latency.frames import NewFrame, kafka_frame, nats_frame, nats_greeting, no_greeting, resp_frame
from holdfast.vocabulary.errors import UnavailableError

OURS: Final = "holdfast"
DISK: Final = "disk"
TOPIC: Final = "latency"


@dataclass(frozen=True)
class Running:
    """A server that takes single records at a port of loopback. `metrics_url` where it has Prometheus metrics of its WAL."""

    pid: int
    port: int
    protocol: str
    new_frame: NewFrame
    greeting: Callable[[int], bytes] = no_greeting
    metrics_url: str | None = None


@dataclass(frozen=True)
class Peer:
    """One row. `serving` is None for the bare disk, which needs no server."""

    name: str
    title: str
    serving: Callable[[Path, int], AbstractContextManager[Running]] | None


@contextmanager
def holdfast(directory: Path, partitions: int) -> Iterator[Running]:
    directory.mkdir(parents=True)
    with HoldfastServer(directory).running() as server:
        yield _kafka(KafkaTarget(server.bootstrap, server.pid), partitions, f"{server.http_url}/metrics")


@contextmanager
def apache_kafka(directory: Path, partitions: int, **config: str) -> Iterator[Running]:
    with targets.apache_kafka(directory, **config) as target:
        assert isinstance(target, KafkaTarget)
        yield _kafka(target, partitions)


@contextmanager
def ceiling(directory: Path, partitions: int) -> Iterator[Running]:
    with targets.discard(directory) as target:
        assert isinstance(target, KafkaTarget)
        yield _kafka(target, partitions)


@contextmanager
def bare_server(directory: Path, partitions: int) -> Iterator[Running]:
    directory.mkdir(parents=True)
    with targets.discard(directory, directory / "log") as target:
        assert isinstance(target, KafkaTarget)
        yield _kafka(target, partitions)


@contextmanager
def publishing_server(directory: Path, partitions: int) -> Iterator[Running]:
    """The bare server beside a process that makes segments of what it wrote."""
    with bare_server(directory, partitions) as running:
        argv = [sys.executable, "-m", "bench.latency.publishing", str(running.pid), str(directory)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as publisher:
            try:
                assert publisher.stdout is not None
                if publisher.stdout.readline() != "ready\n":
                    raise UnavailableError("publishing-server", "its publisher did not start")
                yield running
            finally:
                publisher.kill()


def _kafka(target: KafkaTarget, partitions: int, metrics_url: str | None = None) -> Running:
    topic, port = target.create(partitions), int(target.bootstrap.rpartition(":")[2])
    return Running(target.pid, port, "kafka", partial(kafka_frame, topic, partitions), metrics_url=metrics_url)


@contextmanager
def valkey(directory: Path, partitions: int) -> Iterator[Running]:
    try:
        server = ValkeyServer(directory)
        server.argv()
    except ModuleNotFoundError as missing:
        raise UnavailableError("valkey", str(missing)) from None
    directory.mkdir(parents=True)
    with server.running():
        assert server._process is not None
        yield Running(server._process.pid, server.port, "resp", partial(resp_frame, TOPIC))


@contextmanager
def jetstream(directory: Path, partitions: int) -> Iterator[Running]:
    try:
        import nats
        from nats.js.api import StorageType, StreamConfig
    except ModuleNotFoundError as missing:
        raise UnavailableError("nats", str(missing)) from None

    async def create(port: int) -> None:
        client = await nats.connect(f"nats://127.0.0.1:{port}")
        try:
            await client.jetstream().add_stream(StreamConfig(name=TOPIC, subjects=[TOPIC], storage=StorageType.FILE))
        finally:
            await client.close()

    directory.mkdir(parents=True)
    with NatsServer(directory).running() as server:
        asyncio.run(create(server.port))
        assert server._process is not None
        yield Running(server._process.pid, server.port, "nats", partial(nats_frame, TOPIC), nats_greeting)


PEERS: Final = (
    Peer(OURS, "Holdfast, fdatasync", holdfast),
    Peer("kafka", "Kafka, default flush", apache_kafka),
    Peer("kafka-flush", "Kafka, flush each", partial(apache_kafka, log_flush_interval_messages="1")),
    Peer(DISK, "bare disk, fdatasync", None),
    Peer("valkey", "Valkey XADD, appendfsync always", valkey),
    Peer("nats", "JetStream, sync always", jetstream),
    Peer("bare-server", "C server, fdatasync, no more", bare_server),
    Peer("publishing-server", "C server beside a publisher", publishing_server),
    Peer("ceiling", "ceiling: nothing stored", ceiling),
)
