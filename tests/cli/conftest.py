"""The Kafka commands run against a real broker: the one that the client suites use, one per worker."""

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from tests.clients.conftest import own_broker as own_broker
from tests.clients.conftest import pytest_runtest_makereport as pytest_runtest_makereport
from tests.support.broker import Broker
from tests.support.broker_fixture import broker as broker

from holdfast.cli.main import main


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it printed."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Ran]
Start = Callable[..., "subprocess.Popen[bytes]"]


def produce_json(broker: Broker, topic: str, records: Iterable[Mapping[str, object]]) -> None:
    """Fills a topic that several tests read."""
    told = [sys.executable, "-m", "holdfast", "produce", topic, "--json-lines", "--bootstrap", broker.bootstrap]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    subprocess.run(told, input=lines, text=True, check=True, capture_output=True, timeout=60)


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in this process; `stdin` is what it reads."""

    def run(*argv: str, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfdbinary.readouterr()
        code = main(argv)
        sys.stdout.flush()
        printed = capfdbinary.readouterr()
        return Ran(code, printed.out, printed.err.decode())

    return run


@pytest.fixture
def kafka(run: Run, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command that finds the broker through the environment."""
    monkeypatch.setenv("HOLDFAST_BOOTSTRAP", broker.bootstrap)
    return run


@pytest.fixture
def start(broker: Broker) -> Iterator[Start]:
    """Starts a command as a process of its own, which knows the broker; the test's end ends it."""
    with ExitStack() as started:

        def start(*argv: str, **options: Any) -> "subprocess.Popen[bytes]":
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            told = [] if "--bootstrap" in argv else ["--bootstrap", broker.bootstrap]
            process = subprocess.Popen([sys.executable, "-m", "holdfast", *argv, *told], **{**pipes, **options})
            started.enter_context(process)
            started.callback(process.kill)
            return process

        yield start
