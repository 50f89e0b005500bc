"""Running statements, by the query ids of their clients.

chDB assigns ids of its own. The two are joined by a key in `log_comment`, which the engine lists with each running statement.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from holdfast.clickhouse.embedded.errors import QueryError, query_error
from holdfast.clickhouse.embedded.settings import ClickHouseSettings
from holdfast.clickhouse.error_codes import ClickHouseErrorCode
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

_KEY_PREFIX: Final = "holdfast:"
_POLL_INTERVAL_S: Final = 0.05  # how often a queued statement checks whether it was killed
QUERY_KEY_SQL: Final = f"extract(Settings['log_comment'], '^{_KEY_PREFIX}([0-9a-f]+)')"


@dataclass(eq=False)
class RunningQuery:
    """A statement, from the moment its request is accepted until the engine has finished with it."""

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
        """Have it stop at its next step. The caller also kills it in the engine."""
        self.cancelled.set()
        with suppress(OSError):
            self.on_cancel()

    def disconnect(self) -> None:
        """Close its connection: its client does not read the response."""
        with suppress(OSError):
            self.on_disconnect()

    def check(self) -> None:
        """Raise if it was cancelled."""
        if self.cancelled.is_set():
            raise query_error(ClickHouseErrorCode.QUERY_WAS_CANCELLED, "Query was cancelled")

    def log_comment(self, comment: str) -> str:
        """Its `log_comment`: the key, then the client's own comment."""
        return f"{_KEY_PREFIX}{self.key} {comment}".rstrip()


class RunningQueries:
    """All running statements, and the limit on them."""

    def __init__(self, settings: ClickHouseSettings, *, clock: Clock, random: Random) -> None:
        self._settings, self._clock, self._random = settings, clock, random
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(settings.queries_max)
        self._running: dict[str, RunningQuery] = {}
        self._idle = threading.Condition(self._lock)
        self._closing = False

    def all(self) -> list[RunningQuery]:
        """A snapshot."""
        with self._lock:
            return list(self._running.values())

    @contextmanager
    def register(self, query_id: str, user: str) -> Iterator[RunningQuery]:
        """A running statement for the body. Its id must be unique."""
        running = RunningQuery(self._random.token(), query_id, user, self._clock.boot_ms())
        with self._lock:
            if self._closing:
                raise query_error(ClickHouseErrorCode.ABORTED, "Server shutdown is called")
            if any(other.query_id == query_id for other in self._running.values()):
                raise query_error(
                    ClickHouseErrorCode.QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING,
                    f"Query with id = {query_id} is already running",
                )
            self._running[running.key] = running
        try:
            yield running
        finally:
            with self._lock:
                del self._running[running.key]
                self._idle.notify_all()
            running.ended.set()

    @contextmanager
    def slot(self, running: RunningQuery) -> Iterator[None]:
        """A slot to run in; a statement is queued for at most `queue_ms`."""
        deadline_ms = self._clock.boot_ms() + self._settings.queue_ms
        while not self._slots.acquire(timeout=_POLL_INTERVAL_S):
            running.check()
            if self._clock.boot_ms() >= deadline_ms:
                raise query_error(
                    ClickHouseErrorCode.TOO_MANY_SIMULTANEOUS_QUERIES,
                    f"Too many simultaneous queries. Maximum: {self._settings.queries_max}",
                )
        try:
            running.check()
            yield
        finally:
            self._slots.release()

    def close(self) -> None:
        """Accept no more statements."""
        with self._lock:
            self._closing = True

    def wait_until_none(self, timeout_ms: float) -> bool:
        """Wait until nothing runs; False if something still does after the time."""
        with self._idle:
            return self._idle.wait_for(lambda: not self._running, timeout=timeout_ms / 1000)


def cancellation_or(running: RunningQuery, error: QueryError) -> QueryError:
    """The error of a statement that failed: if it was killed, that is the reason."""
    if running.cancelled.is_set() and error.code != ClickHouseErrorCode.QUERY_WAS_CANCELLED:
        return query_error(ClickHouseErrorCode.QUERY_WAS_CANCELLED, "Query was cancelled")
    return error
