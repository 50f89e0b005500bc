"""The statements under way, known by the ids their clients gave them.

chDB gives each statement an id of its own choice. What ties the two together is a key in `log_comment`, which the engine shows
beside each running statement.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from holdfast.gateways.clickhouse.errors import (
    ABORTED,
    QUERY_WAS_CANCELLED,
    SAME_QUERY_ID,
    TOO_MANY_QUERIES,
    QueryError,
    refusal,
)
from holdfast.gateways.clickhouse.settings import ClickHouseSettings
from holdfast.vocabulary.clock import Chance, Clock

_MARK: Final = "holdfast:"
_LOOK_S: Final = 0.05  # between looks whether a statement that waits for its turn was killed
KEY_OF: Final = f"extract(Settings['log_comment'], '^{_MARK}([0-9a-f]+)')"


@dataclass(eq=False)
class Running:
    """A statement under way, from the moment its request is accepted to the moment the engine has let go of it."""

    key: str
    query_id: str
    user: str
    since_ms: int
    query: str = ""
    on_cancel: Callable[[], None] = lambda: None
    on_insist: Callable[[], None] = lambda: None
    cancelled: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        """Have it stop at its next step; what the engine runs for it is killed by whoever calls this."""
        self.cancelled.set()
        with suppress(OSError):
            self.on_cancel()

    def insist(self) -> None:
        """Take its connection away: its client does not read what it is sent."""
        with suppress(OSError):
            self.on_insist()

    def check(self) -> None:
        """Raise if it is to stop."""
        if self.cancelled.is_set():
            raise refusal(QUERY_WAS_CANCELLED, "Query was cancelled")

    def mark(self, comment: str) -> str:
        """Its `log_comment`: the key, then whatever the client wrote there."""
        return f"{_MARK}{self.key} {comment}".rstrip()


class Registry:
    """All statements under way, and how many may be."""

    def __init__(self, settings: ClickHouseSettings, *, clock: Clock, chance: Chance) -> None:
        self._settings, self._clock, self._chance = settings, clock, chance
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(settings.queries_max)
        self._running: dict[str, Running] = {}
        self._nothing = threading.Condition(self._lock)
        self._closing = False

    def all(self) -> list[Running]:
        """Those under way now."""
        with self._lock:
            return list(self._running.values())

    @contextmanager
    def entered(self, query_id: str, user: str) -> Iterator[Running]:
        """A statement for the body. Its id must not be that of another."""
        one = Running(self._chance.token(), query_id, user, self._clock.boot_ms())
        with self._lock:
            if self._closing:
                raise refusal(ABORTED, "Server shutdown is called")
            if any(other.query_id == query_id for other in self._running.values()):
                raise refusal(SAME_QUERY_ID, f"Query with id = {query_id} is already running")
            self._running[one.key] = one
        try:
            yield one
        finally:
            with self._lock:
                del self._running[one.key]
                self._nothing.notify_all()
            one.ended.set()

    @contextmanager
    def slot(self, one: Running) -> Iterator[None]:
        """The right to run; a statement waits a while for it."""
        deadline_ms = self._clock.boot_ms() + self._settings.queue_ms
        while not self._slots.acquire(timeout=_LOOK_S):
            one.check()
            if self._clock.boot_ms() >= deadline_ms:
                raise refusal(TOO_MANY_QUERIES, f"Too many simultaneous queries. Maximum: {self._settings.queries_max}")
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


def cancelled_or(one: Running, error: QueryError) -> QueryError:
    """What to tell the client of a statement that failed: that it was killed, if it was."""
    if one.cancelled.is_set() and error.code != QUERY_WAS_CANCELLED:
        return refusal(QUERY_WAS_CANCELLED, "Query was cancelled")
    return error
