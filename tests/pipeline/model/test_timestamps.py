"""One text, one instant."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.pipeline.model.timestamps import (
    NS_PER_S,
    S_PER_DAY,
    epoch_ns,
    fraction_digits,
    parse_date_days,
    parse_iso_ns,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@settings(deadline=None)
@given(st.datetimes(timezones=ZONES))
def test_every_time_python_writes_is_read(when: datetime) -> None:
    assert parse_iso_ns(when.isoformat()) == (when - EPOCH) // timedelta(microseconds=1) * 1000


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1970-01-01", 0),
        ("1970-01-02T00:00:00Z", S_PER_DAY * NS_PER_S),
        ("1970-01-01 00:00:01.5", 1_500_000_000),
        ("1970-01-01T00:00:00.123456789Z", 123_456_789),
        ("1970-01-01T02:00:00+0200", 0),
        ("1970-01-01T02:00+02", 0),
        ("1969-12-31T23:59:59.9Z", -100_000_000),
        ("1970-01-01T00:00:00,25Z", 250_000_000),
    ],
)
def test_the_usual_spellings(text: str, ns: int) -> None:
    assert parse_iso_ns(text) == ns


@pytest.mark.parametrize(
    "text",
    ["", "1970", "1970-1-1", "2024-02-30", "2024-01-01T24:00:00", "2024-01-01T10:11:60", " 2024-01-01", "2024-01-01T00:00:00+24:00",
     "0000-01-01", "٢٠٢٤-01-01", "2024-01-01Z", "2024-01-01T00:00:00.1234567890"],
)  # fmt: skip
def test_what_is_no_time_is_none(text: str) -> None:
    assert parse_iso_ns(text) is None


@settings(deadline=None)
@given(st.text(max_size=40))
def test_no_text_breaks_the_reader(text: str) -> None:
    parse_iso_ns(text), parse_date_days(text), fraction_digits(text)


@settings(deadline=None)
@given(st.dates())
def test_a_date_is_days_and_also_midnight(day: object) -> None:
    days = parse_date_days(str(day))
    assert days is not None
    assert parse_iso_ns(str(day)) == days * S_PER_DAY * NS_PER_S


@pytest.mark.parametrize(
    ("number", "ns"),
    [
        (0, 0),
        (1_700_000_000, 1_700_000_000 * NS_PER_S),
        (1_700_000_000_123, 1_700_000_000_123 * 10**6),
        (1_700_000_000_123_456, 1_700_000_000_123_456 * 1000),
        (1_700_000_000_123_456_789, 1_700_000_000_123_456_789),
        (-1, -NS_PER_S),
        (1731650000.123, 1_731_650_000_123_000_000),
        (0.5, 500_000_000),
    ],
)
def test_the_magnitude_of_a_number_determines_its_unit(number: float, ns: int) -> None:
    assert epoch_ns(number) == ns
