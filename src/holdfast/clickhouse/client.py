"""A client of one ClickHouse server over HTTP, on `clickhouse-connect`.

The one rule: every failure is a `ClickHouseError` (the server returned an error) or a `ClickHouseUnreachableError` (no response, so
the outcome is unknown). Nothing is retried here: whether a statement may be sent again is the caller's decision. And what another
service answers is never shown: a DSN may name any address that this process reaches, and its errors are read by others.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from holdfast.clickhouse.errors import ClickHouseError, ClickHouseUnreachableError
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.installation import install_hint

_CONNECT_TIMEOUT_S: Final = 5
_HTTP_PORT: Final = 8123
_HTTPS_PORT: Final = 8443
_STATUS: Final = re.compile(r"HTTP driver received HTTP status (\d+)")
_OWN_ERROR: Final = re.compile(r"Code: \d+\. DB::Exception")


def parse_dsn(dsn: str) -> SplitResult:
    """The parts of a DSN. Anything but `http://` and `https://` is an `InvalidError`, which does not show the password."""
    parts = urlsplit(dsn)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidError("ClickHouse DSN", f"{parts.scheme}://…", "http[s]://user:password@host:port/database")
    return parts


def database_of_dsn(dsn: str) -> str:
    """The database of a DSN; empty: it names none."""
    return unquote(parse_dsn(dsn).path.strip("/"))


def port_of(parts: SplitResult) -> int:
    """The port of a DSN, or ClickHouse's own for its scheme."""
    return parts.port or (_HTTPS_PORT if parts.scheme == "https" else _HTTP_PORT)


def ca_file_of(parts: SplitResult) -> str:
    """The authorities (PEM) with which the server's certificate is checked, `?ca_file=` of a DSN; empty: the system's."""
    return parse_qs(parts.query).get("ca_file", [""])[0]


class ClickHouseClient:
    """Connects at the first statement, and again after the connection broke. For one thread."""

    def __init__(self, dsn: str, *, timeout_ms: int) -> None:
        self._parts, self._timeout_ms = parse_dsn(dsn), timeout_ms
        self._client: Any = None

    @property
    def address(self) -> str:
        """Host and port, without user and password."""
        return f"{self._parts.hostname}:{port_of(self._parts)}"

    def command(self, statement: str, *, settings: Mapping[str, str | int] | None = None) -> None:
        """Run a statement that returns nothing."""
        self._run(lambda client: client.command(statement, settings=dict(settings or {}), use_database=False))

    def insert(self, statement: str, data: Any, *, settings: Mapping[str, str | int]) -> None:
        """Run an insert with its data, which has Python's buffer protocol.

        Both are sent as one memoryview: clickhouse-connect would search `bytes` for a query, and retry them by itself.
        """
        body = memoryview(b"".join((statement.encode(), b"\n", data)))
        self._run(lambda client: client.raw_insert(insert_block=body, settings=dict(settings)))

    def rows(self, query: str) -> Sequence[Sequence[Any]]:
        """The rows of a query."""
        rows: Sequence[Sequence[Any]] = self._run(lambda client: client.query(query).result_rows)
        return rows

    @contextmanager
    def stream(self, query: str, output_format: str) -> Iterator[Any]:
        """The result of a query in one of ClickHouse's formats, as a file that is read while the server sends it."""
        source = self._run(lambda client: client.raw_stream(query, fmt=output_format, use_database=False))
        try:
            yield source
        finally:
            source.close()

    def value(self, query: str) -> Any:
        """The first column of a query's first row."""
        return self.rows(query)[0][0]

    def close(self) -> None:
        """Close the connection; the next statement opens another."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _run(self, call: Any) -> Any:
        try:
            from clickhouse_connect.driver.exceptions import Error
        except ModuleNotFoundError:
            raise UnavailableError(
                "ClickHouse", f"clickhouse-connect is not installed: {install_hint('clickhouse')}"
            ) from None
        connected = self._client is not None
        try:
            if self._client is None:
                self._client = self._connect()
                connected = True
            return call(self._client)
        except Error as error:
            if error.code is not None:
                raise ClickHouseError(self.address, str(error), error.code) from None
            self.close()
            raise ClickHouseUnreachableError(self.address, _shown(error, connected=connected)) from None
        except OSError as error:
            self.close()
            raise ClickHouseUnreachableError(self.address, str(error)) from None

    def _connect(self) -> Any:
        import clickhouse_connect

        return clickhouse_connect.get_client(
            interface=self._parts.scheme,
            host=self._parts.hostname,
            port=port_of(self._parts),
            username=unquote(self._parts.username or "default"),
            password=unquote(self._parts.password or ""),
            connect_timeout=_CONNECT_TIMEOUT_S,
            send_receive_timeout=max(1, self._timeout_ms // 1_000),
            compress=False,
            autogenerate_session_id=False,  # a session runs one statement at a time
            dedicated_pool=True,
            ca_cert=ca_file_of(self._parts) or None,
        )


def _shown(error: Exception, *, connected: bool) -> str:
    """The text of an error without a code: a failure of the network, of the client, or of a service that is no ClickHouse."""
    text = str(error)
    if error.__cause__ is not None or _OWN_ERROR.search(text):
        return text
    if status := _STATUS.search(text):
        return f"HTTP status {status[1]} without an error of ClickHouse: this is no ClickHouse, or something before it failed"
    if not connected or type(error).__name__ == "StreamFailureError":
        return "the answer is no ClickHouse's: this is no ClickHouse, or something before it failed"
    return text
