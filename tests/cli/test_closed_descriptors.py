"""Standard descriptors that are closed: nothing else takes their place, and commands that need them say so in one line."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.test_standard_output import shell
from tests.support.broker import Broker
from tests.support.waiting import WAIT_S, until

UNREADABLE = "holdfast: cannot read standard input: Bad file descriptor\n"


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- >&- 2>&-"])
def test_a_server_with_closed_descriptors_stops_gracefully(tmp_path: Path, closed: str) -> None:
    listen = " ".join(f"--{name} 127.0.0.1:0" for name in ("kafka", "http", "peer"))
    serve = f'exec "{sys.executable}" -m holdfast serve --data "{tmp_path}" --roles api,agent {listen} --grpc off'
    server = subprocess.Popen(
        ["bash", "-c", f"{serve} --clickhouse off {closed}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until((tmp_path / "addresses.json").exists, what="it serves")
        descriptors = [(Path(f"/proc/{server.pid}/fd") / str(each)).readlink() for each in range(3)]
        assert set(descriptors) == {Path("/dev/null")}
        server.send_signal(signal.SIGTERM)
        assert server.wait(WAIT_S) == 0
    finally:
        server.kill()
        server.wait()


def test_a_command_that_reads_says_that_it_cannot(broker: Broker) -> None:
    topic = broker.create_topic("unread")
    done = shell(f"holdfast produce {topic} --bootstrap {broker.bootstrap} <&-")
    assert done.returncode == 1
    assert done.stderr.startswith(UNREADABLE)
    assert "0 records acknowledged" in done.stderr


@pytest.mark.parametrize("command", ["heap enqueue jobs", "clickhouse query - --clickhouse http://127.0.0.1:9"])
def test_so_does_every_other(command: str) -> None:
    done = shell(f"holdfast {command} <&-")
    assert (done.returncode, done.stderr) == (1, UNREADABLE)


def test_a_command_that_asks_is_not_at_a_terminal(broker: Broker) -> None:
    done = shell(f"holdfast topic delete {broker.create_topic('kept')} --bootstrap {broker.bootstrap} <&-")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--yes" in done.stderr


def test_errors_do_not_go_to_standard_output() -> None:
    done = shell("holdfast topic list --bootstrap 127.0.0.1:1 2>&-")
    assert (done.returncode, done.stdout) == (3, "")


@pytest.mark.parametrize(
    "url",
    [
        "http://x y:80",
        "http://127.0.0.1:8080#f",
        "http://127.0.0.1:8080#",
        "http://h/a b",
        "http://h/é",
        "http://h\t:80",
        "h?",
    ],
)
def test_a_url_that_cannot_be_asked_is_invalid_input(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_HTTP_URL", url)
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "heap", "list"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "invalid --http" in done.stderr
