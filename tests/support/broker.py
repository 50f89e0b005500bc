"""The broker of the client suite, as a process that can be killed, frozen and restarted.

`HOLDFAST_TEST_BROKER` chooses it: nothing = `holdfast serve`; `apache` = Apache Kafka, to validate the suite itself;
`host:port` = whatever listens there (`apache@host:port` if it is that), for the tests that need no process of their
own. The one rule: a suite does not depend on the broker, except where `Broker.kind` names a documented difference.
"""

import itertools
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, Protocol

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.fork_server import await_stopped, fork
from tests.support.server_process import BROKER_ONLY
from tests.support.waiting import until

from holdfast.testing.server_process import ChildProcess, ServerProcess

CHOICE = os.environ.get("HOLDFAST_TEST_BROKER", "holdfast")  # noqa: TID251 (the one place that configures a test run)
DRAIN_TIMEOUT_S = 60
ADMIN_TIMEOUT_S = 20

_names = itertools.count(1)


class Served(Protocol):
    """The part of a server process that tests use: `ServerProcess` and what behaves like one."""

    name: str
    directory: Path
    port: int
    _process: ChildProcess | None

    def start(self) -> None: ...
    def kill(self) -> None: ...
    def freeze(self) -> None: ...
    def thaw(self) -> None: ...


class HoldfastServer(ServerProcess):
    """`holdfast serve` on a free port, which it keeps across restarts."""

    name = "holdfast"

    def __init__(self, directory: Path, *options: str) -> None:
        super().__init__(directory)
        self.port = 0
        self.addresses = directory / "addresses.json"
        self.options = options

    def argv(self) -> list[str]:
        told = ["--kafka", f"127.0.0.1:{self.port}", "--print-addresses", str(self.addresses)]
        # As in a cluster: what clients are told of a replication factor that is too high.
        told += [*BROKER_ONLY, "--log", "json", "--set", "kafka.replication_factor=refuse"]
        return [sys.executable, "-m", "holdfast", "serve", "--data", str(self.data), *told, *self.options]

    def start(self) -> None:
        self.addresses.unlink(missing_ok=True)  # the last life's
        super().start()

    def spawn(self, log: IO[bytes]) -> ChildProcess:
        if self.argv()[0] != sys.executable:
            return super().spawn(log)
        return fork(self.argv(), stdout=log, stderr=log, env=dict(os.environ), cwd=Path.cwd())  # noqa: TID251 (as a child has it)

    def await_stopped(self, pid: int) -> None:
        await_stopped(pid)

    def ready(self) -> bool:
        try:
            kafka = json.loads(self.addresses.read_text())["kafka"]
        except (FileNotFoundError, json.JSONDecodeError):
            return False
        self.port = int(kafka.rpartition(":")[2])
        return True


class Broker:
    """One running broker. `server` is None if it was started elsewhere."""

    def __init__(self, kind: str, bootstrap: str, server: Served | None) -> None:
        self.kind, self.bootstrap, self._server = kind, bootstrap, server

    def unique(self, name: str) -> str:
        """`name` as a topic or group that no other test uses."""
        return f"{name}-{os.getpid()}-{next(_names)}"

    @cached_property
    def admin(self) -> AdminClient:
        """An admin client, made once."""
        quiet = {"log_level": 2, "socket.connection.setup.timeout.ms": 5_000}  # it outlives brokers that are killed
        return AdminClient({"bootstrap.servers": self.bootstrap, **quiet})

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """A new topic with a unique name that starts with `name`; returns when its partitions have leaders."""
        topic = self.unique(name)
        settings = dict(config or {})
        if self.kind == "apache":  # Holdfast takes the producer's word for the time, however far ahead
            settings.setdefault("message.timestamp.after.max.ms", str(2**63 - 1))
        created = self.admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])
        created[topic].result(ADMIN_TIMEOUT_S)
        self.await_leaders(topic, partitions)
        return topic

    def await_leaders(self, topic: str, partitions: int = 1) -> None:
        """Return when every partition of `topic` has a leader, and there are `partitions` at least."""
        until(lambda: self._led(topic, partitions), what=f"{topic} has leaders")

    def _led(self, topic: str, partitions: int) -> bool:
        try:
            known = self.admin.list_topics(topic, timeout=ADMIN_TIMEOUT_S).topics[topic]
        except KafkaException as failure:
            if failure.args[0].code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT):
                return False
            raise
        if known.error is not None or len(known.partitions) < partitions:
            return False
        return all(each.leader >= 0 for each in known.partitions.values())

    @property
    def server(self) -> Served:
        assert self._server is not None, f"the broker at {self.bootstrap} belongs to somebody else"
        return self._server

    @property
    def pid(self) -> int:
        process = self.server._process
        assert process is not None, "the broker is not running"
        return process.pid

    def start(self) -> None:
        """Start it again after `kill` or `terminate`, on the same data and the same port."""
        self.server.start()

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self.server.kill()

    def restart(self) -> None:
        """SIGKILL and start again, as a crash and a supervisor would."""
        self.kill()
        self.start()

    def terminate(self) -> int:
        """SIGTERM; returns its exit code when it is gone."""
        process = self.server._process
        assert process is not None, "the broker is not running"
        process.send_signal(signal.SIGTERM)
        code = process.wait(DRAIN_TIMEOUT_S)
        self.server.kill()  # forgets the process, so that it can be started again
        return code

    def stop(self) -> None:
        """SIGSTOP: its clients get no responses."""
        self.server.freeze()

    def cont(self) -> None:
        """SIGCONT."""
        self.server.thaw()

    @property
    def log(self) -> str:
        """The end of the broker's output, for failure reports."""
        if self._server is None:
            return f"the broker at {self.bootstrap} keeps its log to itself"
        path = self._server.directory / f"{self._server.name}.log"
        return path.read_text(errors="replace")[-8_000:] if path.exists() else ""


def owned() -> bool:
    """Whether the chosen broker is a process that tests may kill."""
    return CHOICE in ("holdfast", "apache")


@contextmanager
def serving(directory: Path, *options: str) -> Iterator[Broker]:
    """The chosen broker for the body. `options` are flags of `holdfast serve`, for tests of Holdfast alone."""
    if not owned():
        kind, _, bootstrap = CHOICE.rpartition("@")
        yield Broker(kind or "holdfast", bootstrap, None)
        return
    server: ServerProcess
    if CHOICE == "apache":
        from tests.support.apache_kafka import ApacheKafka

        server = ApacheKafka(directory)
    else:
        server = HoldfastServer(directory, *options)
    with server.running():
        yield Broker(CHOICE, f"127.0.0.1:{server.port}", server)
