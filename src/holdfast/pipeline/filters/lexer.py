"""The tokens of a filter, each with its position. The length of the text is bounded here, its depth in the parser.

The one rule: invalid text is a `FilterError` with the position and what was expected there; nothing else is raised.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

from holdfast.pipeline.filters.syntax_tree import WORDS, SourcePosition
from holdfast.vocabulary.errors import InvalidError

TEXT_MAX: Final = 10_000
DIGITS_MAX: Final = 40

_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"', "`": "`"}
_TOKEN: Final = re.compile(
    r"(?P<space>[ \t\r\n]+|\#[^\n]*)"
    r"|(?P<number>(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`(?:[^`\\]|\\.)*`)"
    r"|(?P<sign>&&|\|\||==|!=|<>|<=|>=|[=<>!+\-*/%(),.\[\]])",
    re.DOTALL | re.ASCII,
)
_SAME: Final = {"&&": "and", "||": "or", "==": "=", "<>": "!="}


class FilterError(InvalidError):
    """The filter does not parse: position, what was found, what was expected."""

    def __init__(self, position: SourcePosition, given: str, expected: str) -> None:
        super().__init__("filters.expression", given, expected)
        self.position, self.expected = position, expected
        self.args = (position, given, expected)

    def __str__(self) -> str:
        return f"line {self.position.line}, column {self.position.column}: expected {self.expected}, found {self.given}"


@dataclass(frozen=True, slots=True)
class FilterToken:
    """A word, sign, name, number, text or the end."""

    kind: str
    value: Any
    position: SourcePosition
    raw: str = ""
    """A keyword as it was written: after a dot it is a name."""

    def __str__(self) -> str:
        return (
            "the end"
            if self.kind == "end"
            else f"{self.value!r}"
            if self.kind in ("text", "name", "quoted")
            else str(self.value)
        )


def tokens(text: str) -> list[FilterToken]:
    """The tokens of a filter, the end among them."""
    if len(text) > TEXT_MAX:
        raise FilterError(SourcePosition(), f"{len(text)} characters", f"at most {TEXT_MAX}")
    found, at, line, begin = [], 0, 1, 0
    while at < len(text):
        position = SourcePosition(line, at - begin + 1)
        match = _TOKEN.match(text, at)
        if match is None:
            raise _stray(text[at], position)
        if match.lastgroup != "space":
            found.append(_token(match, position))
        breaks = match[0].count("\n")
        if breaks:
            line, begin = line + breaks, at + match[0].rindex("\n") + 1
        at = match.end()
    return [*found, FilterToken("end", "", SourcePosition(line, at - begin + 1))]


def _stray(character: str, position: SourcePosition) -> FilterError:
    if character in "'\"`":
        return FilterError(position, f"an opening {character}", f"a closing {character}")
    return FilterError(position, repr(character), "a value, field or operator")


def _token(match: re.Match[str], position: SourcePosition) -> FilterToken:
    text = match[0]
    match match.lastgroup:
        case "name" if text.lower() in WORDS:
            return FilterToken("word", text.lower(), position, text)
        case "name":
            return FilterToken("name", text, position, text)
        case "number":
            return FilterToken("number", _number(text, position), position)
        case "text":
            return FilterToken("quoted" if text[0] == "`" else "text", _unescaped(text[1:-1], position), position)
    if text == "!":
        return FilterToken("word", "not", position)
    same = _SAME.get(text, text)
    return FilterToken("word" if same in WORDS else "sign", same, position)


def _number(text: str, position: SourcePosition) -> int | float:
    if len(text) > DIGITS_MAX:
        raise FilterError(position, f"a number of {len(text)} characters", f"at most {DIGITS_MAX}")
    number = int(text) if text.isdigit() else float(text)
    if number == float("inf"):
        raise FilterError(position, text, "a number within range")
    return number


def _unescaped(text: str, position: SourcePosition) -> str:
    def plain(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPES:
            raise FilterError(
                position,
                f"\\{match[1]}",
                "one of \\n \\r \\t \\\\ \\' \\\" \\` after a backslash (\\\\ for a backslash)",
            )
        return _ESCAPES[match[1]]

    return re.sub(r"\\(.)", plain, text, flags=re.DOTALL)
