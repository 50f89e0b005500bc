"""The words and signs of a statement, with where they stand; what is quoted or commented out is told apart from what is not.

It knows just enough of ClickHouse's grammar to find a clause; whether a statement is right, the engine says. The one rule: what the
engine reads as a word is a word here. It takes typographic quotes for quotes and wide spaces for spaces; here they are refused.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from holdfast.clickhouse.embedded.errors import query_error
from holdfast.clickhouse.error_codes import ErrorCode

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
    """A piece of a statement. `word` is what a bare or quoted name says, in small letters; empty for all else."""

    kind: str
    word: str
    start: int
    end: int
    depth: int


def tokenize_sql(statement: bytes) -> Iterator[SqlToken]:
    """All but space and comments. `depth` counts the parentheses around."""
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
                ErrorCode.SYNTAX_ERROR, f"{text!r} at byte {match.start()} stands in no quotes: names with it need them"
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
