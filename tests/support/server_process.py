"""`holdfast serve` as a real process, and a Kafka client that talks to it."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.fork_server import ForkedProcess, fork
from tests.support.waiting import WAIT_S, until

from holdfast.testing.server_process import free_port
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.settings import MIB

# For tests that wait until a dead process is believed dead; long enough for a live one on a busy machine.
SHORT_SESSIONS = ("--set", "session.ttl_ms=8000", "--set", "session.renew_ms=500", "--set", "session.margin_ms=500")

# A server for tests of Kafka alone: it imports no HTTP and no pipelines, and makes no WAL files of 64 MiB, twice, at each start.
BROKER_ONLY = ("--roles", "api,agent", "--http", "off", "--grpc", "off", "--set", f"wal.file_bytes={8 * MIB}")


def environment(**more: str) -> dict[str, str]:
    """This process's environment without what would configure a server."""
    ours = os.environ  # noqa: TID251 (what a child process is given)
    kept = {name: value for name, value in ours.items() if not name.startswith("HOLDFAST_")}
    if kept.pop(
        "PYTHONDONTWRITEBYTECODE", ""
    ):  # a server that compiles everything at every start is not what people run
        kept["PYTHONPYCACHEPREFIX"] = str(Path(tempfile.gettempdir()) / f"holdfast-bytecode-{os.getuid()}")
    return {**kept, **more}


class ServeProcess:
    """One server process, started, signalled, killed and started again by tests."""

    def __init__(
        self,
        directory: Path,
        *options: str,
        env: dict[str, str] | None = None,
        keep_logs: bool = False,
        own_interpreter: bool = False,
    ) -> None:
        """`keep_logs`: those of earlier starts stay, as `log.1`, `log.2` and so on.

        `own_interpreter`: started as a user starts it, not forked from a process that has done its imports.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self._keep_logs = keep_logs
        # What Python itself reads at its start, as the failpoints of `tests.support.failpoints` do, needs one that starts.
        self._own_interpreter = own_interpreter or any(name.startswith("PYTHON") for name in env or {})
        self.directory, self.data = directory, directory / "data"
        self.options, self._env = options, environment(**(env or {}))
        self.port = free_port()  # it is started again there: no outgoing connection takes it meanwhile
        self.process: subprocess.Popen[bytes] | ForkedProcess

    @property
    def addresses(self) -> Path:
        return self.directory / "addresses.json"

    @property
    def kafka(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def http(self) -> str:
        """Where it speaks HTTP, this time."""
        return f"http://{json.loads(self.addresses.read_text())['http']}"

    @property
    def grpc(self) -> str:
        """Where it speaks gRPC, this time; it is off unless its options say otherwise."""
        return str(json.loads(self.addresses.read_text())["grpc"])

    @property
    def out(self) -> str:
        return (self.directory / "out").read_text()

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    def argv(self) -> list[str]:
        told = ["--kafka", self.kafka, "--http", "127.0.0.1:0", "--grpc", "off"]
        told += ["--print-addresses", str(self.addresses)]
        return [sys.executable, "-m", "holdfast", "serve", "--data", str(self.data), *told, *self.options]

    def launch(self) -> "ServeProcess":
        """Start it, without waiting for anything."""
        self.addresses.unlink(missing_ok=True)
        if self._keep_logs and (last := self.directory / "log").exists():
            last.rename(self.directory / f"log.{sum(1 for _ in self.directory.glob('log.*')) + 1}")
        with (self.directory / "out").open("wb") as out, (self.directory / "log").open("wb") as log:
            self.process = self._launched(out, log)
        return self

    def _launched(self, out: IO[bytes], log: IO[bytes]) -> "subprocess.Popen[bytes] | ForkedProcess":
        if not self._own_interpreter:
            return fork(self.argv(), stdout=out, stderr=log, env=self._env, cwd=self.directory)
        return subprocess.Popen(
            self.argv(), stdout=out, stderr=log, env=self._env, cwd=self.directory, start_new_session=True
        )

    def start(self) -> "ServeProcess":
        """Start it, and return when it listens."""
        return self.launch().listening()

    def listening(self) -> "ServeProcess":
        """Return when it listens."""
        until(self._listens, what=lambda: f"the server listens; {self.log}")
        self.port = int(json.loads(self.addresses.read_text())["kafka"].rpartition(":")[2])
        return self

    def _listens(self) -> bool:
        assert self.process.poll() is None, f"it ended with {self.process.returncode}: {self.log}"
        return self.addresses.exists()

    def ended(self) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(WAIT_S)

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def freeze(self) -> None:
        """SIGSTOP: alive for the kernel, silent for everybody else."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@contextmanager
def started(*nodes: ServeProcess) -> Iterator[None]:
    """The nodes, started, for the body; killed at the end if they still run."""
    try:
        for node in nodes:
            node.start()
        yield
    finally:
        for node in nodes:
            if hasattr(node, "process"):
                node.kill()


def produce(bootstrap: str, topic: str, *values: str, partition: int = 0, **settings: object) -> list[int]:
    """Send the values and return their offsets once all are acknowledged."""
    answers: list[tuple[KafkaError | None, int]] = []

    def answered(error: KafkaError | None, message: Message) -> None:
        answers.append((error, message.offset() or 0))

    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0, "linger.ms": 0, **settings}
    )
    for value in values:
        producer.produce(topic, value.encode(), partition=partition, on_delivery=answered)
    producer.flush(WAIT_S)
    assert len(answers) == len(values), f"{len(answers)} of {len(values)} were answered"
    assert not [error for error, _ in answers if error is not None]
    return [offset for _, offset in answers]


def read(bootstrap: str, topic: str, count: int, *, partition: int = 0) -> list[str]:
    """The values of a partition, `count` of them at least: up to its end once there are so many."""
    found: list[str] = []
    events: list[str] = []
    to_the_end = {"enable.partition.eof": True, "fetch.wait.max.ms": 20, "auto.offset.reset": "error"}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "log_level": 0,
            **to_the_end,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        clock = RealClock()
        deadline_ms = clock.boot_ms() + WAIT_S * 1000
        while True:
            message = consumer.poll(0.5)
            if message is None:
                assert clock.boot_ms() < deadline_ms, f"read {len(found)} of {count}: {events}"
            elif (error := message.error()) is None:
                value = message.value()
                assert value is not None
                found.append(value.decode())
                events.append(f"offset {message.offset()}")
            elif error.code() == KafkaError._PARTITION_EOF and len(found) >= count:
                return found
            else:
                events.append(str(error))
    finally:
        consumer.close()


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def create_topic(bootstrap: str, topic: str, partitions: int = 1, factor: int = 1, **config: str) -> None:
    client = admin(bootstrap)  # its answers come as long as it is there
    made = client.create_topics(
        [NewTopic(topic, partitions, factor, config={name.replace("_", "."): value for name, value in config.items()})]
    )
    made[topic].result(WAIT_S)


def leaders(bootstrap: str, topic: str) -> dict[int, int]:
    """Partition → node number of its leader (-1: none)."""
    known = admin(bootstrap).list_topics(topic, timeout=WAIT_S).topics[topic]
    return {number: each.leader for number, each in known.partitions.items()}


def refused(*options: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """A call of `holdfast serve` that is to end by itself."""
    argv = [sys.executable, "-m", "holdfast", "serve", "--http", "127.0.0.1:0", *options]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as log:
        code = fork(argv, stdout=out, stderr=log, env=environment(**env), cwd=cwd).wait(100)
        printed = [_content(each) for each in (out, log)]
    return subprocess.CompletedProcess(argv, code, *printed)


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()
