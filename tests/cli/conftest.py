"""The Kafka commands run against a real broker: the one that the client suites use, one per worker."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.support.broker import Broker
from tests.support.broker_fixtures import broker as broker
from tests.support.broker_fixtures import own_broker as own_broker
from tests.support.broker_fixtures import pytest_runtest_makereport as pytest_runtest_makereport
from tests.support.command_line import Run, Start
from tests.support.command_line import run as run


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
