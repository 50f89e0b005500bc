"""`KILL QUERY` and `system.processes`, by the ids clients know.

The engine kills; the face says whom. A statement that is still sending its body, or waiting for its turn, is not in the engine yet:
it is stopped here. SYNC returns when none of them runs any more.
"""

from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from typing import Final

from holdfast.clickhouse.embedded.engine import ChdbEngine
from holdfast.clickhouse.embedded.errors import QueryError, query_error
from holdfast.clickhouse.embedded.lexer import tokenize_sql
from holdfast.clickhouse.embedded.running_queries import QUERY_KEY_SQL, RunningQueries, RunningQuery
from holdfast.clickhouse.error_codes import ErrorCode
from holdfast.clickhouse.quoting import quote_literal

_RETRY_INTERVAL_S: Final = 0.1  # between two kills of what does not want to end
_DISCONNECT_AFTER_ATTEMPTS: Final = 10  # of them, a client that does not read its answer loses its connection


def processes_subquery(registry: RunningQueries, me: RunningQuery) -> bytes:
    """`system.processes` as a subquery: with the ids and users clients know, and with those that are not in the engine yet.

    A row of the latter is that of the statement that asks, as far as nothing better is known.
    """
    running = registry.all()
    rows = ", ".join(
        f"({', '.join(map(quote_literal, (one.key, one.query_id, one.user, one.query)))})" for one in running
    )
    known = f"(SELECT groupArray({QUERY_KEY_SQL}) FROM system.processes)"  # noqa: S608
    waiting = f"arrayJoin(arrayFilter(one -> NOT has({known}, one.1), [{rows}])) AS _one"
    return (
        f"(SELECT * REPLACE ({_client_columns(running)}) FROM system.processes UNION ALL "  # noqa: S608
        "SELECT * EXCEPT (_one) REPLACE (_one.2 AS query_id, _one.3 AS user, _one.4 AS query) "
        f"FROM (SELECT *, {waiting} FROM system.processes WHERE {QUERY_KEY_SQL} = {quote_literal(me.key)}))"
    ).encode()


def _client_columns(running: list[RunningQuery]) -> str:
    keys = _array_literal(one.key for one in running)
    ids, users = _array_literal(one.query_id for one in running), _array_literal(one.user for one in running)
    return (
        f"transform({QUERY_KEY_SQL}, {keys}, {ids}, query_id) AS query_id, "
        f"transform({QUERY_KEY_SQL}, {keys}, {users}, user) AS user"
    )


def kill_queries(engine: ChdbEngine, registry: RunningQueries, text: bytes, me: RunningQuery) -> bytes:
    """Kill what the statement names, and return a statement that shows it."""
    condition, mode = _parse_kill(text)
    others = [one for one in registry.all() if one is not me]
    meant = _matching(engine, others, condition)
    if mode != "test":
        for one in meant:
            one.cancel()
        _kill(engine, meant)
    if mode == "sync":
        for one in meant:
            _wait_until_ended(engine, one, me)
    return _result_query(meant, {"sync": "finished", "test": ""}.get(mode, "waiting"))


def replace_running_query(engine: ChdbEngine, registry: RunningQueries, query_id: str) -> None:
    """End whoever runs under an id, so that another may take it."""
    for one in registry.all():
        if one.query_id == query_id:
            one.cancel()
            _kill(engine, [one])
            _wait_until_ended(engine, one, None)


def _wait_until_ended(engine: ChdbEngine, one: RunningQuery, me: RunningQuery | None) -> None:
    """Return when `one` no longer runs."""
    for attempt in count():
        if one.ended.wait(_RETRY_INTERVAL_S):
            return
        if me is not None:
            me.check()
        _kill(engine, [one])
        if attempt == _DISCONNECT_AFTER_ATTEMPTS:
            one.disconnect()


def _parse_kill(text: bytes) -> tuple[bytes, str]:
    found = list(tokenize_sql(text))
    words = [token.word for token in found]
    if "where" not in words:
        raise query_error(ErrorCode.SYNTAX_ERROR, "KILL QUERY needs WHERE")
    begins = words.index("where")
    end, mode = len(text), "async"
    for token in found[begins + 1 :]:
        bare = token.kind in ("word", "sign") and token.depth == 0
        if bare and token.word in ("sync", "async", "test", "format", "settings", ";"):
            end = min(end, token.start)
            mode = token.word if token.word in ("sync", "async", "test") else mode
    return text[found[begins].end : end], mode


def _matching(engine: ChdbEngine, others: list[RunningQuery], condition: bytes) -> list[RunningQuery]:
    """Those the condition holds for: by what the engine shows of them, or, if it does not know them yet, by what the face knows."""
    if not others:
        return []
    where = condition.decode(errors="surrogateescape")
    shown = f"SELECT {QUERY_KEY_SQL} AS _key, * REPLACE ({_client_columns(others)}) FROM system.processes"  # noqa: S608
    keys = set(_keys(engine, f"SELECT _key, ({where}) != 0 FROM ({shown})"))  # noqa: S608
    seen = {key for key, _ in keys}
    rows = ", ".join(
        f"({quote_literal(one.key)}, {quote_literal(one.query_id)}, {quote_literal(one.user)}, {quote_literal(one.query)}, 0)"
        for one in others
        if one.key not in seen
    )
    if rows:
        known = f"values('_key String, query_id String, user String, query String, elapsed Float64', {rows})"
        with suppress(
            QueryError
        ):  # it may ask for something only the engine knows: then those it does not know are not meant
            keys |= set(_keys(engine, f"SELECT _key, ({where}) != 0 FROM {known}"))  # noqa: S608
    meant = {key for key, holds in keys if holds == "1"}
    return [one for one in others if one.key in meant]


def _keys(engine: ChdbEngine, statement: str) -> list[tuple[str, str]]:
    lines = engine.query(statement).decode().splitlines()
    return [(key, holds) for key, _, holds in (line.partition("\t") for line in lines)]


def _kill(engine: ChdbEngine, meant: list[RunningQuery]) -> None:
    if meant:
        engine.query(
            f"KILL QUERY WHERE {QUERY_KEY_SQL} IN ({', '.join(quote_literal(one.key) for one in meant)}) ASYNC"
        )


def _result_query(meant: list[RunningQuery], status: str) -> bytes:
    kinds = "'kill_status String, query_id String, user String, query String'"
    rows = [
        f"({quote_literal(status)}, {quote_literal(one.query_id)}, {quote_literal(one.user)}, {quote_literal(one.query)})"
        for one in meant
    ]
    if not rows:
        return f"SELECT * FROM values({kinds}, ('', '', '', '')) WHERE 0".encode()  # noqa: S608
    return f"SELECT * FROM values({kinds}, {', '.join(rows)})".encode()  # noqa: S608


def _array_literal(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(quote_literal, texts))}]"
