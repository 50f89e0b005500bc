"""Change events: what each does to the row of its key."""

from base64 import b64encode
from typing import Any

import pytest
from tests.support.change_events import Record, encoded, event, with_schema

from holdfast.pipeline.formats.debezium import Changes
from holdfast.pipeline.formats.decoders import envelope_of, value_decoder
from holdfast.pipeline.model.definition import DebeziumOptions, KafkaConfig

ROW = {"id": 1, "name": "a"}
KEY = encoded({"id": 1})


def read(*records: Record, **options: Any) -> Changes:
    config = KafkaConfig(topic="t", envelope="debezium", debezium=DebeziumOptions(**options))
    envelope = envelope_of(config)
    assert envelope is not None
    keys, payloads = [key for key, _ in records], [value for _, value in records]
    return envelope.read(value_decoder(config).decode(payloads), payloads, keys, range(100, 100 + len(records)))


def one(value: Any, key: bytes | None = KEY, **options: Any) -> Changes:
    return read((key, encoded(value)), **options)


@pytest.mark.parametrize("op", ["c", "u", "r"])
def test_what_is_after_a_change_is_the_row(op: str) -> None:
    found = one(event(op, {"id": 1, "name": "old"}, ROW, lsn=7))
    assert (found.rows, found.deleted, found.versions, found.ops) == ([ROW], [False], [100], [op])
    assert found.sources[0]["lsn"] == 7


def test_what_was_before_a_delete_has_its_key() -> None:
    found = one(event("d", ROW))
    assert (found.rows, found.deleted, found.bad) == ([ROW], [True], [])
    assert one(event("d", None)).rows == [{"id": 1}]  # REPLICA IDENTITY NOTHING: the record's key says which
    with_its_schema = encoded({"schema": {"type": "struct"}, "payload": {"id": 1}})
    assert one(event("d", None), with_its_schema).rows == [{"id": 1}]


def test_a_tombstone_deletes_unless_it_repeats_a_delete() -> None:
    found = read((KEY, encoded(event("d", ROW))), (KEY, None), (encoded({"id": 2}), None))
    assert found.dropped == [1]
    assert found.deleted == [True, True, True]
    assert found.rows[2] == {"id": 2}
    assert found.versions[2] == 102
    assert read((KEY, None), tombstones="ignore").dropped == [0]
    assert read((KEY, None), version="position").dropped == [0]  # it has none
    assert one({"schema": None, "payload": None}).rows == [{"id": 1}]  # as older converters write it


def test_a_tombstone_after_a_delete_without_its_key_deletes() -> None:
    """Of `REPLICA IDENTITY USING INDEX` the row before has the columns of the index, which need not be the key."""
    for before in ({"name": "a"}, {"id": None, "name": "a"}):
        found = read((KEY, encoded(event("d", before))), (KEY, None))
        assert (found.dropped, found.rows[1], found.deleted[1]) == ([], {"id": 1}, True)
    assert read((KEY, encoded(event("d", None))), (KEY, None)).dropped == [1]
    assert read((b"7", encoded(event("d", ROW))), (b"7", None)).dropped == [1]


def test_events_with_their_schema_say_what_values_mean() -> None:
    row = {"id": 1, "name": "a", "at": 1_500_000, "day": 20_000, "price": "BOI="}
    meant = {"id": 1, "name": "a", "at": "1970-01-01T00:00:01.500000", "day": "2024-10-04", "price": "12.50"}
    found = read(
        (KEY, encoded(with_schema(event("u", row, row)))),
        (KEY, encoded(with_schema(event("d", {**row, "at": None})))),
        (KEY, encoded(event("c", None, row))),
    )
    assert found.rows == [meant, {**meant, "at": None}, row]
    broken = [{**row, "day": 2**40}, {**row, "price": "?"}, {**row, "at": "x"}]
    found = read(*((KEY, encoded(with_schema(event("c", None, each)))) for each in (row, *broken, row)))
    assert [number for number, _ in found.bad] == [1, 2, 3]
    assert (found.rows[0], found.rows[4]) == (meant, meant)


def decimals(scale: Any) -> dict[str, Any]:
    price = {"field": "price", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": scale}}
    return {"fields": [{"field": "after", "fields": [price]}]}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"fields": 5}, "fields of its schema"),
        ({"fields": ["after"]}, "fields of its schema"),
        ({"fields": [{"field": "after", "fields": {"a": 1}}]}, "fields of its schema"),
        ({"fields": [{"field": "after", "fields": [None]}]}, "fields of its schema"),
        (decimals("x"), "invalid scale"),
        (decimals([2]), "invalid scale"),
        (decimals("-999999999"), "invalid scale -999999999"),
        (decimals(2**31), "invalid scale 2147483648"),
    ],
)
def test_an_event_with_a_broken_schema_is_rejected_alone(schema: Any, says: str) -> None:
    broken = {"schema": schema, "payload": event("c", None, {"id": 2, "price": "BOI="})}
    found = read((KEY, encoded(event("c", None, ROW))), (KEY, encoded(broken)), (KEY, encoded(event("c", None, ROW))))
    ((number, reason),) = found.bad
    assert number == 1
    assert says in reason
    assert (found.rows[0], found.rows[2]) == (ROW, ROW)


def test_a_decimal_of_thousands_of_digits_is_rejected_alone() -> None:
    long = {"schema": decimals("2"), "payload": event("c", None, {"price": b64encode(b"\x7f" * 2_000).decode()})}
    ((number, reason),) = read((KEY, encoded(event("c", None, ROW))), (KEY, encoded(long))).bad
    assert (number, reason) == (1, "a decimal of 2000 bytes: at most 1000 are read")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"id": 1}, "it has no op"),
        ([1], "it has no op"),
        (event("x", ROW, ROW), "unknown op 'x'"),
        (event("t"), "truncation"),
        (event("m"), "message"),
        (event("u", ROW, None), "without a row after"),
        (event("d", [1]), "without a row before"),
    ],
)
def test_what_is_no_change_of_a_row_is_rejected(value: Any, says: str) -> None:
    ((_, reason),) = one(value).bad
    assert says in reason


def test_a_key_with_its_schema_says_what_values_mean() -> None:
    day = {"type": "int32", "field": "day", "name": "io.debezium.time.Date"}
    fields = {"type": "struct", "fields": [{"type": "int64", "field": "id"}, day]}

    def key(value: Any) -> bytes | None:
        return encoded({"schema": fields, "payload": {"id": 1, "day": value}})

    meant = {"id": 1, "day": "2024-10-04"}  # as a row of the table has it
    assert read((key(20_000), None), (key(20_000), encoded(event("d", None)))).rows == [meant, meant]
    ((number, reason),) = read((key(20_000), None), (key("x"), None)).bad
    assert number == 1
    assert "not a date" in reason


def test_a_delete_without_a_row_and_a_key_is_rejected() -> None:
    for key in (None, b"7", b"{"):
        ((_, reason),) = read((key, None)).bad
        assert reason.startswith("a delete without a row, and ")
    found = read((KEY, b"{"), (KEY, encoded(event("c", None, ROW))))
    assert [number for number, _ in found.bad] == [0]
    assert found.rows[1] == ROW


@pytest.mark.parametrize(
    ("source", "version"),
    [
        ({"lsn": 5_000_000_000}, 5_000_000_000),
        ({"file": "mysql-bin.000003", "pos": 154}, 3 << 32 | 154),
        ({"lsn": None}, None),
        ({"lsn": -1}, None),
        ({"file": "x", "pos": 1}, None),
        ({"change_lsn": "00:01"}, None),
    ],
)
def test_a_position_in_the_databases_log_as_version(source: dict[str, Any], version: int | None) -> None:
    found = one(event("c", None, ROW, **source), version="position")
    assert found.versions == [version] if version is not None else "lsn, or file and pos" in found.bad[0][1]


def test_the_databases_time_as_version() -> None:
    earlier = one(event("c", None, ROW, ts_ms=1_700_000_000_000), version="ts").versions[0]
    same = read(*[(KEY, encoded(event("c", None, ROW, ts_ms=1_700_000_000_001)))] * 2, version="ts").versions
    assert earlier < same[0] < same[1]
    assert "ts_ms" in one(event("c", None, ROW), version="ts").bad[0][1]
