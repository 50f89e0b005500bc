"""Sessions: connections that outlive a request, so that the next one finds temporary tables and settings."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.clickhouse.embedded.engine import ChdbEngine
from holdfast.clickhouse.embedded.errors import query_error
from holdfast.clickhouse.embedded.settings import ClickHouseSettings
from holdfast.clickhouse.error_codes import ClickHouseErrorCode
from holdfast.clickhouse.quoting import quote_literal
from holdfast.vocabulary.clock import Clock

# Settings that allow expressions in the rows of `FORMAT Values`.
EXPRESSION_SETTINGS: Final = (
    "input_format_values_interpret_expressions",
    "input_format_values_deduce_templates_of_expressions",
)
# Set by this server, beside the settings of a request.
_OVERRIDDEN_SETTINGS: Final = ("log_comment", "max_threads", "max_insert_threads", *EXPRESSION_SETTINGS)


@dataclass(eq=False)
class _PinnedConnection:
    connection: Any
    until_ms: int = 0
    busy: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class Sessions:
    """Connections by `session_id`; a request without one gets a new connection."""

    def __init__(self, engine: ChdbEngine, settings: ClickHouseSettings, *, clock: Clock) -> None:
        self._engine, self._settings, self._clock = engine, settings, clock
        self._lock = threading.Lock()
        self._sessions: dict[str, _PinnedConnection] = {}

    @contextmanager
    def connection(self, session_id: str, session_ms: int, *, check: bool) -> Iterator[Any]:
        """The connection of the session, or a new one for this request alone."""
        if not session_id:
            connection = self._engine.connect()
            try:
                yield connection
            finally:
                connection.close()
            return
        session = self._acquire(session_id, check=check)
        try:
            yield session.connection
        finally:
            with self._lock:
                session.busy = False
                session.until_ms = self._clock.boot_ms() + min(session_ms, self._settings.session_ms_max)

    def _acquire(self, session_id: str, *, check: bool) -> _PinnedConnection:
        self.sweep()
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None:
                if check:
                    raise query_error(ClickHouseErrorCode.SESSION_NOT_FOUND, f"Session {session_id} not found")
                if len(self._sessions) >= self._settings.sessions_max:
                    raise query_error(
                        ClickHouseErrorCode.BAD_ARGUMENTS,
                        f"the limit of {self._settings.sessions_max} sessions is reached",
                    )
                session = self._sessions[session_id] = _PinnedConnection(self._engine.connect())
            if session.busy:
                raise query_error(
                    ClickHouseErrorCode.SESSION_IS_LOCKED, f"Session {session_id} is locked by a concurrent client"
                )
            session.busy = True
            return session

    def sweep(self) -> None:
        """Close expired sessions."""
        now_ms = self._clock.boot_ms()
        with self._lock:
            keys = [key for key, each in self._sessions.items() if not each.busy and each.until_ms <= now_ms]
            expired = [self._sessions.pop(key) for key in keys]
        for session in expired:
            session.connection.close()

    def forget(self, session_id: str) -> None:
        """Close a session, unless a request uses it."""
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None or session.busy:
                return
            del self._sessions[session_id]
        session.connection.close()

    def close(self) -> None:
        """Close all sessions that no request uses."""
        with self._lock:
            idle = [session for session in self._sessions.values() if not session.busy]
            self._sessions.clear()
        for session in idle:
            session.connection.close()

    def values(self, connection: Any, names: Mapping[str, str]) -> dict[str, str | None]:
        """The session's own values of these settings, to be restored after a request that overrides them."""
        listed = ", ".join(map(quote_literal, (*names, *_OVERRIDDEN_SETTINGS)))
        query = f"SELECT name, hex(value), changed FROM system.settings WHERE name IN ({listed})"  # noqa: S608
        result = connection.query(query, "TSV")
        rows = [line.split("\t") for line in bytes(result.bytes()).decode().splitlines()]
        return {name: bytes.fromhex(value).decode() if changed == "1" else None for name, value, changed in rows}

    def restore(self, connection: Any, previous: Mapping[str, str | None]) -> None:
        """Restore the settings of a session."""
        for name, value in previous.items():
            if value is None:
                connection.query(f"SET {name} = DEFAULT", "Null")
            else:
                connection.query(f"SET {name} = {quote_literal(value)}", "Null")
