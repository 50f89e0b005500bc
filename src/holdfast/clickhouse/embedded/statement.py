"""What kind of statement a request brings: where an insert's data begin, which format is asked for.

The one rule: the engine is never given a statement whose data it would not see. `input(…)` with data behind it stores nothing in
chDB and says so to nobody; such a statement is taken apart here, and its rows come from a temporary table.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from holdfast.clickhouse.embedded.errors import query_error
from holdfast.clickhouse.embedded.lexer import SqlToken, tokenize_sql
from holdfast.clickhouse.embedded.restrictions import check_restrictions
from holdfast.clickhouse.error_codes import ErrorCode

INSERT: Final = "insert"
SELECT: Final = "select"
KILL: Final = "kill"
OTHER: Final = "other"

INPUT_TABLE: Final = b"_holdfast_input"


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement, and what the face has to know about it. `data` is what stands behind an insert's format in the same text."""

    kind: str
    text: bytes
    format: str = ""
    takes_data: bool = False
    data: bytes = b""
    structure: bytes = b""
    reads_processes: bool = False


def parse_statement(text: bytes) -> Statement:
    """Look at a statement. What is forbidden is raised; what is wrong is left to the engine."""
    first = next((token.word for token in tokenize_sql(text)), "")
    if first == INSERT:
        return _insert(text)
    found = list(tokenize_sql(text))
    _reject_multiple_statements(found)
    check_restrictions(found)
    words = [token.word for token in found]
    if words[:2] == ["kill", "query"]:
        return Statement(KILL, text, _output_format(text, found))
    kind = SELECT if first in (SELECT, "with", "(") and INSERT not in words else OTHER
    return Statement(kind, text, _output_format(text, found), reads_processes=bool(_processes_references(found)))


def _insert(text: bytes) -> Statement:
    """Everything up to the format is the statement, everything behind it is data."""
    found: list[SqlToken] = []
    stream = tokenize_sql(text)
    for token in stream:
        bare = token.kind == "word" and token.depth == 0 and found[-1:] and found[-1].word not in ("into", "table", ".")
        if bare and token.word == "values":
            return _with_values(text, found, token)
        if bare and token.word == "format":
            name = next(stream, None)
            if name is not None and name.kind == "word":
                return _with_format(text, found, token, name)
        found.append(token)
    _reject_multiple_statements(found)
    check_restrictions(found)
    made = _with_input(Statement(INSERT, text), found)
    if made.structure:
        raise query_error(ErrorCode.BAD_ARGUMENTS, "input() needs a FORMAT, and its data behind it")
    return replace(made, takes_data=not _has_select(found), format="" if _has_select(found) else "Values")


def _with_values(text: bytes, found: list[SqlToken], values: SqlToken) -> Statement:
    """`VALUES` with rows behind it is for the engine; without, the rows are in the body."""
    check_restrictions(found)
    if text[values.end :].strip(b" \t\r\n;"):
        rest = list(tokenize_sql(text))
        _reject_multiple_statements(rest)
        check_restrictions(rest)
        return Statement(INSERT, text)
    return Statement(INSERT, text[: values.start], "Values", takes_data=True)


def _with_format(text: bytes, found: list[SqlToken], at: SqlToken, name: SqlToken) -> Statement:
    _reject_multiple_statements(found)
    check_restrictions(found)
    begins = name.end
    while text[begins : begins + 1] in (b" ", b"\t", b"\f", b";") and begins < len(text):
        begins += 1
    if text[begins : begins + 2] == b"\r\n":
        begins += 2
    elif text[begins : begins + 1] == b"\n":
        begins += 1
    made = Statement(INSERT, text[: at.start], text[name.start : name.end].decode(), data=text[begins:])
    made = _with_input(made, found)
    if _has_select(found) and not made.structure:
        return replace(made, data=b"", text=text)  # a format says nothing about rows that come from a SELECT
    return replace(made, takes_data=True)


def _has_select(found: list[SqlToken]) -> bool:
    return any(token.word in (SELECT, "watch", "infile") and token.kind == "word" for token in found)


def _with_input(made: Statement, found: list[SqlToken]) -> Statement:
    """`input('structure')` becomes the name of a table, which the caller fills before."""
    for at, token in enumerate(found[:-3]):
        follows = found[at + 1 : at + 4]
        if token.word == "input" and follows[0].word == "(" and follows[1].kind == "text" and follows[2].word == ")":
            structure = made.text[follows[1].start : follows[1].end]
            text = made.text[: token.start] + INPUT_TABLE + made.text[follows[2].end :]
            return replace(made, text=text, structure=_unquoted(structure))
    if any(one.word == "input" and two.word == "(" for one, two in pairwise(found)):
        raise query_error(
            ErrorCode.BAD_ARGUMENTS, "input() takes its structure as one text: input('a Int64, b String')"
        )
    return made


def _unquoted(literal: bytes) -> bytes:
    inner = literal[1:-1].replace(b"''", b"'")
    return b"\\".join(part.replace(b"\\", b"") for part in inner.split(b"\\\\"))


def _output_format(text: bytes, found: list[SqlToken]) -> str:
    """What `FORMAT` at the end says, if it is there."""
    at = _format_clause_index(found)
    return text[found[at + 1].start : found[at + 1].end].decode() if at else ""


def _format_clause_index(found: list[SqlToken]) -> int:
    """Where `FORMAT name` ends a statement; 0: nowhere."""
    for at in range(len(found) - 2, 0, -1):
        word, name, after = found[at], found[at + 1], found[at + 2] if at + 2 < len(found) else None
        last = after is None or after.word in (";", "settings", "into")
        if last and word.kind == name.kind == "word" and word.word == "format" and word.depth == 0:
            return at
    return 0


def select_header_only(text: bytes) -> bytes:
    """A SELECT that has the columns of this one, and no row."""
    found = [token for token in tokenize_sql(text) if token.word != ";"]
    at = _format_clause_index(found)
    pieces = (text[: found[at].start], text[found[at + 1].end : found[-1].end]) if at else (text[: found[-1].end], b"")
    return b"SELECT * FROM (%b\n%b\n) LIMIT 0" % pieces


def substitute_processes(text: bytes, instead: bytes) -> bytes:
    """The statement with `instead` where it says `system.processes`."""
    for start, end in reversed(_processes_references(list(tokenize_sql(text)))):
        text = text[:start] + instead + text[end:]
    return text


def _processes_references(found: list[SqlToken]) -> list[tuple[int, int]]:
    return [
        (one.start, three.end)
        for one, two, three in zip(found, found[1:], found[2:], strict=False)
        if one.word == "system" and two.word == "." and three.word == "processes"
    ]


def _reject_multiple_statements(found: list[SqlToken]) -> None:
    for one, two in pairwise(found):
        if one.word == ";" and one.depth == 0 and two.word != ";":
            raise query_error(ErrorCode.SYNTAX_ERROR, "Multi-statements are not allowed")
