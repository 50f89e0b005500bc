"""Arrow columns hold exactly the records, share their bytes, and survive what Kafka allows and Arrow does not."""

import gc
import weakref

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.batches import record_bytes, record_lists, sized, varint, with_fields, with_payload

from holdfast.log.batches import (
    BatchRule,
    Buffer,
    CorruptBatchError,
    Record,
    RecordBatchLimits,
    decode,
    encode,
    set_append_time,
    to_arrow,
)
from holdfast.log.batches.compression import CODECS
from holdfast.log.batches.kernels import NATIVE, PURE, BatchKernel

KERNELS = [PURE] if NATIVE is None else [PURE, NATIVE]
LONG = b"a value that is longer than a view can hold inside"


def rows_of(table: pa.RecordBatch) -> list[Record]:
    return [
        Record(
            row["offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in table.to_pylist()
    ]


@given(st.lists(st.tuples(record_lists(gaps=True, size_max=6), st.sampled_from(CODECS)), max_size=5), st.booleans())
def test_columns_hold_the_records_of_all_batches(given_batches: list[tuple[list[Record], str]], joined: bool) -> None:
    batches = [encode(records, compression=codec) for records, codec in given_batches]
    wanted = [record for batch in batches for record in decode(batch)]
    tables = []
    for kernel in KERNELS:
        table = to_arrow([b"".join(batches)] if joined else batches, include_headers=True, kernel=kernel)
        table.validate(full=True)
        assert rows_of(table) == wanted
        plain = to_arrow(batches, include_headers=True, views=False, kernel=kernel)
        plain.validate(full=True)
        assert rows_of(plain) == wanted
        tables.append(table)
    assert all(table.equals(tables[0]) for table in tables)


def test_the_schema_is_what_it_says(kernel: BatchKernel) -> None:
    batch = encode([Record(0, 1, b"k", b"v", (("h", b"w"),))])
    fields = {
        "offset": pa.int64(),
        "timestamp": pa.int64(),
        "timestamp_type": pa.int8(),
        "key": pa.binary_view(),
        "value": pa.binary_view(),
    }
    pair = pa.struct([pa.field("key", pa.string_view(), nullable=False), pa.field("value", pa.binary_view())])
    assert to_arrow([batch], include_headers=False, kernel=kernel).schema == pa.schema(fields)
    assert to_arrow([batch], include_headers=True, kernel=kernel).schema == pa.schema(
        {**fields, "headers": pa.list_(pair)}
    )
    plain = to_arrow([batch], include_headers=True, views=False, kernel=kernel).schema
    assert (plain.field("key").type, plain.field("value").type) == (pa.binary(), pa.binary())
    pair = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    assert plain.field("headers").type == pa.list_(pair)


@pytest.mark.parametrize("include_headers", [True, False])
def test_no_batch_is_no_row(include_headers: bool, kernel: BatchKernel) -> None:
    control = encode([Record(3, 1, b"\0\0\0\1", b"\0")], base_offset=3, control=True, transactional=True, producer_id=1)
    emptied = encode([], base_offset=4, last_offset=9)
    for buffers in ([], [b""], [control], [emptied, control + emptied]):
        table = to_arrow(buffers, include_headers=include_headers, kernel=kernel)
        table.validate(full=True)
        assert table.num_rows == 0
    after = encode([Record(10, 1, None, LONG)], base_offset=10)
    table = to_arrow([control + emptied + after], include_headers=include_headers, kernel=kernel)
    assert table.column("offset").to_pylist() == [10]
    assert table.column("value").to_pylist() == [LONG]


def test_the_time_is_the_logs_where_the_log_gave_it(kernel: BatchKernel) -> None:
    produced = encode([Record(0, 77, None, None), Record(1, 78, None, None)])
    appended = bytearray(produced)
    set_append_time(appended, timestamp_ms=99)
    table = to_arrow([appended, produced], include_headers=False, kernel=kernel)
    assert table.column("timestamp").to_pylist() == [99, 99, 77, 78]
    assert table.column("timestamp_type").to_pylist() == [1, 1, 0, 0]


class Tracked(bytearray):
    """A bytearray that can be watched."""


@pytest.mark.slow
def test_values_are_not_copied_and_keep_their_buffer_alive(kernel: BatchKernel) -> None:
    buffer = Tracked(encode([Record(0, 1, None, LONG)]))
    watched = weakref.ref(buffer)
    table = to_arrow([buffer], include_headers=True, kernel=kernel)
    buffer[buffer.index(LONG)] = ord("X")
    del buffer
    gc.collect()
    assert table.column("value")[0].as_py() == b"X" + LONG[1:]
    assert watched() is not None
    del table
    gc.collect()
    assert watched() is None


def test_headers_grow_beyond_every_guess(kernel: BatchKernel) -> None:
    def headers(n: int) -> tuple[tuple[str, bytes | None], ...]:
        return tuple((f"{n}-{i}", None if i % 3 == 0 else LONG[: i % 40]) for i in range(n % 50))

    for first in (0, 49):  # the guess looks at the first record
        records = [Record(n, n, None, None, headers(n + first)) for n in range(300)]
        table = to_arrow([encode(records)], include_headers=True, kernel=kernel)
        table.validate(full=True)
        assert rows_of(table) == records


def test_header_keys_that_are_no_text_are_mended(kernel: BatchKernel) -> None:
    broken = [
        b"\xff",
        b"ok\xc3",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xc0\xaf",
        b"\xe0\x80\x80",
        b"a long key \xfe\xfe",
    ]
    sound = ["é", "key", "\U0010ffff", "日本語のとても長い鍵", "\x00"]
    keys = broken + [key.encode() for key in sound] + broken
    headers = varint(len(keys)) + b"".join(sized(key) + sized(b"v") for key in keys)
    batch = with_payload(record_bytes(headers=headers))
    table = to_arrow([batch, batch], include_headers=True, kernel=kernel)
    table.validate(full=True)
    wanted = [key.decode("utf-8", "replace") for key in keys]
    assert [[h["key"] for h in row] for row in table.column("headers").to_pylist()] == [wanted, wanted]
    (record,) = decode(batch, kernel=kernel)
    assert [key for key, _ in record.headers] == wanted


def test_damage_is_said_with_its_place_over_all_buffers(kernel: BatchKernel) -> None:
    sound = encode([Record(n, n, b"k", LONG) for n in range(5)])
    cases: list[tuple[bytes, BatchRule, int]] = [
        (sound[:-1], BatchRule.CUT, -1),
        (with_fields(sound, magic=1), BatchRule.MAGIC, -1),
        (with_payload(record_bytes(key=varint(60))), BatchRule.KEY, 0),
        (with_payload(record_bytes() + b"\0"), BatchRule.TRAILING, 1),
        (with_fields(encode([Record(0, 0, None, LONG)], compression="lz4"), attributes=4), BatchRule.COMPRESSED, -1),
        (
            with_fields(encode([Record(0, 0, None, LONG)], compression="lz4"), count=99, last_offset_delta=98),
            BatchRule.COUNT,
            -1,
        ),
    ]
    for broken, rule, record in cases:
        for include_headers in (True, False):
            with pytest.raises(CorruptBatchError) as caught:
                to_arrow([sound + sound, sound + broken], include_headers=include_headers, kernel=kernel)
            fault = caught.value.fault
            assert (fault.rule, fault.at, fault.record) == (rule, 3 * len(sound), record)


def test_a_bomb_is_refused(kernel: BatchKernel) -> None:
    bomb = encode([Record(0, 0, None, bytes(1_000_000))], compression="zstd")
    with pytest.raises(CorruptBatchError) as caught:
        to_arrow([bomb], include_headers=False, limits=RecordBatchLimits(inflated_bytes_max=65_536), kernel=kernel)
    assert caught.value.rule == BatchRule.INFLATED_SIZE


def test_large_input_is_decoded_with_the_interpreter_free(kernel: BatchKernel) -> None:
    # Above 64 KiB the native kernel lets go of the GIL; broken keys make it take it back in the middle.
    headers = varint(1) + sized(b"broken key \xff, more than twelve bytes") + sized(None)
    one = record_bytes(value=sized(LONG * 10), headers=headers)
    batch = with_payload(one)
    table = to_arrow([batch] * 300, include_headers=True, kernel=kernel)
    table.validate(full=True)
    assert table.column("value").to_pylist() == [LONG * 10] * 300
    assert table.column("headers")[299].as_py() == [{"key": "broken key \ufffd, more than twelve bytes", "value": None}]


def test_any_buffer_will_do(kernel: BatchKernel) -> None:
    batch = encode([Record(0, 1, b"k", LONG)])
    buffers: list[Buffer] = [batch, bytearray(batch), memoryview(bytearray(b"xx" + batch + b"yy"))[2:-2]]
    assert to_arrow(buffers, include_headers=False, kernel=kernel).column("value").to_pylist() == [LONG] * 3
