"""`holdfast text` against a real server: one request, lines of standard input, JSON, exit codes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.server_process import BROKER_ONLY, ServeProcess, environment, started

from holdfast.cli.output import OK, UNAVAILABLE, USAGE


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = ServeProcess(Path(tmp_path_factory.mktemp("text")), *BROKER_ONLY, "--text", "127.0.0.1:0")
    with started(server):
        yield json.loads(server.addresses.read_text())["text"]


def text(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "holdfast", "text", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=100, input=stdin, env=environment())


def test_one_request(address: str) -> None:
    sent = text(address, "PUT", "logs", "hello", "world")
    assert (sent.stdout, sent.returncode) == ("OK\n", OK)
    read = text(address, "GET", "logs")
    assert (read.stdout, read.returncode) == ("OK hello world\n", OK)
    assert json.loads(text(address, "STATE", "logs", "--json").stdout)["current_segment"] == 1


def test_lines_of_standard_input_and_json(address: str) -> None:
    sent = text(address, "--json", stdin="PUT lines a\nPUT lines b\n\nGET lines\nGET lines\nGET lines\nNONSENSE\n")
    assert [json.loads(line) for line in sent.stdout.splitlines()] == [
        {"status": "OK", "payload": None},
        {"status": "OK", "payload": None},
        {"status": "OK", "payload": "a"},
        {"status": "OK", "payload": "b"},
        {"status": "EMPTY", "payload": None},
        {"status": "ERR", "error": "unknown command"},
    ]
    assert sent.returncode == USAGE


def test_an_address_where_nobody_listens_and_one_that_is_none() -> None:
    assert text("127.0.0.1:1", "METRICS").returncode == UNAVAILABLE
    wrong = text("nowhere", "METRICS")
    assert wrong.returncode == USAGE
    assert "HOST:PORT" in wrong.stderr
