"""Kinds of statements: where the data of an insert begin, which format is requested.

The one rule: the engine never gets a statement whose data it would not see. In chDB, `input(…)` followed by data stores nothing and
reports no error; such a statement is rewritten here to read a temporary table.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from holdfast.clickhouse.embedded.errors import query_error
from holdfast.clickhouse.embedded.lexer import SqlToken, tokenize_sql
from holdfast.clickhouse.error_codes import ClickHouseErrorCode

INSERT: Final = "insert"
SELECT: Final = "select"
KILL: Final = "kill"
OTHER: Final = "other"

INPUT_TABLE: Final = b"_holdfast_input"


@dataclass(frozen=True, slots=True)
class Statement:
    """A parsed statement. `data`: what follows the format of an insert in the same text. `rows_at`: where inline rows begin."""

    kind: str
    text: bytes
    format: str = ""
    takes_data: bool = False
    data: bytes = b""
    structure: bytes = b""
    reads_processes: bool = False
    rows_at: int = 0


def parse_statement(text: bytes) -> Statement:
    """Classify a statement. Whether it is allowed is decided elsewhere; one that is wrong is left to the engine."""
    first = next((token.word for token in tokenize_sql(text)), "")
    if first == INSERT:
        return _insert(text)
    tokens = list(tokenize_sql(text))
    _reject_multiple_statements(tokens)
    words = [token.word for token in tokens]
    if words[:2] == ["kill", "query"]:
        return Statement(KILL, text, _output_format(text, tokens))
    kind = SELECT if first in (SELECT, "with", "(") and INSERT not in words else OTHER
    return Statement(kind, text, _output_format(text, tokens), reads_processes=bool(_processes_references(tokens)))


def _insert(text: bytes) -> Statement:
    """The text up to the format is the statement, the rest is data."""
    tokens: list[SqlToken] = []
    stream = tokenize_sql(text)
    for token in stream:
        bare = (
            token.kind == "word" and token.depth == 0 and tokens[-1:] and tokens[-1].word not in ("into", "table", ".")
        )
        if bare and token.word == "values":
            return _with_values(text, tokens, token)
        if bare and token.word == "format":
            name = next(stream, None)
            if name is not None and name.kind == "word":
                return _with_format(text, tokens, token, name)
        tokens.append(token)
    _reject_multiple_statements(tokens)
    statement = _with_input(Statement(INSERT, text), tokens)
    if statement.structure:
        raise query_error(ClickHouseErrorCode.BAD_ARGUMENTS, "input() requires FORMAT, followed by the data")
    return replace(statement, takes_data=not _has_select(tokens), format="" if _has_select(tokens) else "Values")


def _with_values(text: bytes, tokens: list[SqlToken], values: SqlToken) -> Statement:
    """`VALUES` followed by rows is left to the engine; without them, the rows are in the body."""
    if text[values.end :].strip(b" \t\r\n;"):
        _reject_multiple_statements(list(tokenize_sql(text)))
        return Statement(INSERT, text, rows_at=values.end)
    return Statement(INSERT, text[: values.start], "Values", takes_data=True)


def _with_format(text: bytes, tokens: list[SqlToken], at: SqlToken, name: SqlToken) -> Statement:
    _reject_multiple_statements(tokens)
    begins = name.end
    while text[begins : begins + 1] in (b" ", b"\t", b"\f", b";") and begins < len(text):
        begins += 1
    if text[begins : begins + 2] == b"\r\n":
        begins += 2
    elif text[begins : begins + 1] == b"\n":
        begins += 1
    statement = Statement(INSERT, text[: at.start], text[name.start : name.end].decode(), data=text[begins:])
    statement = _with_input(statement, tokens)
    if _has_select(tokens) and not statement.structure:
        return replace(statement, data=b"", text=text)  # the format is not that of rows from a SELECT
    return replace(statement, takes_data=True)


def _has_select(tokens: list[SqlToken]) -> bool:
    return any(token.word in (SELECT, "watch", "infile") and token.kind == "word" for token in tokens)


def _with_input(statement: Statement, tokens: list[SqlToken]) -> Statement:
    """Replace `input('structure')` by the name of a table, which the caller fills first."""
    for at, token in enumerate(tokens[:-3]):
        follows = tokens[at + 1 : at + 4]
        if token.word == "input" and follows[0].word == "(" and follows[1].kind == "text" and follows[2].word == ")":
            structure = statement.text[follows[1].start : follows[1].end]
            text = statement.text[: token.start] + INPUT_TABLE + statement.text[follows[2].end :]
            return replace(statement, text=text, structure=_unquoted(structure))
    if any(one.word == "input" and two.word == "(" for one, two in pairwise(tokens)):
        raise query_error(
            ClickHouseErrorCode.BAD_ARGUMENTS, "input() takes its structure as one text: input('a Int64, b String')"
        )
    return statement


def _unquoted(literal: bytes) -> bytes:
    inner = literal[1:-1].replace(b"''", b"'")
    return b"\\".join(part.replace(b"\\", b"") for part in inner.split(b"\\\\"))


def _output_format(text: bytes, tokens: list[SqlToken]) -> str:
    """The format of a `FORMAT` clause at the end; empty: there is none."""
    at = _format_clause_index(tokens)
    return text[tokens[at + 1].start : tokens[at + 1].end].decode() if at else ""


def _format_clause_index(tokens: list[SqlToken]) -> int:
    """Index of a `FORMAT name` that ends the statement; 0: there is none."""
    for at in range(len(tokens) - 2, 0, -1):
        word, name, after = tokens[at], tokens[at + 1], tokens[at + 2] if at + 2 < len(tokens) else None
        last = after is None or after.word in (";", "settings", "into")
        if last and word.kind == name.kind == "word" and word.word == "format" and word.depth == 0:
            return at
    return 0


def select_header_only(text: bytes) -> bytes:
    """A SELECT with the columns of this one, and no rows."""
    tokens = [token for token in tokenize_sql(text) if token.word != ";"]
    at = _format_clause_index(tokens)
    pieces = (
        (text[: tokens[at].start], text[tokens[at + 1].end : tokens[-1].end]) if at else (text[: tokens[-1].end], b"")
    )
    return b"SELECT * FROM (%b\n%b\n) LIMIT 0" % pieces


def substitute_processes(text: bytes, instead: bytes) -> bytes:
    """The statement with `instead` in place of `system.processes`."""
    for start, end in reversed(_processes_references(list(tokenize_sql(text)))):
        text = text[:start] + instead + text[end:]
    return text


def _processes_references(tokens: list[SqlToken]) -> list[tuple[int, int]]:
    return [
        (one.start, three.end)
        for one, two, three in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if one.word == "system" and two.word == "." and three.word == "processes"
    ]


def _reject_multiple_statements(tokens: list[SqlToken]) -> None:
    for one, two in pairwise(tokens):
        if one.word == ";" and one.depth == 0 and two.word != ";":
            raise query_error(ClickHouseErrorCode.SYNTAX_ERROR, "Multi-statements are not allowed")
