"""The tokens of a statement, with their positions; quoted text and comments are kept apart from code.

It covers just enough of ClickHouse's grammar to find a clause; the engine validates. The one rule: what the engine reads as a word
is a word here. The engine accepts typographic quotes as quotes and wide spaces as spaces; here they are errors.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from holdfast.clickhouse.embedded.errors import query_error
from holdfast.clickhouse.error_codes import ClickHouseErrorCode

_TOKEN: Final = re.compile(
    rb"""
    (?P<space>\s+|--[^\n]*|\#[!\ ][^\n]*|/\*.*?(?:\*/|$))
  | (?P<text>'(?:[^'\\]|\\.|'')*(?:'|$))
  | (?P<quoted>`(?:[^`\\]|\\.|``)*(?:`|$)|"(?:[^"\\]|\\.|"")*(?:"|$))
  | (?P<heredoc>\$(?P<tag>[A-Za-z0-9_]*)\$.*?\$(?P=tag)\$)
  | (?P<word>[A-Za-z_][A-Za-z0-9_$]*)
  | (?P<number>[0-9][A-Za-z0-9_]*(?:\.[0-9]+)?)
  | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(.)|([`\"'])\2", re.DOTALL)


class SqlToken(NamedTuple):
    """A token. `word` is a bare or quoted name in lower case, or a sign; empty for all else."""

    kind: str
    word: str
    start: int
    end: int
    depth: int


def tokenize_sql(statement: bytes) -> Iterator[SqlToken]:
    """All but whitespace and comments. `depth` counts the enclosing parentheses."""
    depth = 0
    for match in _TOKEN.finditer(statement):
        kind = match.lastgroup or "sign"
        if kind == "tag":
            kind = "heredoc"
        if kind == "space":
            continue
        text = match.group()
        if kind == "sign" and (text == b"$" or not text.isascii()):
            raise query_error(
                ClickHouseErrorCode.SYNTAX_ERROR,
                f"unquoted {text!r} at byte {match.start()}: names with it must be quoted",
            )
        if text in b")]}":
            depth -= 1
        yield SqlToken(kind, _word(kind, text), match.start(), match.end(), depth)
        if text in b"([{":
            depth += 1


def _word(kind: str, text: bytes) -> str:
    if kind == "word":
        return text.decode().lower()
    if kind == "quoted":
        inner = text[1:-1].decode(errors="replace")
        return _ESCAPE.sub(lambda found: found.group(1) or found.group(2), inner).lower()
    return text.decode() if kind == "sign" else ""
