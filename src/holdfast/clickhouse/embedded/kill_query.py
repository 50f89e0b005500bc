"""`KILL QUERY` and `system.processes`, by the query ids of clients.

The engine kills; the statements to kill are selected here. One that still receives its body or is queued is not in the engine yet:
it is cancelled here. SYNC returns when none of them runs any more.
"""

from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from typing import Final

from holdfast.clickhouse.embedded.engine import ChdbEngine
from holdfast.clickhouse.embedded.errors import QueryError, query_error
from holdfast.clickhouse.embedded.lexer import tokenize_sql
from holdfast.clickhouse.embedded.running_queries import QUERY_KEY_SQL, RunningQueries, RunningQuery
from holdfast.clickhouse.error_codes import ClickHouseErrorCode
from holdfast.clickhouse.quoting import quote_literal

_RETRY_INTERVAL_S: Final = 0.1  # between two kills of a statement that has not ended
_DISCONNECT_AFTER_ATTEMPTS: Final = 10  # then a client that does not read its response is disconnected


def processes_subquery(registry: RunningQueries, caller: RunningQuery) -> bytes:
    """`system.processes` as a subquery: with the clients' query ids and users, and with statements that are not in the engine yet.

    The columns of the latter are those of the querying statement where nothing better is known.
    """
    queries = registry.all()
    rows = ", ".join(_row_literal(running.key, running.query_id, running.user, running.query) for running in queries)
    known = f"(SELECT groupArray({QUERY_KEY_SQL}) FROM system.processes)"  # noqa: S608
    waiting = f"arrayJoin(arrayFilter(one -> NOT has({known}, one.1), [{rows}])) AS _one"
    return (
        f"(SELECT * REPLACE ({_client_columns(queries)}) FROM system.processes UNION ALL "  # noqa: S608
        "SELECT * EXCEPT (_one) REPLACE (_one.2 AS query_id, _one.3 AS user, _one.4 AS query) "
        f"FROM (SELECT *, {waiting} FROM system.processes WHERE {QUERY_KEY_SQL} = {quote_literal(caller.key)}))"
    ).encode()


def _client_columns(queries: list[RunningQuery]) -> str:
    keys = _array_literal(running.key for running in queries)
    ids, users = (
        _array_literal(running.query_id for running in queries),
        _array_literal(running.user for running in queries),
    )
    return (
        f"transform({QUERY_KEY_SQL}, {keys}, {ids}, query_id) AS query_id, "
        f"transform({QUERY_KEY_SQL}, {keys}, {users}, user) AS user"
    )


def kill_queries(engine: ChdbEngine, registry: RunningQueries, text: bytes, caller: RunningQuery) -> bytes:
    """Kill the statements that match, and return a query whose result lists them."""
    condition, mode = _parse_kill(text)
    others = [running for running in registry.all() if running is not caller]
    matching = _matching(engine, others, condition)
    if mode != "test":
        for running in matching:
            running.cancel()
        _kill(engine, matching)
    if mode == "sync":
        for running in matching:
            _wait_until_ended(engine, running, caller)
    return _result_query(matching, {"sync": "finished", "test": ""}.get(mode, "waiting"))


def replace_running_query(engine: ChdbEngine, registry: RunningQueries, query_id: str) -> None:
    """Kill the statement that runs under an id, so that another may use it."""
    for running in registry.all():
        if running.query_id == query_id:
            running.cancel()
            _kill(engine, [running])
            _wait_until_ended(engine, running, None)


def _wait_until_ended(engine: ChdbEngine, running: RunningQuery, caller: RunningQuery | None) -> None:
    """Return when `running` has ended."""
    for attempt in count():
        if running.ended.wait(_RETRY_INTERVAL_S):
            return
        if caller is not None:
            caller.check()
        _kill(engine, [running])
        if attempt == _DISCONNECT_AFTER_ATTEMPTS:
            running.disconnect()


def _parse_kill(text: bytes) -> tuple[bytes, str]:
    tokens = list(tokenize_sql(text))
    words = [token.word for token in tokens]
    if "where" not in words:
        raise query_error(ClickHouseErrorCode.SYNTAX_ERROR, "KILL QUERY requires WHERE")
    begins = words.index("where")
    end, mode = len(text), "async"
    for token in tokens[begins + 1 :]:
        bare = token.kind in ("word", "sign") and token.depth == 0
        if bare and token.word in ("sync", "async", "test", "format", "settings", ";"):
            end = min(end, token.start)
            mode = token.word if token.word in ("sync", "async", "test") else mode
    return text[tokens[begins].end : end], mode


def _matching(engine: ChdbEngine, others: list[RunningQuery], condition: bytes) -> list[RunningQuery]:
    """Statements the condition holds for: by their row in the engine or, if they are not there yet, by what is known here."""
    if not others:
        return []
    where = condition.decode(errors="surrogateescape")
    shown = f"SELECT {QUERY_KEY_SQL} AS _key, * REPLACE ({_client_columns(others)}) FROM system.processes"  # noqa: S608
    keys = set(_keys(engine, f"SELECT _key, ({where}) != 0 FROM ({shown})"))  # noqa: S608
    seen = {key for key, _ in keys}
    rows = ", ".join(
        _row_literal(running.key, running.query_id, running.user, running.query)
        for running in others
        if running.key not in seen
    )
    if rows:
        values = f"values('_key String, query_id String, user String, query String', {rows})"
        known = f"(SELECT *, toFloat64(0) AS elapsed FROM {values})"  # noqa: S608
        with suppress(QueryError):  # the condition may use a column that only the engine has: then these do not match
            keys |= set(_keys(engine, f"SELECT _key, ({where}) != 0 FROM {known}"))  # noqa: S608
    matching = {key for key, holds in keys if holds == "1"}
    return [running for running in others if running.key in matching]


def _keys(engine: ChdbEngine, statement: str) -> list[tuple[str, str]]:
    lines = engine.query(statement).decode().splitlines()
    return [(key, holds) for key, _, holds in (line.partition("\t") for line in lines)]


def _kill(engine: ChdbEngine, matching: list[RunningQuery]) -> None:
    if matching:
        engine.query(
            f"KILL QUERY WHERE {QUERY_KEY_SQL} IN ({', '.join(quote_literal(running.key) for running in matching)}) ASYNC"
        )


def _result_query(matching: list[RunningQuery], status: str) -> bytes:
    kinds = "'kill_status String, query_id String, user String, query String'"
    rows = [_row_literal(status, running.query_id, running.user, running.query) for running in matching]
    if not rows:
        return f"SELECT * FROM values({kinds}, ('', '', '', '')) WHERE 0".encode()  # noqa: S608
    return f"SELECT * FROM values({kinds}, {', '.join(rows)})".encode()  # noqa: S608


def _row_literal(*texts: str) -> str:
    return f"({', '.join(map(quote_literal, texts))})"


def _array_literal(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(quote_literal, texts))}]"
