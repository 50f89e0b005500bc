"""Runs the statement of a request: settings and parameters first, then the statement, with its data streamed.

The one rule: an insert whose body did not arrive completely is cancelled, never finished.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.clickhouse.embedded.access_policy import input_table
from holdfast.clickhouse.embedded.engine import ChdbEngine
from holdfast.clickhouse.embedded.errors import QueryError, engine_error, query_error
from holdfast.clickhouse.embedded.kill_query import kill_queries, processes_subquery
from holdfast.clickhouse.embedded.results import SELF_DESCRIBING_FORMATS, STREAMABLE_FORMATS, QueryResult
from holdfast.clickhouse.embedded.running_queries import RunningQueries, RunningQuery, cancellation_or
from holdfast.clickhouse.embedded.sessions import EXPRESSION_SETTINGS, Sessions
from holdfast.clickhouse.embedded.settings import ClickHouseSettings
from holdfast.clickhouse.embedded.statement import (
    INPUT_TABLE,
    INSERT,
    KILL,
    SELECT,
    Statement,
    parse_statement,
    select_header_only,
    substitute_processes,
)
from holdfast.clickhouse.error_codes import ClickHouseErrorCode
from holdfast.clickhouse.quoting import quote_identifier, quote_literal
from holdfast.vocabulary.clock import Clock

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEAD_BYTES: Final = 256 * 1024  # of a body without `query=`: a statement followed by data ends within them
_LISTED_QUERY_BYTES: Final = 10_000  # of a statement, in `system.processes`


@dataclass(slots=True, kw_only=True)
class QueryRequest:
    """A statement with its parameters, independent of HTTP. `buffered`: the response is sent when the statement has ended."""

    query: bytes
    body: Iterator[bytes]
    user: str
    query_id: str
    database: str = ""
    default_format: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    session_id: str = ""
    session_ms: int = 60_000
    session_check: bool = False
    read_only: bool = False
    buffered: bool = False


class QueryExecutor:
    """Runs statements, each on a new connection or on its session's."""

    def __init__(
        self, engine: ChdbEngine, registry: RunningQueries, settings: ClickHouseSettings, *, clock: Clock
    ) -> None:
        self.engine, self.registry, self._settings = engine, registry, settings
        self.sessions = Sessions(engine, settings, clock=clock)

    @contextmanager
    def execute(self, request: QueryRequest, running: RunningQuery) -> Iterator[QueryResult]:
        """The result once its first block is there; the engine works on it until the body is left."""
        statement = self._statement(request)
        evaluates_rows = self.engine.access.check(statement)
        readonly = _readonly_level(request)
        running.query = statement.text[:_LISTED_QUERY_BYTES].decode(errors="replace")
        with ExitStack() as stack:
            if statement.kind != KILL and not statement.reads_processes:
                stack.enter_context(self.registry.slot(running))
            connection = stack.enter_context(self._connection(request, running, readonly))
            try:
                if readonly and request.session_id:
                    self._check_reads_only(connection, statement, readonly)
                if not evaluates_rows:
                    _take_rows_as_data(connection)
                yield self._execute(connection, request, statement, running)
            except RuntimeError as error:
                raise cancellation_or(running, engine_error(error)) from None
            except QueryError as error:
                raise cancellation_or(running, error) from None

    def _statement(self, request: QueryRequest) -> Statement:
        """Parse `query=`, or the head of the body. What remains in `request.body` is data."""
        if request.query:
            return parse_statement(request.query)
        head = bytearray()
        for piece in request.body:
            head += piece
            if len(head) >= _HEAD_BYTES:
                break
        if len(head) >= _HEAD_BYTES:
            statement = parse_statement(bytes(head)) if head[:64].lstrip()[:6].lower() == b"insert" else None
            if statement is not None and statement.takes_data:
                return statement
            for piece in request.body:
                head += piece
                if len(head) > self._settings.query_bytes_max:
                    raise query_error(
                        ClickHouseErrorCode.TOO_MANY_BYTES,
                        f"the statement exceeds the limit of {self._settings.query_bytes_max} bytes",
                    )
        if not head.strip():
            raise query_error(ClickHouseErrorCode.SYNTAX_ERROR, "Empty query")
        return parse_statement(bytes(head))

    @contextmanager
    def _connection(self, request: QueryRequest, running: RunningQuery, readonly: int) -> Iterator[Any]:
        with self.sessions.connection(
            request.session_id, request.session_ms, check=request.session_check
        ) as connection:
            try:
                previous = self.sessions.values(connection, request.settings) if request.session_id else {}
                if request.database:
                    connection.query(f"USE {quote_identifier(request.database)}", "Null")
                self._set(connection, request, running, readonly)
                yield connection
            except RuntimeError as error:
                raise cancellation_or(running, engine_error(error)) from None
            finally:
                if request.session_id:
                    self.sessions.restore(connection, previous)

    def _set(self, connection: Any, request: QueryRequest, running: RunningQuery, readonly: int) -> None:
        given = {name: value for name, value in request.settings.items() if name != "readonly"}
        for name in given:
            if not _NAME.fullmatch(name):
                raise query_error(ClickHouseErrorCode.UNKNOWN_SETTING, f"Unknown setting '{name}'")
        given["log_comment"] = running.log_comment(given.get("log_comment", ""))
        given |= {f"param_{name}": value for name, value in request.parameters.items() if _NAME.fullmatch(name)}
        if readonly and not request.session_id:
            given["readonly"] = str(readonly)
        connection.query(
            "SET " + ", ".join(f"{name} = {quote_literal(value)}" for name, value in given.items()), "Null"
        )

    def _check_reads_only(self, connection: Any, statement: Statement, readonly: int) -> None:
        """As the engine's `readonly`, which cannot be taken back from the connection of a session."""
        text = statement.text.decode(errors="replace")
        writes = connection.classify_query(text)["query_class"].name != "READ_ONLY"
        if writes or (readonly == 1 and self.engine.access.changes_settings(statement.text)):
            raise query_error(ClickHouseErrorCode.READONLY, "Cannot execute query in readonly mode")

    def _execute(
        self, connection: Any, request: QueryRequest, statement: Statement, running: RunningQuery
    ) -> QueryResult:
        running.check()
        if statement.kind == INSERT:
            if request.read_only:
                raise query_error(
                    ClickHouseErrorCode.READONLY, "Cannot execute query in readonly mode: GET only reads, use POST"
                )
            return self._insert(connection, request, statement, running)
        format_name = statement.format or request.default_format or "TabSeparated"
        if statement.kind == KILL:
            rows = kill_queries(self.engine, self.registry, statement.text, running)
            return self._execute_buffered(connection, rows, format_name)
        text = statement.text
        if statement.reads_processes:
            text = substitute_processes(text, processes_subquery(self.registry, running))
        if statement.kind == SELECT and format_name in STREAMABLE_FORMATS and not request.buffered:
            return self._execute_streaming(connection, text, format_name, running)
        return self._execute_buffered(connection, text, format_name)

    def _execute_buffered(self, connection: Any, text: bytes, format_name: str) -> QueryResult:
        result = connection.query(text, format_name)
        body = bytes(result.bytes())
        if len(body) > self._settings.answer_bytes_max:
            raise query_error(
                ClickHouseErrorCode.TOO_MANY_ROWS_OR_BYTES,
                f"the result of {len(body)} bytes exceeds the limit of {self._settings.answer_bytes_max} for {format_name}, "
                f"which cannot be streamed; use one of {', '.join(STREAMABLE_FORMATS)}",
            )
        return QueryResult(iter((body,)), format_name, body, _statistics(result))

    def _execute_streaming(self, connection: Any, text: bytes, format_name: str, running: RunningQuery) -> QueryResult:
        """A result of which only the first block is awaited."""
        blocks = _stream_blocks(connection, connection.send_query(text, format_name), running)
        first = next(blocks, b"")
        if not first and format_name in SELF_DESCRIBING_FORMATS:
            return self._execute_buffered(connection, select_header_only(text), format_name)

        def pieces() -> Iterator[bytes]:
            yield first
            yield from blocks

        return QueryResult(STREAMABLE_FORMATS[format_name](pieces()), format_name)

    def _insert(
        self, connection: Any, request: QueryRequest, statement: Statement, running: RunningQuery
    ) -> QueryResult:
        if not statement.takes_data:
            return self._execute_buffered(connection, statement.text, "TabSeparated")
        pieces = _insert_data(statement, request.body)
        if statement.structure:
            table = INPUT_TABLE
            # The rows of input() keep their order; by default two threads fill a table, and two read it.
            connection.query("SET max_threads = 1, max_insert_threads = 1", "Null")
            connection.query(input_table(table, statement.structure), "Null")
            try:
                _stream_insert(connection, b"INSERT INTO " + table, statement.format, pieces, running)
                running.check()
                return self._execute_buffered(connection, statement.text, "TabSeparated")
            finally:
                if request.session_id:
                    connection.query(b"DROP TEMPORARY TABLE IF EXISTS " + table, "Null")
        result = _stream_insert(connection, statement.text, statement.format, pieces, running)
        return QueryResult(iter((b"",)), "TabSeparated", b"", _statistics(result))


def _readonly_level(request: QueryRequest) -> int:
    """0: the statement may write. 1: it may not. 2: nor that, but it may change settings. A GET never writes."""
    given = request.settings.get("readonly", "0")
    if given not in ("0", "1", "2"):
        raise query_error(ClickHouseErrorCode.BAD_ARGUMENTS, f"invalid readonly {given!r}: must be 0, 1 or 2")
    return int(given) or (2 if request.read_only else 0)


def _take_rows_as_data(connection: Any) -> None:
    connection.query("SET " + ", ".join(f"{name} = 0" for name in EXPRESSION_SETTINGS), "Null")


def _insert_data(statement: Statement, body: Iterator[bytes]) -> Iterator[bytes]:
    if statement.data:
        yield statement.data
    yield from body


def _stream_insert(
    connection: Any, text: bytes, format_name: str, pieces: Iterator[bytes], running: RunningQuery
) -> Any:
    """Stream the data of an insert to the engine. They are data: expressions in them are not evaluated."""
    if format_name.lower() == "values":
        _take_rows_as_data(connection)
    handle = connection.send_insert(text, format_name)
    try:
        for piece in pieces:
            running.check()
            if piece:
                connection.insert_append(handle, piece)
        running.check()
    except BaseException:
        connection.insert_cancel(handle)
        raise
    return connection.insert_done(handle)


def _stream_blocks(connection: Any, handle: Any, running: RunningQuery) -> Iterator[bytes]:
    ended = False
    try:
        while not ended:
            running.check()
            try:
                block = bytes(connection.streaming_fetch_result(handle).bytes())
            except RuntimeError as error:
                ended = True
                raise cancellation_or(running, engine_error(error)) from None
            ended = not block
            if block:
                yield block
    finally:
        if not ended:
            connection.streaming_cancel_query(handle)


def _statistics(result: Any) -> dict[str, int]:
    return {
        "read_rows": result.storage_rows_read(),
        "read_bytes": result.storage_bytes_read(),
        "written_rows": result.rows_written(),
        "written_bytes": result.bytes_written(),
        "result_rows": result.rows_read(),
        "elapsed_ns": int(result.elapsed() * 1e9),
    }
