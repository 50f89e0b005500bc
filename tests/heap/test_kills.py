"""kill -9 of a real process at each step of an operation: what was answered holds, what was not is whole or absent, never twice."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.failpoints import FailpointFolder
from tests.support.heap_process import HeapProcess
from tests.support.waiting import until

pytestmark = pytest.mark.slow


class Lives:
    """One data directory, one process after another."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.failpoints = FailpointFolder(directory / "failpoints")
        self.now = self._start()

    def _start(self) -> HeapProcess:
        return HeapProcess(self._directory, {**os.environ, **self.failpoints.environment})  # noqa: TID251

    def killed(self, failpoint: str, call: str, **options: object) -> None:
        """The process dies at a failpoint during a call, and is started again."""
        self.failpoints.arm(failpoint, "kill")
        self.now.call(call, **options)
        assert self.now.wait() == -9
        self.now = self._start()


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Lives]:
    made = Lives(tmp_path)
    yield made
    made.now.end()


def test_what_is_durable_holds_after_a_kill_and_happens_once(lives: Lives) -> None:
    lives.killed("heap.durable", "enqueue", payload="a", sequence=1)
    assert lives.now.call("enqueue", payload="a", sequence=1)[1] is True
    assert lives.now.call("enqueue", payload="b", sequence=2)[1] is False

    # A lease that was granted and never answered is still a lease: nobody else gets the message.
    lives.killed("heap.durable", "pop")
    ((payload, _, attempts),) = lives.now.call("pop", count=9)
    assert (payload, attempts) == ("b", 0)
    assert lives.now.call("stats")["inflight"] == 2


def test_a_kill_while_history_goes_loses_no_message(lives: Lives) -> None:
    _fill(lives.now)
    lives.killed("heap.snapshot-uploaded", "snapshot")
    assert lives.now.call("snapshot") == [14]
    _work(lives.now, 9)
    lives.now.call("snapshot")
    lives.killed("heap.copied-forward", "trim")
    assert lives.now.call("stats")["ready"] == 2
    assert lives.now.call("trim") > 0
    assert [each[0] for each in lives.now.call("pop", count=9)] == ["a", "b"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("failpoint", "call"),
    [
        ("heap.snapshot-listed", "snapshot"),
        ("heap.copied-some", "trim"),
        ("heap.appended", "trim"),
        ("maintenance.before-relisting", "trim"),
        ("maintenance.relisted", "trim"),
    ],
)
def test_a_kill_at_every_other_step_of_a_history_loses_no_message(lives: Lives, failpoint: str, call: str) -> None:
    _fill(lives.now)
    if call == "trim":
        lives.now.call("snapshot")
        _work(lives.now, 9)
        lives.now.call("snapshot")
    lives.killed(failpoint, call)
    assert lives.now.call("stats")["ready"] == 2
    for sequence in (20, 21):
        _work(lives.now, sequence)
        lives.now.call("snapshot")
    assert lives.now.call("trim") > 14
    assert lives.now.call("enqueue", payload="a", sequence=1)[1] is True
    assert [each[0] for each in lives.now.call("pop", count=9)] == ["a", "b"]


def _fill(process: HeapProcess) -> None:
    """Two messages that stay, and some that come and go: 14 records."""
    for sequence in range(3, 7):
        _work(process, sequence)
    process.call("enqueue", payload="a", sequence=1)
    process.call("enqueue", payload="b", sequence=2)


def _work(process: HeapProcess, sequence: int) -> None:
    """A message comes and goes: three records."""
    process.call("enqueue", payload="x", sequence=sequence, priority=-1)
    ((_, token, _),) = process.call("pop")
    assert process.call("ack", token=token) == [""]


@pytest.mark.long
def test_what_is_not_durable_never_was_and_every_other_step_holds(lives: Lives) -> None:
    lives.killed("heap.before-append", "enqueue", payload="a", sequence=1)
    assert lives.now.call("stats")["ready"] == 0
    lives.killed("heap.appended", "enqueue", payload="a", sequence=1)  # there or not
    lives.now.call("enqueue", payload="a", sequence=1)
    lives.now.call("enqueue", payload="b", sequence=2)
    assert lives.now.call("stats")["ready"] == 2
    ((_, first, _), (_, second, _)) = lives.now.call("pop", count=9)
    lives.killed("heap.durable", "ack", token=first)
    assert lives.now.call("stats")["acked"] == 1
    assert "gone" in lives.now.call("ack", token=first)[0]
    lives.killed("heap.move-decided", "nack", token=second)
    until(lambda: lives.now.call("stats")["moving"] == 0)
    assert lives.now.call("dead") == [1, ["b"]]
    lives.now.call("enqueue", payload="c", sequence=3)
    ((_, third, _),) = lives.now.call("pop")
    lives.killed("heap.move-delivered", "nack", token=third)
    until(lambda: lives.now.call("stats")["moving"] == 0)
    assert lives.now.call("dead") == [2, ["b", "c"]]
    assert lives.now.call("stats")["moved"] == 2
