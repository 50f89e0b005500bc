"""A filter's text as tokens, each with its place. Everything is bounded: the text's length here, its depth in the parser.

The one rule: a text that is not a filter is a `FilterError` with the place and what was expected there; nothing else is raised.
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
    """A text that is no filter: where, what stands there, what was expected."""

    def __init__(self, place: SourcePosition, given: str, expected: str) -> None:
        super().__init__("filters.expression", given, expected)
        self.place, self.expected = place, expected
        self.args = (place, given, expected)

    def __str__(self) -> str:
        return f"line {self.place.line}, column {self.place.column}: expected {self.expected}, found {self.given}"


@dataclass(frozen=True, slots=True)
class FilterToken:
    """A word, sign, name, number, text or the end."""

    kind: str
    value: Any
    place: SourcePosition
    raw: str = ""
    """A word as it was written: behind a dot it is a name."""

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
        place = SourcePosition(line, at - begin + 1)
        match = _TOKEN.match(text, at)
        if match is None:
            raise _stray(text[at], place)
        if match.lastgroup != "space":
            found.append(_token(match, place))
        breaks = match[0].count("\n")
        if breaks:
            line, begin = line + breaks, at + match[0].rindex("\n") + 1
        at = match.end()
    return [*found, FilterToken("end", "", SourcePosition(line, at - begin + 1))]


def _stray(character: str, place: SourcePosition) -> FilterError:
    if character in "'\"`":
        return FilterError(place, f"an opening {character}", f"a closing {character}")
    return FilterError(place, repr(character), "a value, field or operator")


def _token(match: re.Match[str], place: SourcePosition) -> FilterToken:
    text = match[0]
    match match.lastgroup:
        case "name" if text.lower() in WORDS:
            return FilterToken("word", text.lower(), place, text)
        case "name":
            return FilterToken("name", text, place, text)
        case "number":
            return FilterToken("number", _number(text, place), place)
        case "text":
            return FilterToken("quoted" if text[0] == "`" else "text", _unescaped(text[1:-1], place), place)
    if text == "!":
        return FilterToken("word", "not", place)
    same = _SAME.get(text, text)
    return FilterToken("word" if same in WORDS else "sign", same, place)


def _number(text: str, place: SourcePosition) -> int | float:
    if len(text) > DIGITS_MAX:
        raise FilterError(place, f"a number of {len(text)} characters", f"at most {DIGITS_MAX}")
    number = int(text) if text.isdigit() else float(text)
    if number == float("inf"):
        raise FilterError(place, text, "a number within range")
    return number


def _unescaped(text: str, place: SourcePosition) -> str:
    def plain(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPES:
            raise FilterError(
                place, f"\\{match[1]}", "one of \\n \\r \\t \\\\ \\' \\\" \\` behind a backslash (\\\\ for a backslash)"
            )
        return _ESCAPES[match[1]]

    return re.sub(r"\\(.)", plain, text, flags=re.DOTALL)
