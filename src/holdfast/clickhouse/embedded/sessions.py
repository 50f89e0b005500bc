"""Sessions: a connection that outlives its request, so that temporary tables and settings are there for the next."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.clickhouse.embedded.engine import ChdbEngine
from holdfast.clickhouse.embedded.errors import query_error
from holdfast.clickhouse.embedded.settings import ClickHouseSettings
from holdfast.clickhouse.error_codes import ErrorCode
from holdfast.clickhouse.quoting import quote_literal
from holdfast.vocabulary.clock import Clock

# What lets expressions among the rows of `FORMAT Values` be computed.
EXPRESSION_SETTINGS: Final = (
    "input_format_values_interpret_expressions",
    "input_format_values_deduce_templates_of_expressions",
)
# Set by the face itself, beside what a request says.
_OVERRIDDEN_SETTINGS: Final = ("readonly", "log_comment", "max_threads", "max_insert_threads", *EXPRESSION_SETTINGS)


@dataclass(eq=False)
class _PinnedConnection:
    connection: Any
    until_ms: int = 0
    busy: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class Sessions:
    """Connections by `session_id`; a request without one gets a fresh connection."""

    def __init__(self, engine: ChdbEngine, settings: ClickHouseSettings, *, clock: Clock) -> None:
        self._engine, self._settings, self._clock = engine, settings, clock
        self._lock = threading.Lock()
        self._sessions: dict[str, _PinnedConnection] = {}

    @contextmanager
    def connection(self, session_id: str, session_ms: int, *, check: bool) -> Iterator[Any]:
        """The session's connection, or one for this request alone."""
        if not session_id:
            fresh = self._engine.connect()
            try:
                yield fresh
            finally:
                fresh.close()
            return
        session = self._taken(session_id, check=check)
        try:
            yield session.connection
        finally:
            with self._lock:
                session.busy = False
                session.until_ms = self._clock.boot_ms() + min(session_ms, self._settings.session_ms_max)

    def _taken(self, session_id: str, *, check: bool) -> _PinnedConnection:
        self.sweep()
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None:
                if check:
                    raise query_error(ErrorCode.SESSION_NOT_FOUND, f"Session {session_id} not found")
                if len(self._sessions) >= self._settings.sessions_max:
                    raise query_error(
                        ErrorCode.BAD_ARGUMENTS, f"there are {self._settings.sessions_max} sessions already"
                    )
                session = self._sessions[session_id] = _PinnedConnection(self._engine.connect())
            if session.busy:
                raise query_error(ErrorCode.SESSION_IS_LOCKED, f"Session {session_id} is locked by a concurrent client")
            session.busy = True
            return session

    def sweep(self) -> None:
        """Close those whose time is over."""
        now_ms = self._clock.boot_ms()
        with self._lock:
            over = [key for key, one in self._sessions.items() if not one.busy and one.until_ms <= now_ms]
            gone = [self._sessions.pop(key) for key in over]
        for session in gone:
            session.connection.close()

    def forget(self, session_id: str) -> None:
        """Close one, unless a request uses it."""
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None or session.busy:
                return
            del self._sessions[session_id]
        session.connection.close()

    def close(self) -> None:
        """Close all that no request uses."""
        with self._lock:
            gone = [session for session in self._sessions.values() if not session.busy]
            self._sessions.clear()
        for session in gone:
            session.connection.close()

    def values(self, connection: Any, names: Mapping[str, str]) -> dict[str, str | None]:
        """What the session has set itself of these; a request's own settings must not stay."""
        listed = ", ".join(map(quote_literal, (*names, *_OVERRIDDEN_SETTINGS)))
        asks = f"SELECT name, hex(value), changed FROM system.settings WHERE name IN ({listed})"  # noqa: S608
        found = connection.query(asks, "TSV")
        rows = [line.split("\t") for line in bytes(found.bytes()).decode().splitlines()]
        return {name: bytes.fromhex(value).decode() if changed == "1" else None for name, value, changed in rows}

    def restore(self, connection: Any, kept: Mapping[str, str | None]) -> None:
        """Put a session's settings back."""
        for name, value in kept.items():
            if value is None:
                connection.query(f"SET {name} = DEFAULT", "Null")
            else:
                connection.query(f"SET {name} = {quote_literal(value)}", "Null")
