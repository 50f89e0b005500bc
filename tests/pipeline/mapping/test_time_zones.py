"""A time without a zone is in the time zone of its column."""

from typing import Any

import pytest

from holdfast.pipeline.mapping.arrow_columns import coerce_all
from holdfast.pipeline.mapping.coercion import coerce, make_coercion_plan
from holdfast.pipeline.model.column_mapping import Column, Mapping, read_mapping
from holdfast.pipeline.model.records import SourceRecords
from holdfast.vocabulary.errors import InvalidError

BERLIN = "DateTime64(3, 'Europe/Berlin')"


def stored(kind: str, *texts: Any) -> list[str]:
    """What both ways of coercion store, as UTC."""
    plan = make_coercion_plan(Mapping((Column("at", "at", kind),)))
    records = SourceRecords(fields=[{"at": text} for text in texts], topic="t", partition=0, offsets=range(len(texts)))
    column = coerce_all(plan, records).batch.column("at")
    ticks = [coerce(plan, records.at(row)) for row in range(len(texts))]
    found = [value.isoformat() for value in column.to_pylist()]
    assert ticks == [(value,) for value in column.cast("int64").to_pylist()]
    return found


@pytest.mark.parametrize(
    ("kind", "text", "utc"),
    [
        (BERLIN, "2026-01-15T12:00:00", "2026-01-15T11:00:00+00:00"),
        (BERLIN, "2026-07-15 12:00:00.250", "2026-07-15T10:00:00.250000+00:00"),
        (BERLIN, "2026-07-15", "2026-07-14T22:00:00+00:00"),
        (BERLIN, "2026-07-15T12:00:00Z", "2026-07-15T12:00:00+00:00"),
        (BERLIN, "2026-07-15T12:00:00+05:00", "2026-07-15T07:00:00+00:00"),
        (BERLIN, "2026-10-25T02:30:00", "2026-10-25T00:30:00+00:00"),  # occurs twice: the first
        (BERLIN, "2026-03-29T02:30:00", "2026-03-29T01:30:00+00:00"),  # does not occur: an hour later
        (BERLIN, "2060-07-15T12:00:00", "2060-07-15T10:00:00+00:00"),
        (BERLIN, 1_768_478_400, "2026-01-15T12:00:00+00:00"),
        ("DateTime('America/New_York')", "2026-01-15T12:00:00", "2026-01-15T17:00:00+00:00"),
        ("DateTime", "2026-01-15T12:00:00", "2026-01-15T12:00:00+00:00"),
        ("DateTime('UTC')", "2026-01-15T12:00:00", "2026-01-15T12:00:00+00:00"),
    ],
)
def test_a_time_without_a_zone_is_in_that_of_its_column(kind: str, text: Any, utc: str) -> None:
    assert stored(kind, text) == [utc]


def test_times_with_and_without_a_zone_may_be_mixed() -> None:
    assert stored(BERLIN, "2026-07-15T12:00:00", "2026-07-15T12:00:00Z", "2026-10-25T02:30:00") == [
        "2026-07-15T10:00:00+00:00",
        "2026-07-15T12:00:00+00:00",
        "2026-10-25T00:30:00+00:00",
    ]


def test_an_unknown_zone_is_refused_when_the_mapping_is_made() -> None:
    columns = [{"fieldPath": "at", "column": "at", "type": "Array(DateTime('Europe/Berlinn'))"}]
    with pytest.raises(InvalidError, match="must be with a time zone of the IANA database"):
        read_mapping({"columns": columns})
