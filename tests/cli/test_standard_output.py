"""Standard output that is full, closed or gone ends a command with one line and code 1, never with a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.broker import Broker

FULL = "holdfast: cannot write to standard output: No space left on device\n"
CLOSED = "holdfast: cannot write to standard output: Bad file descriptor\n"


def shell(command: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run a shell's line in which `holdfast` is this checkout's."""
    line = f'holdfast() {{ "{sys.executable}" -m holdfast "$@"; }}; {command}'
    return subprocess.run(["bash", "-c", line], env=env or None, capture_output=True, text=True, timeout=60)


LISTINGS = ["registry demo", "registry demo --json", "config show", "config show --json", "--help", "topic --help"]


@pytest.mark.parametrize("command", LISTINGS)
def test_a_full_device_is_one_line_and_code_1(command: str) -> None:
    done = shell(f"holdfast {command} > /dev/full")
    assert (done.returncode, done.stderr) == (1, FULL)


@pytest.mark.parametrize("command", LISTINGS)
def test_a_closed_descriptor_is_one_line_and_code_1(command: str) -> None:
    done = shell(f"holdfast {command} >&-")
    assert (done.returncode, done.stderr) == (1, CLOSED)


@pytest.mark.parametrize(
    "command", ["topic list", "topic list --json", "topic describe {}", "consume {}", "consume {} --json"]
)
def test_a_kafka_command_is_no_exception(broker: Broker, command: str) -> None:
    topic = broker.create_topic("shown")
    kafka = f"holdfast {command.format(topic)} --bootstrap {broker.bootstrap}"
    shell(f"echo hello | holdfast produce {topic} --bootstrap {broker.bootstrap}")
    full, closed = shell(f"{kafka} > /dev/full"), shell(f"{kafka} >&-")
    assert (full.returncode, full.stderr) == (1, FULL)
    assert (closed.returncode, closed.stderr) == (1, CLOSED)


def test_nothing_printed_is_nothing_to_fail() -> None:
    done = shell("holdfast topic list --bootstrap 127.0.0.1:1 >&-")
    assert done.returncode == 3
    assert "connection refused" in done.stderr


def test_a_closed_pipe_stays_quiet() -> None:
    done = shell("holdfast registry demo --json | true; echo ${PIPESTATUS[0]}")
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_an_encoding_without_a_character_escapes_it() -> None:
    done = shell("holdfast --help", PYTHONIOENCODING="ascii", PYTHONPATH="src")
    assert done.returncode == 0, done.stderr
    assert "holdfast COMMAND \\u2026" in done.stdout


def test_an_interrupt_during_the_imports_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "msgspec.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = shell("holdfast topic list", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
