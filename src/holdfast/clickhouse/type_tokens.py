"""The tokens of a type's text: names, numbers, quoted texts and punctuation.

The one rule: a token is taken as ClickHouse writes it; what a pair of quotes holds is read by `unquote`.
"""

import re
from typing import Final

_TOKEN: Final = re.compile(
    r"\s*([A-Za-z_][A-Za-z0-9_]*|-?\d{1,9}|'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)+`|[(),=])", re.DOTALL
)
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "b": "\b", "f": "\f"}
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def tokens_of(text: str) -> list[str] | None:
    """The tokens; None: the text has something else in it."""
    tokens, at, end = [], 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            return None
        tokens.append(found[1])
        at = found.end()
    return tokens


def is_number(token: str) -> bool:
    """Whether it is a whole number."""
    return token.lstrip("-").isdigit()


def is_plain_name(text: str) -> bool:
    """Whether a name needs no quotes."""
    return _PLAIN_NAME.fullmatch(text) is not None


def unquote(token: str) -> str:
    """The text within the quotes of a token."""
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), token[1:-1])
