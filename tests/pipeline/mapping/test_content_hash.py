"""The hash of what a range was mapped to: values count, their layout in memory does not."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.support.sink_values import records_of

from holdfast.pipeline.mapping.content_hash import comparable, digest_of, refused_hash, rows_hash
from holdfast.pipeline.mapping.transform import map_records
from holdfast.pipeline.model.column_mapping import Column, Mapping
from holdfast.pipeline.model.definition import KafkaConfig, ParquetConfig, Revision
from holdfast.pipeline.model.records import DeadLetterRow

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, None, False, True, True, None, False, True, False]),
    "i8": (pa.int8(), [1, 2, None, -4, 5, 6, 7, 8, 9]),
    "u64": (pa.uint64(), [2**64 - 1, 0, 1, 2, 3, 4, 5, 6, 7]),
    "f32": (pa.float32(), [1.5, None, -0.0, 0.0, 2.5, 3.5, 4.5, 5.5, 6.5]),
    "text": (pa.string(), ["", None, "a", "日本", "", "b", "c" * 50, "d", None]),
    "large": (pa.large_string(), ["", None, "a", "日本", "", "b", "c" * 50, "d", None]),
    "bytes": (pa.binary(), [b"", None, b"\x00", b"a", b"b", b"c", b"d", b"e", b"f"]),
    "day": (pa.date32(), [date(2026, 1, day) if day != 3 else None for day in range(1, 10)]),
    "at": (pa.timestamp("ms", "UTC"), [NOON, None, *[NOON] * 7]),
    "dec": (pa.decimal128(20, 2), [Decimal("1.25"), None, *[Decimal("-2.50")] * 7]),
    "big": (pa.decimal256(60, 2), [Decimal("1.25"), None, *[Decimal("-2.50")] * 7]),
    "list": (pa.list_(pa.int64()), [[1, 2], None, [], [None], [3], [4, 5], [6], [], [7]]),
    "lists": (pa.list_(pa.list_(pa.string())), [[["a"], []], None, [None], [], [["b"]], [], [], [["c", None]], []]),
    "map": (pa.map_(pa.string(), pa.float64()), [[("x", 1.5)], None, [], [("y", None)], *[[("z", 2.5)]] * 5]),
    "struct": (pa.struct([("a", pa.int64())]), [{"a": 1}, None, {"a": None}, *[{"a": 2}] * 6]),
    "none": (pa.null(), [None] * 9),
}


def table(values: dict[str, tuple[pa.DataType, list[Any]]] = VALUES) -> pa.Table:
    return pa.table({name: pa.array(data, kind) for name, (kind, data) in values.items()})


def chunked(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows.slice(0, 1), rows.slice(1, 0), rows.slice(1, 5), rows.slice(6)])


def sliced(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows.slice(3, 4), rows, rows.slice(2, 3)]).combine_chunks().slice(4, rows.num_rows)


def through_ipc(rows: pa.Table) -> pa.Table:
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, rows.schema) as out:
        out.write_table(rows, max_chunksize=4)
    return pa.ipc.open_stream(stream.getvalue()).read_all()


def garbage_under_nulls(rows: pa.Table) -> pa.Table:
    """The same validity over other values where they are null."""
    at = rows.schema.get_field_index("i8")
    plain = pa.array([1, 2, 99, -4, 5, 6, 7, 8, 9], pa.int8())
    valid = pa.array([1, 2, None, -4, 5, 6, 7, 8, 9], pa.int8()).buffers()[0]
    return rows.set_column(at, "i8", pa.Array.from_buffers(pa.int8(), 9, [valid, plain.buffers()[1]]))


def with_dictionary(rows: pa.Table) -> pa.Table:
    at = rows.schema.get_field_index("text")
    return rows.set_column(at, "text", rows["text"].dictionary_encode())


@pytest.mark.parametrize("laid_out", [chunked, sliced, through_ipc, garbage_under_nulls, with_dictionary])
def test_the_same_values_have_the_same_hash_however_they_lie_in_memory(
    laid_out: Callable[[pa.Table], pa.Table],
) -> None:
    assert rows_hash(laid_out(table())) == rows_hash(table())


@pytest.mark.parametrize("name", [name for name in VALUES if name != "none"])
def test_one_other_value_in_any_column_makes_another_hash(name: str) -> None:
    kind, values = VALUES[name]
    other = [next(value for value in values if value != values[0]), *values[1:]]
    assert rows_hash(table({**VALUES, name: (kind, other)})) != rows_hash(table())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["ab", "c"], ["a", "bc"]),
        (["", None], [None, ""]),
        (["a", "b"], ["b", "a"]),
    ],
)
def test_where_texts_end_and_which_are_null_and_their_order_count(
    one: list[str | None], other: list[str | None]
) -> None:
    hashes = {rows_hash(pa.table({"x": pa.array(values, pa.string())})) for values in (one, other)}
    assert len(hashes) == 2


def test_the_identity_of_the_range_is_not_part_of_it() -> None:
    def rows(generation: int, offset: int) -> pa.Table:
        return pa.table(
            {"x": [1], "_generation": [generation], "_topic": ["t"], "_partition": [0], "_offset": [offset]}
        )

    assert rows_hash(rows(1, 5)) == rows_hash(rows(2, 5))
    assert rows_hash(rows(1, 5)) != rows_hash(rows(1, 6))


def test_dead_letters_are_their_records_and_not_the_wording_of_the_reason() -> None:
    def letter(offset: int, payload: bytes | None, reason: str) -> DeadLetterRow:
        return DeadLetterRow(offset=offset, key=None, payload=payload, reason=reason)

    one = refused_hash([letter(1, b"x", "not JSON")])
    assert one == refused_hash([letter(1, b"x", "invalid JSON")])
    assert len({one, refused_hash([letter(2, b"x", "")]), refused_hash([letter(1, None, "")]), refused_hash([])}) == 4


def test_mapping_by_batch_and_record_by_record_have_one_hash() -> None:
    values = [b'{"id": %d, "name": "n%d"}' % (number, number) for number in range(50)]
    columns = (Column("id", "id", "Int64"), Column("name", "name", "String", True))
    revision = Revision(
        version=1, source=KafkaConfig(topic="t"), sink=ParquetConfig(url="/x"), mapping=Mapping(columns)
    )
    whole = map_records(revision, 1, records_of(values))
    with_a_bad_one = map_records(revision, 1, records_of([*values, b"bad"]))
    assert rows_hash(whole.rows) == rows_hash(with_a_bad_one.rows)
    assert digest_of(with_a_bad_one.rows, with_a_bad_one.refused).refused == 1


def test_the_form_is_pinned_because_intents_outlive_a_release() -> None:
    found = rows_hash(table())
    assert found == "1:a0378648ef7b9ecb4706c74edc6ddb03"
    assert comparable(found)
    assert comparable("")
    assert not comparable("2:aa")


def test_a_range_without_rows_has_no_hash() -> None:
    assert rows_hash(table().slice(0, 0)) == ""
