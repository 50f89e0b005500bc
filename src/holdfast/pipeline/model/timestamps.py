"""Timestamps as ISO 8601 text or epoch numbers, parsed to nanoseconds since 1970 (UTC).

The one rule: the same text or number means the same instant in mappings, filters and samples. A time without a zone is in that of
its column, and UTC where there is none. The magnitude of a number determines its unit, see `epoch_ns`.
"""

import re
from datetime import date, datetime, tzinfo
from decimal import Decimal
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from holdfast.vocabulary.errors import InvalidError

NS_PER_S: Final = 1_000_000_000
S_PER_DAY: Final = 86_400

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_ISO: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[T ](\d\d)(?::(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?)?"
    r"(Z|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)


@lru_cache(maxsize=1_000)
def load_zone(name: str) -> tzinfo:
    """A time zone of the IANA database. `InvalidError`: there is none of this name."""
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):  # not found, a directory, not a relative path
        raise InvalidError("time zone", name, "a name of the IANA database") from None


def parse_date_days(text: str) -> int | None:
    """Days since 1970 of a calendar date, `2026-11-15`; None if the text is not one."""
    if len(text) != 10:
        return None
    found = _ISO.fullmatch(text)
    return None if found is None else _days(found[1], found[2], found[3])


def _days(year: str, month: str, day: str) -> int | None:
    try:
        return date(int(year), int(month), int(day)).toordinal() - _EPOCH_DAY
    except ValueError:
        return None


def parse_iso_ns(text: str, zone: tzinfo | None = None) -> int | None:
    """Nanoseconds since 1970 of an ISO 8601 date or time; None if the text is not one.

    A text without a zone is in `zone`, or UTC. Of a local time that occurs twice the first is meant; one that is skipped is read
    with the offset before the change.
    """
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    days = _days(found[1], found[2], found[3])
    hour, minute, second = int(found[4] or 0), int(found[5] or 0), int(found[6] or 0)
    zone_s = _zone_s(found[8])
    if days is None or zone_s is None or hour > 23 or minute > 59 or second > 59:
        return None
    if zone is not None and found[8] is None:
        zone_s = _local_offset_s(zone, days, hour, minute, second)
    seconds = days * S_PER_DAY + hour * 3600 + minute * 60 + second - zone_s
    return seconds * NS_PER_S + int((found[7] or "").ljust(9, "0"))


def _local_offset_s(zone: tzinfo, days: int, hour: int, minute: int, second: int) -> int:
    day = date.fromordinal(days + _EPOCH_DAY)
    offset = datetime(day.year, day.month, day.day, hour, minute, second, tzinfo=zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def _zone_s(zone: str | None) -> int | None:
    if zone is None or zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[-2:]) if len(zone) > 3 else 0
    if hours > 23 or minutes > 59:
        return None
    seconds = hours * 3600 + minutes * 60
    return -seconds if zone[0] == "-" else seconds


def fraction_digits(text: str) -> int:
    """The number of fractional digits of an ISO time."""
    found = _ISO.fullmatch(text)
    return len(found[7] or "") if found is not None else 0


def epoch_ns(number: int | float) -> int:
    """Nanoseconds since 1970 of a finite number: below 10^11 it counts seconds, below 10^14 ms, below 10^17 µs, else ns.

    Seconds reach the year 5138 that way, beyond the range of a column; milliseconds before March 1973 are taken for seconds.
    """
    size = abs(number)
    ns_each = NS_PER_S if size < 10**11 else 1_000_000 if size < 10**14 else 1_000 if size < 10**17 else 1
    if isinstance(number, int):
        return number * ns_each
    return int(Decimal(repr(number)) * ns_each)  # 1731650000.123 exactly, not the binary fraction just below it
