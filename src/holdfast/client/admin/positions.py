"""Positions in a log as text: earliest, an offset, a time, an hour ago. Parsing only; brokers resolve them."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.vocabulary.errors import InvalidError

POSITIONS: Final = """\
positions:
  earliest, latest        the first retained record; after the last record (also: beginning, end)
  1000                    an offset
  2026-03-01T12:00:00Z    the first record at or after that time; local time without a zone
  -1h  -90s  -1d12h       the same, relative to now (ms, s, m, h, d, w)
  @1767225600000          the same, in milliseconds since 1970
"""

_UNITS_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_DURATION: Final = re.compile(r"-?((?:\d{1,12}(?:ms|[smhdw]))+)")
_STEP: Final = re.compile(r"(\d+)(ms|[smhdw])")
_ALLOWED: Final = "earliest, latest, an offset, a time such as 2026-03-01T12:00:00Z, or a duration such as -1h"


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first retained record."""


@dataclass(frozen=True, slots=True)
class EndPosition:
    """After the last record."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    """An offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a timestamp."""

    timestamp_ms: int


Position = Beginning | EndPosition | AtOffset | AtTime


def parse_position(text: str, *, option: str, now_ms: int) -> Position:
    """The position `text` names; durations are relative to `now_ms`."""
    word = text.strip()
    if word in ("beginning", "earliest"):
        return Beginning()
    if word in ("end", "latest"):
        return EndPosition()
    if re.fullmatch(r"\d{1,18}", word):
        return AtOffset(int(word))
    if re.fullmatch(r"@\d{1,15}", word):
        return AtTime(int(word[1:]))
    if found := _DURATION.fullmatch(word):
        ago_ms = sum(int(count) * _UNITS_MS[unit] for count, unit in _STEP.findall(found[1]))
        return AtTime(max(0, now_ms - ago_ms))
    try:
        if not re.match(r"\d{4}-", word):  # other spellings of a date look like an offset
            raise ValueError
        return AtTime(max(0, round(datetime.fromisoformat(word).timestamp() * 1_000)))
    except (ValueError, OverflowError, OSError):
        raise InvalidError(option, text, _ALLOWED) from None
