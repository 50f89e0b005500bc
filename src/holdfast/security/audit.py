"""The audit log: one JSON line for each act of administration and each refusal, of every gateway.

    {"at", "gateway", "principal", "host", "action", "resource", "outcome", "request", "detail", "left_out"}

The one rule: nobody fills a disk. Refusals beyond so many a second are counted, and the next line says how many were left out; the
file is bounded. Lines are written on a thread of their own, and what it cannot keep up with is counted as well: never is a request
held up by the log.
"""

import logging
import os
import sys
import threading
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Final, TextIO

import msgspec

from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError

_log: Final = logging.getLogger(__name__)

OFF: Final = "off"
STDERR: Final = "stderr"
_WAITING_MAX: Final = 10_000
_TEXT_CHARS_MAX: Final = 500


class AuditOutcome(StrEnum):
    """What became of it."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    FAILED = "failed"


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What somebody did or was refused. `request`: the id under which the gateway's own log has it."""

    gateway: str
    principal: str
    host: str
    action: str
    outcome: AuditOutcome
    resource: str = ""
    request: str = ""
    detail: str = ""


class _Line(msgspec.Struct, omit_defaults=True):
    at: str
    gateway: str
    principal: str
    host: str
    action: str
    outcome: AuditOutcome
    resource: str = ""
    request: str = ""
    detail: str = ""
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """`to`: a file, `stderr` or `off`."""

    to: str = STDERR
    bytes_max: int = 64 << 20
    refusals_per_s: int = 20


class RefusalLimit:
    """So many refusals a second, whoever they are of. Pure: time is an argument."""

    def __init__(self, per_s: int) -> None:
        self._per_s, self._left, self._at_ms = per_s, float(per_s), 0

    def admits(self, now_ms: int) -> bool:
        """Whether another one may be written."""
        passed_ms, self._at_ms = now_ms - self._at_ms, now_ms
        self._left = min(float(self._per_s), self._left + max(0, passed_ms) * self._per_s / 1_000)
        if self._left < 1:
            return False
        self._left -= 1
        return True


class AuditLog:
    """The log of one process, open for the body of `with`."""

    def __init__(self, settings: AuditSettings, *, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self._limit = RefusalLimit(settings.refusals_per_s)
        self._waiting: deque[_Line] = deque()
        self._changed = threading.Condition()
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._left_out = 0
        self.left_out_total = 0

    def __enter__(self) -> "AuditLog":
        if self._settings.to != OFF:
            output = _Output(self._settings)
            self._thread = threading.Thread(target=self._write_all, args=(output,), name="audit", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            with self._changed:
                self._stopped = True
                self._changed.notify()
            self._thread.join(timeout=5)

    def record(self, event: AuditEvent) -> None:
        """Write the event, or count it if there are too many."""
        if self._thread is None:
            return
        refused = event.outcome is AuditOutcome.REFUSED
        if (refused and not self._limit.admits(self._clock.boot_ms())) or len(self._waiting) >= _WAITING_MAX:
            self._left_out += 1
            self.left_out_total += 1
            return
        left_out, self._left_out = self._left_out, 0
        at = datetime.fromtimestamp(self._clock.now_ms() / 1_000, UTC).isoformat(timespec="milliseconds")
        line = _Line(
            at=at,
            gateway=event.gateway,
            principal=event.principal[:_TEXT_CHARS_MAX],
            host=event.host,
            action=event.action[:_TEXT_CHARS_MAX],
            outcome=event.outcome,
            resource=event.resource[:_TEXT_CHARS_MAX],
            request=event.request,
            detail=event.detail[:_TEXT_CHARS_MAX],
            left_out=left_out,
        )
        with self._changed:
            self._waiting.append(line)
            self._changed.notify()

    def _write_all(self, output: "_Output") -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._stopped:
                    self._changed.wait()
                lines = list(self._waiting)
                self._waiting.clear()
                if not lines:
                    break
            try:
                output.write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
            except OSError as error:  # a full disk must not end the service, nor go unnoticed
                self._left_out += len(lines)
                self.left_out_total += len(lines)
                _log.error("audit lines were not written: %s", error)
        output.close()


class _Output:
    """Where lines go. A file that is full becomes `{file}.1`, and the `{file}.1` before it is gone."""

    def __init__(self, settings: AuditSettings) -> None:
        self._bytes_max = settings.bytes_max
        self._path = None if settings.to == STDERR else Path(settings.to)
        self._descriptor = -1
        if self._path is not None:
            try:
                self._open(self._path)
            except OSError as error:
                raise InvalidError(
                    "audit file", settings.to, f"a file that can be written ({error.strerror})"
                ) from None

    def _open(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._descriptor).st_size

    def write(self, data: bytes) -> None:
        if self._path is None:
            stream: TextIO = sys.stderr
            stream.write(data.decode())
            stream.flush()
            return
        if self._size and self._size + len(data) > self._bytes_max:
            os.close(self._descriptor)
            self._path.replace(self._path.with_name(self._path.name + ".1"))
            self._open(self._path)
        written = 0
        while written < len(data):
            written += os.write(self._descriptor, data[written:])
        self._size += len(data)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
