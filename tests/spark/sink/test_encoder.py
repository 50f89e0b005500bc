"""Rows become batches that hold them in order, by partition, within the limits of their topic."""

from collections import defaultdict

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.log.batches import RecordBatchLimits, decode, split_batches, validate_records
from holdfast.spark.sink.encoder import BatchEncoder, SinkTopic
from holdfast.spark.sink.rows import check_columns, read_rows
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.hashing import kafka_partition

TOPIC = SinkTopic("t", "0" * 32, 5, 4_096, False)
NOW_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ROWS = st.lists(
    st.tuples(st.none() | st.binary(max_size=12), st.none() | st.binary(max_size=1_500), st.integers(0, 2)), max_size=80
)


@given(batches=st.lists(ROWS, max_size=4), compression=st.sampled_from(["none", "lz4", "zstd", "gzip", "snappy"]))
def test_batches_hold_the_rows_of_their_partition_in_order(
    batches: list[list[tuple[bytes | None, bytes | None, int]]], compression: str
) -> None:
    encoder = BatchEncoder(compression=compression, batch_bytes=2_048, spread=3)
    expected = defaultdict(list)
    spread = 3
    for rows in batches:
        headers = [[{"key": f"h{at}", "value": b"x"} for at in range(count)] for _, _, count in rows]
        batch = pa.record_batch(
            {
                "key": pa.array([key for key, _, _ in rows], pa.binary()),
                "value": pa.array([value for _, value, _ in rows], pa.binary()),
                "headers": pa.array(headers, HEADERS),
            }
        )
        encoder.add(TOPIC, read_rows(batch, now_ms=NOW_MS))
        for key, value, count in rows:
            number = spread % 5 if key is None else kafka_partition(key, 5)
            expected[number].append((key, value, tuple((f"h{at}", b"x") for at in range(count))))
        spread += 1
    found = {}
    for (_, number), encoded in encoder.take().items():
        for batch_bytes, count in zip(encoded.batches, encoded.counts, strict=True):
            (judged,) = split_batches(batch_bytes, limits=RecordBatchLimits(batch_bytes_max=TOPIC.batch_bytes_max))
            validate_records(judged)
            assert judged.header.count == count
        records = [record for each in encoded.batches for record in decode(each)]
        found[number] = [(record.key, record.value, record.headers) for record in records]
        assert {record.timestamp_ms for record in records} == {NOW_MS}
    assert found == dict(expected)
    assert encoder.take() == {}
    assert encoder.size_bytes == 0


def test_a_record_that_the_topic_would_refuse_is_refused_before_anything_is_planned() -> None:
    encoder = BatchEncoder(compression="none", batch_bytes=2_048, spread=0)
    rows = read_rows(pa.record_batch({"value": pa.array([b"x" * 4_096])}), now_ms=NOW_MS)
    with pytest.raises(InvalidError, match="size of a record for t"):
        encoder.add(TOPIC, rows)


def test_the_largest_accepted_record_makes_a_batch_that_fits() -> None:
    for size in range(3_850, 3_935):
        encoder = BatchEncoder(compression="none", batch_bytes=2_048, spread=0)
        rows = read_rows(pa.record_batch({"value": pa.array([b"x" * size])}), now_ms=NOW_MS)
        try:
            encoder.add(TOPIC, rows)
        except InvalidError:
            break
        ((encoded),) = encoder.take().values()
        assert len(encoded.batches[0]) <= TOPIC.batch_bytes_max
    else:
        pytest.fail("nothing was refused")


def test_a_compacted_topic_takes_no_row_without_a_key() -> None:
    compacted = SinkTopic("t", "0" * 32, 5, 4_096, True)
    encoder = BatchEncoder(compression="none", batch_bytes=2_048, spread=0)
    rows = read_rows(pa.record_batch({"key": pa.array([b"a", None]), "value": pa.array([b"", b""])}), now_ms=NOW_MS)
    with pytest.raises(InvalidError, match="compacted"):
        encoder.add(compacted, rows)


def test_times_are_floored_to_milliseconds_and_default_to_now() -> None:
    times = pa.array([1_700_000_000_123_999, None], pa.timestamp("us", "UTC"))
    rows = read_rows(pa.record_batch({"value": pa.array([b"", b""]), "timestamp": times}), now_ms=NOW_MS)
    assert rows.times_ms.tolist() == [1_700_000_000_123, NOW_MS]


def test_times_before_1970_are_refused() -> None:
    times = pa.array([-1], pa.timestamp("us", "UTC"))
    with pytest.raises(InvalidError, match="1970"):
        read_rows(pa.record_batch({"value": pa.array([b""]), "timestamp": times}), now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("columns", "topic", "message"),
    [
        ({"key": pa.binary()}, "t", "includes value"),
        ({"value": pa.binary(), "valu": pa.binary()}, "t", "distinct and among key, value"),
        ({"value": pa.binary()}, "", "option topic"),
        ({"value": pa.binary(), "headers": pa.string()}, "t", "array<struct<key: string, value: binary>>"),
        ({"value": pa.binary(), "partition": pa.string()}, "t", "type of column partition"),
        ({"value": pa.binary(), "timestamp": pa.int64()}, "t", "type of column timestamp"),
        ({"value": pa.binary(), "topic": pa.int64()}, "t", "type of column topic"),
        ({"value": pa.time64("us")}, "t", "type of column value"),
    ],
)
def test_columns_that_do_not_make_records_are_refused(
    columns: dict[str, pa.DataType], topic: str, message: str
) -> None:
    with pytest.raises(InvalidError, match=message):
        check_columns(pa.schema(list(columns.items())), topic=topic)


def test_a_header_without_a_key_is_refused() -> None:
    headers = pa.array([[{"key": None, "value": b"x"}]], HEADERS)
    with pytest.raises(InvalidError, match="key is not null"):
        read_rows(pa.record_batch({"value": pa.array([b""]), "headers": headers}), now_ms=NOW_MS)
