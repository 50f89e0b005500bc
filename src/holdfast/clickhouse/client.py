"""A connection to a ClickHouse over HTTP, and its errors as actions of the caller.

The one rule: whatever goes wrong is either the fence (`FencedError`: stop) or in the way (`BlockedError`: try again). An insert
whose answer was lost is in the way like any other: its token makes the next try safe.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from holdfast.pipeline.sinks.clickhouse.statements import FENCE_MESSAGE
from holdfast.pipeline.sinks.contract import BlockedError
from holdfast.vocabulary.errors import InvalidError, UnavailableError

CODE_THROW_IF: Final = 395
CODE_UNKNOWN_TABLE: Final = 60
CODE_UNKNOWN_DATABASE: Final = 81
CODE_ACCESS_DENIED: Final = 497
CONNECT_TIMEOUT_S: Final = 5
REASON_CHARS_MAX: Final = 500


class RefusedByFenceError(Exception):
    """The server compared epochs and ours is older."""


class ClickHouseError(BlockedError):
    """The server answered with an error; `code` is ClickHouse's own."""

    def __init__(self, reason: str, code: int) -> None:
        super().__init__(reason)
        self.args = (reason, code)
        self.code = code


def parse_dsn(dsn: str) -> SplitResult:
    """The parts of a DSN. Anything but `http://` and `https://` is an `InvalidError`, which does not show the password."""
    parts = urlsplit(dsn)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidError("ClickHouse DSN", f"{parts.scheme}://…", "http[s]://user:password@host:port/database")
    return parts


class ClickHouseClient:
    """Opened at the first statement, and again after one that found no server. For one thread."""

    def __init__(self, dsn: str, *, timeout_ms: int) -> None:
        self._parts, self._timeout_ms = parse_dsn(dsn), timeout_ms
        self._client: Any = None

    @property
    def address(self) -> str:
        """Where it goes, without user and password."""
        return f"{self._parts.hostname}:{self._parts.port or (8443 if self._parts.scheme == 'https' else 8123)}"

    def command(self, statement: str, *, settings: Mapping[str, str | int] | None = None) -> None:
        """Run a statement that answers nothing."""
        self._run(lambda client: client.command(statement, settings=dict(settings or {}), use_database=False))

    def insert(self, statement: str, data: Any, *, settings: Mapping[str, str | int]) -> None:
        """Run an insert with its data, which has Python's buffer protocol.

        They go together as one piece that is no `bytes`: those the client would search for a query, and send again by itself.
        """
        body = memoryview(b"".join((statement.encode(), b"\n", data)))
        self._run(lambda client: client.raw_insert(insert_block=body, settings=dict(settings)))

    def rows(self, query: str) -> Sequence[Sequence[Any]]:
        """The rows of a query."""
        found: Sequence[Sequence[Any]] = self._run(lambda client: client.query(query).result_rows)
        return found

    def value(self, query: str) -> Any:
        """The first value of a query that has one."""
        return self.rows(query)[0][0]

    def close(self) -> None:
        """Let the connection go; the next statement opens another."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _run(self, call: Any) -> Any:
        from clickhouse_connect.driver.exceptions import Error

        try:
            if self._client is None:
                self._client = self._connect()
            return call(self._client)
        except Error as error:
            raise self._translated(error) from None
        except OSError as error:
            self.close()
            raise BlockedError(f"ClickHouse at {self.address} does not answer: {_shortened(error)}") from None

    def _connect(self) -> Any:
        try:
            import clickhouse_connect
        except ModuleNotFoundError:
            raise UnavailableError(
                "ClickHouse", "there is no module clickhouse_connect; pip install 'holdfast[clickhouse]'"
            ) from None
        return clickhouse_connect.get_client(
            interface=self._parts.scheme,
            host=self._parts.hostname,
            port=self._parts.port or (8443 if self._parts.scheme == "https" else 8123),
            username=self._parts.username or "default",
            password=self._parts.password or "",
            connect_timeout=CONNECT_TIMEOUT_S,
            send_receive_timeout=max(1, self._timeout_ms // 1_000),
            compress=False,
            autogenerate_session_id=False,  # a session is for one statement at a time
            dedicated_pool=True,
        )

    def _translated(self, error: Any) -> Exception:
        text = str(error)
        if error.code == CODE_THROW_IF and FENCE_MESSAGE in text:
            return RefusedByFenceError()
        if error.code is None:
            self.close()
            return BlockedError(f"ClickHouse at {self.address} does not answer: {_shortened(error)}")
        return ClickHouseError(f"ClickHouse at {self.address}: {_shortened(error)}", error.code)


def _shortened(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= REASON_CHARS_MAX else text[:REASON_CHARS_MAX] + "…"
