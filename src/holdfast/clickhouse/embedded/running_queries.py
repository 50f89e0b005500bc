"""The statements under way, known by the ids their clients gave them.

chDB gives each statement an id of its own choice. What ties the two together is a key in `log_comment`, which the engine shows
beside each running statement.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from holdfast.clickhouse.embedded.errors import QueryError, query_error
from holdfast.clickhouse.embedded.settings import ClickHouseSettings
from holdfast.clickhouse.error_codes import ErrorCode
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

_KEY_PREFIX: Final = "holdfast:"
_POLL_INTERVAL_S: Final = 0.05  # between looks whether a statement that waits for its turn was killed
QUERY_KEY_SQL: Final = f"extract(Settings['log_comment'], '^{_KEY_PREFIX}([0-9a-f]+)')"


@dataclass(eq=False)
class RunningQuery:
    """A statement under way, from the moment its request is accepted to the moment the engine has let go of it."""

    key: str
    query_id: str
    user: str
    since_ms: int
    query: str = ""
    on_cancel: Callable[[], None] = lambda: None
    on_disconnect: Callable[[], None] = lambda: None
    cancelled: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        """Have it stop at its next step; what the engine runs for it is killed by whoever calls this."""
        self.cancelled.set()
        with suppress(OSError):
            self.on_cancel()

    def disconnect(self) -> None:
        """Take its connection away: its client does not read what it is sent."""
        with suppress(OSError):
            self.on_disconnect()

    def check(self) -> None:
        """Raise if it is to stop."""
        if self.cancelled.is_set():
            raise query_error(ErrorCode.QUERY_WAS_CANCELLED, "Query was cancelled")

    def log_comment(self, comment: str) -> str:
        """Its `log_comment`: the key, then whatever the client wrote there."""
        return f"{_KEY_PREFIX}{self.key} {comment}".rstrip()


class RunningQueries:
    """All statements under way, and how many may be."""

    def __init__(self, settings: ClickHouseSettings, *, clock: Clock, random: Random) -> None:
        self._settings, self._clock, self._random = settings, clock, random
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(settings.queries_max)
        self._running: dict[str, RunningQuery] = {}
        self._nothing = threading.Condition(self._lock)
        self._closing = False

    def all(self) -> list[RunningQuery]:
        """Those under way now."""
        with self._lock:
            return list(self._running.values())

    @contextmanager
    def register(self, query_id: str, user: str) -> Iterator[RunningQuery]:
        """A statement for the body. Its id must not be that of another."""
        one = RunningQuery(self._random.token(), query_id, user, self._clock.boot_ms())
        with self._lock:
            if self._closing:
                raise query_error(ErrorCode.ABORTED, "Server shutdown is called")
            if any(other.query_id == query_id for other in self._running.values()):
                raise query_error(
                    ErrorCode.QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING, f"Query with id = {query_id} is already running"
                )
            self._running[one.key] = one
        try:
            yield one
        finally:
            with self._lock:
                del self._running[one.key]
                self._nothing.notify_all()
            one.ended.set()

    @contextmanager
    def slot(self, one: RunningQuery) -> Iterator[None]:
        """The right to run; a statement waits a while for it."""
        deadline_ms = self._clock.boot_ms() + self._settings.queue_ms
        while not self._slots.acquire(timeout=_POLL_INTERVAL_S):
            one.check()
            if self._clock.boot_ms() >= deadline_ms:
                raise query_error(
                    ErrorCode.TOO_MANY_SIMULTANEOUS_QUERIES,
                    f"Too many simultaneous queries. Maximum: {self._settings.queries_max}",
                )
        try:
            one.check()
            yield
        finally:
            self._slots.release()

    def close(self) -> None:
        """Accept no further ones."""
        with self._lock:
            self._closing = True

    def wait_until_none(self, timeout_ms: float) -> bool:
        """Whether all have ended within the time."""
        with self._nothing:
            return self._nothing.wait_for(lambda: not self._running, timeout=timeout_ms / 1000)


def cancellation_or(one: RunningQuery, error: QueryError) -> QueryError:
    """What to tell the client of a statement that failed: that it was killed, if it was."""
    if one.cancelled.is_set() and error.code != ErrorCode.QUERY_WAS_CANCELLED:
        return query_error(ErrorCode.QUERY_WAS_CANCELLED, "Query was cancelled")
    return error
