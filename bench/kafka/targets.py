"""What is measured: each target is a server process that can be produced to, consumed from and asked what it cost.

`Target.serving` starts it in a folder of its own. A target that cannot be had (no jars, no wheel, no compiler) raises
UnavailableError with the reason, and the others are measured without it.
"""

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol

from tests.support.apache_kafka import ApacheKafka

from bench.kafka.programs import NoCompilerError, compiled, run_json
from holdfast.testing.server_process import ServerProcess
from holdfast.vocabulary.errors import UnavailableError

ADMIN_TIMEOUT_S: Final = 30
RUN_TIMEOUT_S: Final = 180

Done = dict[str, Any]  # what a load generator prints

_names: Final = itertools.count(1)


class Target(Protocol):
    """A running server. Topics are made for one turn and dropped after it."""

    pid: int

    def create(self, partitions: int) -> str: ...

    def drop(self, topic: str) -> None: ...

    def produce(self, topic: str, partitions: int, size: int, seconds: float, *settings: str) -> Done: ...

    def consume(self, topic: str, partitions: int, records: int, seconds: float) -> Done: ...

    def latency(self, topic: str, size: int, seconds: float, per_second: float) -> Done: ...


def load_argv() -> list[str]:
    """The generator in C, or the one in Python where there is no compiler."""
    try:
        return [str(compiled("load"))]
    except NoCompilerError:
        return [sys.executable, "-m", "bench.kafka.client"]


class KafkaTarget:
    """Anything that speaks Kafka, under load from librdkafka."""

    def __init__(self, bootstrap: str, pid: int) -> None:
        self.bootstrap, self.pid = bootstrap, pid

    def create(self, partitions: int) -> str:
        from confluent_kafka.cimpl import NewTopic

        topic = f"p{partitions}-{next(_names)}"
        self._admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(ADMIN_TIMEOUT_S)
        return topic

    def drop(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(ADMIN_TIMEOUT_S)

    @cached_property
    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def produce(self, topic: str, partitions: int, size: int, seconds: float, *settings: str) -> Done:
        return self._load("produce", topic, partitions, size, seconds, *settings)

    def consume(self, topic: str, partitions: int, records: int, seconds: float) -> Done:
        return self._load("consume", topic, partitions, records, seconds)

    def latency(self, topic: str, size: int, seconds: float, per_second: float) -> Done:
        return self._load("latency", topic, 1, size, seconds, per_second)

    def _load(self, mode: str, topic: str, *args: object) -> Done:
        argv = [*load_argv(), mode, self.bootstrap, topic, *(str(each) for each in args)]
        return run_json(argv, timeout_s=RUN_TIMEOUT_S)


class HoldfastServer(ServerProcess):
    """`holdfast serve` with its defaults: SQLite and local files, fdatasync before every acknowledgement."""

    name = "holdfast"

    def argv(self) -> list[str]:
        told = [
            "--kafka",
            "127.0.0.1:0",
            "--http",
            "127.0.0.1:0",
            "--grpc",
            "off",
            "--print-addresses",
            str(self._addresses),
        ]
        return [sys.executable, "-m", "holdfast", "serve", "--data", str(self.data), *told]

    def ready(self) -> bool:
        return self._addresses.exists()

    @property
    def bootstrap(self) -> str:
        return str(json.loads(self._addresses.read_text())["kafka"])

    @property
    def http_url(self) -> str:
        return f"http://{json.loads(self._addresses.read_text())['http']}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def _addresses(self) -> Path:
        return self.directory / "addresses.json"


@contextmanager
def holdfast(directory: Path) -> Iterator[Target]:
    directory.mkdir(parents=True, exist_ok=True)
    with HoldfastServer(directory).running() as server:
        yield KafkaTarget(server.bootstrap, server.pid)


@contextmanager
def apache_kafka(directory: Path, **config: str) -> Iterator[Target]:
    # Dropped topics go at once: what one turn wrote is not to be written back to disk during the next.
    told = {"log.segment.delete.delay.ms": "1000", **{key.replace("_", "."): value for key, value in config.items()}}
    with ApacheKafka(directory, config=told).running() as server:
        yield KafkaTarget(server.bootstrap, server.pid)


class _DiscardTarget(KafkaTarget):
    """Topics need no making: the name says how many partitions it has."""

    def create(self, partitions: int) -> str:
        return f"p{partitions}-{next(_names)}"

    def drop(self, topic: str) -> None:
        pass


@contextmanager
def discard(directory: Path, *file: Path) -> Iterator[Target]:
    """A C program that keeps nothing; with a file it writes and syncs what it is sent before it answers."""
    try:
        program = compiled("discard")
    except NoCompilerError as error:
        raise UnavailableError("discard", str(error)) from None
    with subprocess.Popen([program, *file], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield _DiscardTarget(process.stdout.readline().strip(), process.pid)
        finally:
            process.kill()


class _MockTarget(_DiscardTarget):
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._asked, self._said = process.stdin, process.stdout
        super().__init__(self._said.readline().strip(), process.pid)

    def create(self, partitions: int) -> str:
        topic = super().create(partitions)
        self._asked.write(f"{topic} {partitions}\n")
        self._asked.flush()
        if (answer := self._said.readline().strip()) != "made":
            raise UnavailableError("mock", answer)
        return topic


@contextmanager
def mock(directory: Path) -> Iterator[Target]:
    argv = [sys.executable, "-m", "bench.kafka.mock"]
    piped = subprocess.PIPE
    with subprocess.Popen(argv, stdin=piped, stdout=piped, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield _MockTarget(process)
        finally:
            process.kill()
