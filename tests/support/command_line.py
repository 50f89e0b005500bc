"""The `holdfast` command, run in this process or as one of its own."""

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from tests.support.broker import Broker

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
