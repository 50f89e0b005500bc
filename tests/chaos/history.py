"""What clients invoked and what they saw, as JSON lines.

The one rule, Jepsen's: an operation is written down before it is sent, and completed by `ok` (it happened), `fail` (it did not) or
`info` (nobody knows). What was never completed is `info`.

| function | fields | by |
| --- | --- | --- |
| `begin` | `kind`: idempotent, plain, reader, member, observer; `group` of members | everybody, once |
| `send` | `partition`, `value`; `ok` has its `offset` | producers |
| `read` | `partition`, `records` [[offset, value, leader epoch]] | readers and members |
| `end` | `partition`; `ok` has `end` and the leader's `epoch` | the observer |
| `lead` | `partition`, `leader`, `epoch` | the observer, from each agent's metadata |
| `commit` | `partition`, `offset` | members |
| `assign` | `partition`: it is this member's from here on | members |
| `done` | `partition`, `end`: read up to here | readers |
| `refuse` | `partition`, `offset`, `error`, `reason`: no client should see this one | anybody |
| `fault` | `fault`, `target`; `invoke` when it begins, `ok` when it is over | the schedule |
"""

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self

from holdfast.vocabulary.clock import RealClock

Type = Literal["invoke", "ok", "fail", "info"]
TYPES: Final = ("invoke", "ok", "fail", "info")
HISTORY_FILE: Final = "history.jsonl"


@dataclass(frozen=True, slots=True)
class Event:
    """One line."""

    time_ms: int
    process: str
    type: str
    f: str
    value: dict[str, Any]

    def line(self) -> str:
        """As it is written."""
        return json.dumps(
            {"time_ms": self.time_ms, "process": self.process, "type": self.type, "f": self.f, **self.value}
        )

    @classmethod
    def parsed(cls, line: str) -> "Event":
        """`ValueError`: this is no line of a history."""
        fields = json.loads(line)
        try:
            time_ms, process, status, f = (fields.pop(name) for name in ("time_ms", "process", "type", "f"))
            event = cls(time_ms, process, status, f, fields)
        except KeyError as missing:
            raise ValueError(f"no {missing} in {line[:200]!r}") from missing
        if event.type not in TYPES:
            raise ValueError(f"invalid type {event.type!r}: must be one of {', '.join(TYPES)}")
        return event


class Recorder:
    """Writes a history; used by many threads. Times count from its start."""

    def __init__(self, path: Path) -> None:
        self._file, self._lock, self._clock = path.open("w"), threading.Lock(), RealClock()
        self._began_ms = self._clock.boot_ms()

    def now_ms(self) -> int:
        """Time since the start."""
        return self._clock.boot_ms() - self._began_ms

    def __call__(self, process: str, status: Type, f: str, **value: Any) -> None:
        """Add a line; the time is taken under the lock, so that lines are in order."""
        with self._lock:
            self._file.write(Event(self.now_ms(), process, status, f, value).line() + "\n")

    def flush(self) -> None:
        """What was written can be read."""
        with self._lock:
            self._file.flush()

    def close(self) -> None:
        with self._lock:
            self._file.close()

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[Self]:
        """A recorder for the body."""
        recorder = cls(path)
        try:
            yield recorder
        finally:
            recorder.close()


def load(path: Path) -> list[Event]:
    """The history in a file."""
    with path.open() as lines:
        return parsed(lines)


def parsed(lines: Iterable[str]) -> list[Event]:
    """The history in these lines."""
    return [Event.parsed(line) for line in lines]
