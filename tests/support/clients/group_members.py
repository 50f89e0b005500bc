"""Members of a consumer group as processes, which tests freeze and kill, and the verdict on their work.

A member prints one JSON object a line: `assigned` and `revoked` with partitions; `committing` with the values it has
read, then `committed`, `refused` or, where the response was lost, `unanswered`; `holding` where it is configured to wait before
a commit for a line on its stdin. The one rule: a record counts where a commit that covers it was acknowledged, so a
record unread is lost and a record read again after its commit is a duplicate.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

from tests.support.waiting import until
from tests.support.workload import Verdict, judge

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
SESSION_MS = 6_000  # the least that Apache Kafka grants
LEAVE_TIMEOUT_S = 20

Event = dict[str, Any]
Start = Callable[..., "Member"]


class Member:
    """One process of a group, and its events."""

    def __init__(self, name: str, argv: list[str], env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.events: list[Event] = []
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (`close` closes it)
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **(env or {})}  # noqa: TID251 (a child's, with a word more)
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=environment, cwd=REPOSITORY
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith(b"}\n"):  # a killed process may leave half a line
                self.events.append(json.loads(line))

    def events_of(self, event: str) -> list[Event]:
        return [each for each in list(self.events) if each["event"] == event]

    @property
    def assigned(self) -> set[int]:
        """The partitions that it holds now."""
        held: set[int] = set()
        for each in list(self.events):
            if each["event"] == "assigned":
                held |= set(each["partitions"])
            elif each["event"] == "revoked":
                held -= set(each["partitions"])
        return held

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def go(self) -> None:
        """Let a member that is holding commit."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def leave(self) -> None:
        """SIGTERM: it leaves the group and ends."""
        self._process.terminate()
        try:
            self._process.wait(LEAVE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not leave within {LEAVE_TIMEOUT_S} s: {self.complaints}") from None
        finally:
            self._end()

    def _end(self) -> None:
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    @property
    def complaints(self) -> str:
        """The end of its stderr."""
        self._errors.seek(0)
        return self._errors.read()[-3_000:].decode(errors="replace")

    def close(self) -> None:
        if self._process.returncode is None:
            self.kill()
        self._errors.close()


@contextmanager
def members(bootstrap: str, script: str, **settings: object) -> Iterator[Start]:
    """Starts members that run the Python `script` of this folder; those alive at the end are killed."""
    with started(
        lambda given: ([sys.executable, str(HERE / script), json.dumps(given)], None), bootstrap, settings
    ) as start:
        yield start


@contextmanager
def started(
    command: Callable[[Mapping[str, object]], tuple[list[str], Mapping[str, str] | None]],
    bootstrap: str,
    settings: Mapping[str, object],
) -> Iterator[Start]:
    """Like `members`, for any command that takes its settings as JSON."""
    every: list[Member] = []

    def start(name: str, **more: object) -> Member:
        given = {"bootstrap": bootstrap, "session_ms": SESSION_MS, **settings, **more}
        every.append(Member(name, *command(given)))
        return every[-1]

    try:
        yield start
    finally:
        for member in every:
            member.close()


def shared(group: Iterable[Member], partitions: int) -> bool:
    """Whether each partition is held by one of the group and each of the group holds some."""
    held = [member.assigned for member in group]
    return all(held) and sorted(number for each in held for number in each) == list(range(partitions))


def await_shared(group: Iterable[Member], partitions: int, *, timeout_s: float = 40.0) -> None:
    those = list(group)
    try:
        until(lambda: shared(those, partitions), within_s=timeout_s)
    except AssertionError:
        state = "; ".join(f"{each.name}: {sorted(each.assigned)} {each.complaints[-500:]}" for each in those)
        raise AssertionError(f"{partitions} partitions were not shared out: {state}") from None


def committed(group: Iterable[Member]) -> tuple[list[bytes], set[bytes]]:
    """The committed values, in the order of the commits, and those whose commit has an unknown outcome."""
    done: list[tuple[int, list[str]]] = []
    unknown: set[bytes] = set()
    for member in group:
        pending: list[str] = []
        for event in list(member.events):
            if event["event"] == "committing":
                pending = event["values"]
            elif event["event"] == "committed":
                done.append((event["at"], pending))
                pending = []
            elif event["event"] == "refused":
                pending = []
            elif event["event"] == "unanswered":
                unknown |= {value.encode() for value in pending}
                pending = []
        if not member.running:
            unknown |= {value.encode() for value in pending}
    return [value.encode() for _, values in sorted(done, key=itemgetter(0)) for value in values], unknown


def await_committed(group: Iterable[Member], sent: Iterable[bytes], *, timeout_s: float = 40.0) -> None:
    """Wait until every value of `sent` is committed, or died between a commit and its answer."""
    those, wanted = list(group), set(sent)

    def missing() -> set[bytes]:
        done, unknown = committed(those)
        return wanted - set(done) - unknown

    try:
        until(lambda: not missing(), within_s=timeout_s)
    except AssertionError:
        state = "; ".join(f"{each.name}: {each.events[-3:]} {each.complaints[-500:]}" for each in those)
        left = sorted(missing())
        raise AssertionError(f"{len(left)} records stay unread, first {left[:3]}: {state}") from None


def verdict(group: Iterable[Member], sent: Iterable[bytes]) -> Verdict:
    """The judgement of the whole group's work."""
    done, unknown = committed(group)
    return judge(set(sent) - unknown, done, maybe=unknown)
