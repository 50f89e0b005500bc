"""Expressions of a table's keys and TTL, as users write them.

The one rule: an expression cannot leave its clause. Its brackets and quotes are balanced, it has no comment and no end of a
statement, and it is put in brackets of its own. Whether it is valid is for the server to say (`sinks.clickhouse.expressions`).
"""

import re
from typing import Final

EXPRESSION_CHARS_MAX: Final = 1_000
# Quoted texts and names; whatever begins a comment, a heredoc or ends a statement; quotes that the server knows besides.
_PIECE: Final = re.compile(
    r"'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`|--|/\*|[#;$\"'`‘’“”()\[\]{},]|[^#;$\"'`‘’“”()\[\]{},/-]+|[/-]"
)
_REFUSED: Final = frozenset(("--", "/*", *"#;$\"'`‘’“”{}"))
_CLOSING: Final = {")": "(", "]": "["}


def expression_error(text: str) -> str | None:
    """What an expression must be, if this one is not; None if it stays in its clause."""
    if not text.strip():
        return "an expression"
    if len(text) > EXPRESSION_CHARS_MAX or not text.isprintable():
        return f"at most {EXPRESSION_CHARS_MAX} printable characters"
    opened: list[str] = []
    for piece in _PIECE.findall(text):
        if piece in _REFUSED:
            return "one expression, without comments, heredocs, parameters, semicolons and double quotes"
        if piece in ("(", "["):
            opened.append(piece)
        elif piece in _CLOSING and (not opened or opened.pop() != _CLOSING[piece]):
            return "an expression with balanced brackets"
        elif piece == "," and not opened:
            return "one expression: several are a tuple, (a, b)"
    return "an expression with balanced brackets" if opened else None


def split_expressions(text: str) -> tuple[str, ...]:
    """The parts of a list of expressions as the server prints it: `a, f(b, c)`, with brackets around it or without."""
    text = without_brackets(text)
    parts, depth, start, at = [], 0, 0, 0
    for piece in _PIECE.findall(text):
        depth += (piece in ("(", "[")) - (piece in (")", "]"))
        if piece == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
        at += len(piece)
    return tuple(part for part in (*parts, text[start:].strip()) if part)


def without_brackets(text: str) -> str:
    """Without brackets around the whole of it."""
    text = text.strip()
    while text.startswith("(") and text.endswith(")") and _closed_at(text) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def _closed_at(text: str) -> int:
    """Where the bracket that begins a text is closed; -1: nowhere."""
    depth = at = 0
    for piece in _PIECE.findall(text):
        depth += (piece == "(") - (piece == ")")
        if piece == ")" and depth == 0:
            return at
        at += len(piece)
    return -1
