"""Places in a log as people write them: the beginning, an offset, a time, an hour ago. Words in, values out."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.vocabulary.errors import InvalidError

POSITIONS: Final = """\
positions:
  beginning, end          the first record that is still there; after the last one
  1000                    an offset
  2026-03-01T12:00:00Z    the first record of that time or later; without a zone it is local time
  -1h  -90s  -1d12h       the same, so long ago (ms, s, m, h, d, w)
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
_ALLOWED: Final = "beginning, end, an offset, a time such as 2026-03-01T12:00:00Z, or a duration such as -1h"


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first record that is still there."""


@dataclass(frozen=True, slots=True)
class End:
    """After the last record that is there now."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    """A number in the log."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record whose timestamp is not earlier."""

    timestamp_ms: int


Position = Beginning | End | AtOffset | AtTime


def parse_position(text: str, *, option: str, now_ms: int) -> Position:
    """What `text` means, said at `now_ms`."""
    word = text.strip()
    if word in ("beginning", "earliest"):
        return Beginning()
    if word in ("end", "latest"):
        return End()
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
