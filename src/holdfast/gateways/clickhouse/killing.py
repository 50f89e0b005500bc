"""`KILL QUERY` and `system.processes`, by the ids clients know.

The engine kills; the face says whom. A statement that is still sending its body, or waiting for its turn, is not in the engine yet:
it is stopped here. SYNC returns when none of them runs any more.
"""

from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from typing import Final

from holdfast.gateways.clickhouse.engine import Engine
from holdfast.gateways.clickhouse.errors import SYNTAX_ERROR, QueryError, refusal
from holdfast.gateways.clickhouse.lexing import tokens
from holdfast.gateways.clickhouse.running import KEY_OF, Registry, Running
from holdfast.pipeline.quoting import literal

_AGAIN_S: Final = 0.1  # between two kills of what does not want to end
_INSIST_AFTER: Final = 10  # of them, a client that does not read its answer loses its connection


def processes(registry: Registry, me: Running) -> bytes:
    """`system.processes` as a subquery: with the ids and users clients know, and with those that are not in the engine yet.

    A row of the latter is that of the statement that asks, as far as nothing better is known.
    """
    running = registry.all()
    rows = ", ".join(f"({', '.join(map(literal, (one.key, one.query_id, one.user, one.query)))})" for one in running)
    known = f"(SELECT groupArray({KEY_OF}) FROM system.processes)"  # noqa: S608
    waiting = f"arrayJoin(arrayFilter(one -> NOT has({known}, one.1), [{rows}])) AS _one"
    return (
        f"(SELECT * REPLACE ({_known(running)}) FROM system.processes UNION ALL "  # noqa: S608
        "SELECT * EXCEPT (_one) REPLACE (_one.2 AS query_id, _one.3 AS user, _one.4 AS query) "
        f"FROM (SELECT *, {waiting} FROM system.processes WHERE {KEY_OF} = {literal(me.key)}))"
    ).encode()


def _known(running: list[Running]) -> str:
    keys = _array(one.key for one in running)
    ids, users = _array(one.query_id for one in running), _array(one.user for one in running)
    return (
        f"transform({KEY_OF}, {keys}, {ids}, query_id) AS query_id, transform({KEY_OF}, {keys}, {users}, user) AS user"
    )


def kill(engine: Engine, registry: Registry, text: bytes, me: Running) -> bytes:
    """Kill what the statement names, and return a statement that shows it."""
    condition, mode = _parsed(text)
    others = [one for one in registry.all() if one is not me]
    meant = _matching(engine, others, condition)
    if mode != "test":
        for one in meant:
            one.cancel()
        _kill(engine, meant)
    if mode == "sync":
        for one in meant:
            _wait(engine, one, me)
    return _shown(meant, {"sync": "finished", "test": ""}.get(mode, "waiting"))


def replace(engine: Engine, registry: Registry, query_id: str) -> None:
    """End whoever runs under an id, so that another may take it."""
    for one in registry.all():
        if one.query_id == query_id:
            one.cancel()
            _kill(engine, [one])
            _wait(engine, one, None)


def _wait(engine: Engine, one: Running, me: Running | None) -> None:
    """Return when `one` no longer runs."""
    for attempt in count():
        if one.ended.wait(_AGAIN_S):
            return
        if me is not None:
            me.check()
        _kill(engine, [one])
        if attempt == _INSIST_AFTER:
            one.insist()


def _parsed(text: bytes) -> tuple[bytes, str]:
    found = list(tokens(text))
    words = [token.word for token in found]
    if "where" not in words:
        raise refusal(SYNTAX_ERROR, "KILL QUERY needs WHERE")
    begins = words.index("where")
    end, mode = len(text), "async"
    for token in found[begins + 1 :]:
        bare = token.kind in ("word", "sign") and token.depth == 0
        if bare and token.word in ("sync", "async", "test", "format", "settings", ";"):
            end = min(end, token.start)
            mode = token.word if token.word in ("sync", "async", "test") else mode
    return text[found[begins].end : end], mode


def _matching(engine: Engine, others: list[Running], condition: bytes) -> list[Running]:
    """Those the condition holds for: by what the engine shows of them, or, if it does not know them yet, by what the face knows."""
    if not others:
        return []
    where = condition.decode(errors="surrogateescape")
    shown = f"SELECT {KEY_OF} AS _key, * REPLACE ({_known(others)}) FROM system.processes"  # noqa: S608
    keys = set(_keys(engine, f"SELECT _key, ({where}) != 0 FROM ({shown})"))  # noqa: S608
    seen = {key for key, _ in keys}
    rows = ", ".join(
        f"({literal(one.key)}, {literal(one.query_id)}, {literal(one.user)}, {literal(one.query)}, 0)"
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


def _keys(engine: Engine, statement: str) -> list[tuple[str, str]]:
    lines = engine.ask(statement).decode().splitlines()
    return [(key, holds) for key, _, holds in (line.partition("\t") for line in lines)]


def _kill(engine: Engine, meant: list[Running]) -> None:
    if meant:
        engine.ask(f"KILL QUERY WHERE {KEY_OF} IN ({', '.join(literal(one.key) for one in meant)}) ASYNC")


def _shown(meant: list[Running], status: str) -> bytes:
    kinds = "'kill_status String, query_id String, user String, query String'"
    rows = [f"({literal(status)}, {literal(one.query_id)}, {literal(one.user)}, {literal(one.query)})" for one in meant]
    if not rows:
        return f"SELECT * FROM values({kinds}, ('', '', '', '')) WHERE 0".encode()  # noqa: S608
    return f"SELECT * FROM values({kinds}, {', '.join(rows)})".encode()  # noqa: S608


def _array(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(literal, texts))}]"
