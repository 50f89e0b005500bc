"""Places in a log as people write them."""

import time  # noqa: TID251 (for its time zone)

import pytest

from holdfast.client.admin.positions import AtOffset, AtTime, Beginning, EndPosition, Position, parse_position
from holdfast.vocabulary.errors import InvalidError

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("beginning", Beginning()),
        ("earliest", Beginning()),
        ("end", EndPosition()),
        ("latest", EndPosition()),
        ("0", AtOffset(0)),
        ("1234567890123", AtOffset(1_234_567_890_123)),
        ("@1234567890123", AtTime(1_234_567_890_123)),
        ("-1h", AtTime(NOW_MS - HOUR_MS)),
        ("1h", AtTime(NOW_MS - HOUR_MS)),
        ("-90s", AtTime(NOW_MS - 90_000)),
        ("-500ms", AtTime(NOW_MS - 500)),
        ("-15m", AtTime(NOW_MS - 900_000)),
        ("-1d12h", AtTime(NOW_MS - 36 * HOUR_MS)),
        ("-1w", AtTime(NOW_MS - 168 * HOUR_MS)),
        ("-99999w", AtTime(0)),
        ("2023-11-14T22:13:20Z", AtTime(NOW_MS)),
        ("2023-11-14T22:13:20.250Z", AtTime(NOW_MS + 250)),
        ("2023-11-14 23:13:20+01:00", AtTime(NOW_MS)),
        ("1969-12-31T00:00:00Z", AtTime(0)),
    ],
)
def test_a_position_is_a_word_an_offset_a_time_or_a_duration(text: str, means: Position) -> None:
    assert parse_position(text, option="--from", now_ms=NOW_MS) == means


def test_a_time_without_a_zone_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as there:
        there.setenv("TZ", "UTC+5")  # POSIX: five hours behind
        time.tzset()
        assert parse_position("2023-11-14T17:13:20", option="--from", now_ms=0) == AtTime(NOW_MS)
    time.tzset()


@pytest.mark.parametrize("text", ["", "tomorrow", "-5", "1x", "-", "1h 5", "2023-13-40", "@", "+10", "1" * 30])
def test_anything_else_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(InvalidError, match="must be earliest, latest, an offset, a time"):
        parse_position(text, option="--from", now_ms=NOW_MS)
