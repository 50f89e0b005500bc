"""Records survive a batch unchanged, and a batch with a broken record is refused with the record's number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.batches import record_bytes, record_lists, sized, varint, with_fields, with_payload

from holdfast.log.batches import (
    BatchRule,
    CorruptBatchError,
    InvalidBatchError,
    Record,
    RecordBatchLimits,
    decode,
    encode,
    encode_values,
    parse_header,
    set_append_time,
    split_batches,
    validate_records,
)
from holdfast.log.batches.compression import CODECS
from holdfast.log.batches.kernels import NATIVE, PURE, BatchKernel
from holdfast.vocabulary.errors import InvalidError

KERNELS = [PURE] if NATIVE is None else [PURE, NATIVE]


@given(record_lists(), st.sampled_from(CODECS))
def test_what_goes_in_comes_out(records: list[Record], codec: str) -> None:
    encoded = {encode(records, compression=codec, kernel=kernel) for kernel in KERNELS}
    assert len(encoded) == 1
    (payload,) = encoded
    for kernel in KERNELS:
        (batch,) = split_batches(payload, limits=RecordBatchLimits(), kernel=kernel)
        validate_records(batch, kernel=kernel)
        assert list(decode(batch, kernel=kernel)) == records
        assert list(decode(payload, kernel=kernel)) == records


@given(
    st.lists(st.none() | st.binary(max_size=200), min_size=1, max_size=300),
    st.none() | st.binary(max_size=200),
    st.integers(-1, 2**63 - 1),
)
def test_values_of_one_key_and_time_are_the_batch_of_their_records(
    values: list[bytes | None], key: bytes | None, timestamp_ms: int
) -> None:
    records = [Record(number, timestamp_ms, key, value) for number, value in enumerate(values)]
    for kernel in KERNELS:
        assert encode_values(values, timestamp_ms=timestamp_ms, key=key, kernel=kernel) == encode(records)


@given(record_lists(gaps=True), st.integers(0, 2**62), st.integers(0, 1000), st.sampled_from(CODECS))
def test_compaction_may_leave_gaps(records: list[Record], base: int, behind: int, codec: str) -> None:
    moved = [record._replace(offset=record.offset + base) for record in records]
    last = moved[-1].offset + behind
    for kernel in KERNELS:
        batch = encode(moved, base_offset=base, last_offset=last, compression=codec, kernel=kernel)
        assert parse_header(batch).last_offset == last
        validate_records(batch, stored=True, kernel=kernel)
        assert list(decode(batch, kernel=kernel)) == moved


def test_a_gap_is_lawful_in_a_log_and_not_from_a_producer(kernel: BatchKernel) -> None:
    batch = encode([Record(0, 1, b"a", b"b"), Record(2, 1, b"a", b"b")], last_offset=2, kernel=kernel)
    batch = with_fields(batch, last_offset_delta=1)
    with pytest.raises(InvalidBatchError) as caught:
        validate_records(batch, kernel=kernel)
    assert (caught.value.rule, caught.value.fault.record, caught.value.given) == (BatchRule.OFFSET_DELTA, 1, 2)


def test_a_batch_from_which_all_records_went_still_covers_its_offsets(kernel: BatchKernel) -> None:
    batch = encode(
        [], base_offset=10, last_offset=19, compression="zstd", producer_id=3, producer_epoch=1, kernel=kernel
    )
    header = parse_header(batch)
    assert (header.last_offset, header.count, header.size_bytes, header.compression) == (19, 0, 61, "none")
    assert list(decode(batch, kernel=kernel)) == []
    validate_records(batch, stored=True, kernel=kernel)


def test_many_records_are_decoded_in_steps(kernel: BatchKernel) -> None:
    records = [Record(n, n, b"%d" % n, None) for n in range(2_500)]
    batch = encode(records, kernel=kernel)
    assert list(decode(batch, kernel=kernel)) == records
    # The damage is in the last record: the reader gets all chunks before it.
    cut = with_fields(batch[:-1] + b"\x02")
    reader = decode(cut, kernel=kernel)
    assert [next(reader) for _ in range(2_000)] == records[:2_000]
    with pytest.raises(CorruptBatchError) as caught:
        list(reader)
    assert caught.value.fault.record == 2_499


def test_any_buffer_is_a_value(kernel: BatchKernel) -> None:
    text = bytearray(b"0123456789")
    wanted = encode([Record(0, 1, b"0123", b"0123456789", (("h", b"3456"),))], kernel=kernel)
    view = memoryview(text)
    given_buffers = Record(0, 1, view[:4], text, (("h", view[3:7]),))  # type: ignore[arg-type]
    assert encode([given_buffers], kernel=kernel) == wanted
    del given_buffers, view
    text.append(1)  # no buffer is held


@pytest.mark.parametrize(
    ("record", "rule"),
    [
        (Record(4, 0, None, None), BatchRule.OFFSET_DELTA),  # below the base
        (Record(5, 0, None, None), BatchRule.OFFSET_DELTA),  # twice
        (Record(5 + 2**31, 0, None, None), BatchRule.OFFSET_DELTA),
        (Record(6, -2, None, None), BatchRule.RECORD_TIMESTAMP),
    ],
)
def test_records_that_fit_no_batch_are_refused(record: Record, rule: BatchRule, kernel: BatchKernel) -> None:
    with pytest.raises(InvalidBatchError) as caught:
        encode([Record(5, 0, None, None), record], base_offset=5, kernel=kernel)
    assert (caught.value.rule, caught.value.fault.record) == (rule, 1)


def test_records_that_are_no_records_are_refused(kernel: BatchKernel) -> None:
    for wrong in (
        Record("0", 0, None, None),  # type: ignore[arg-type]
        Record(0, 1.5, None, None),  # type: ignore[arg-type]
        Record(0, 0, "text", None),  # type: ignore[arg-type]
        Record(0, 0, None, 7),  # type: ignore[arg-type]
        Record(0, 0, None, None, [("h", b"")]),  # type: ignore[arg-type]
        Record(0, 0, None, None, ((b"h", b""),)),  # type: ignore[arg-type]
        Record(0, 0, None, None, (("h",),)),  # type: ignore[arg-type]
        (0, 0, None, None),
    ):
        with pytest.raises(TypeError):
            encode([wrong], kernel=kernel)  # type: ignore[list-item]
    for wrong in (Record(2**63, 0, None, None), Record(0, 0, None, None, (("\ud800", b""),))):
        with pytest.raises(InvalidError, match="invalid field of a record"):
            encode([wrong], kernel=kernel)
    with pytest.raises(InvalidError, match="number of records"):
        encode([], kernel=kernel)
    with pytest.raises(InvalidError, match="base offset"):
        encode([], base_offset=-1, last_offset=4, kernel=kernel)
    with pytest.raises(InvalidError, match="last offset"):
        encode([Record(0, 0, None, None), Record(1, 0, None, None)], last_offset=0, kernel=kernel)
    with pytest.raises(InvalidError, match="compression"):
        encode([Record(0, 0, None, None)], compression="brotli", kernel=kernel)


LONG = b"\xff" * 4

BROKEN = {
    "long length": (LONG + b"\x10" + bytes(9), BatchRule.VARINT),
    "negative length": (varint(-3) + bytes(9), BatchRule.RECORD_LENGTH),
    "short length": (varint(5) + bytes(9), BatchRule.RECORD_LENGTH),
    "length beyond the batch": (record_bytes(length=90), BatchRule.RECORD_CUT),
    "length beyond the fields": (record_bytes() + b"\0", BatchRule.TRAILING),
    "fields shorter than the length": (record_bytes(length=9) + b"\0", BatchRule.RECORD_LENGTH),
    "long timestamp": (record_bytes(timestamp_delta=b"\xff" * 9 + b"\x02"), BatchRule.VARINT),
    "timestamp beyond 64 bits": (record_bytes(timestamp_delta=varint(2**63 - 1)), BatchRule.RECORD_TIMESTAMP),
    "timestamp above the maximum": (record_bytes(timestamp_delta=varint(1)), BatchRule.RECORD_TIMESTAMP),
    "timestamp below -1": (record_bytes(timestamp_delta=varint(-1_002)), BatchRule.RECORD_TIMESTAMP),
    "wrong offset": (record_bytes(offset_delta=varint(1)), BatchRule.OFFSET_DELTA),
    "negative offset": (record_bytes(offset_delta=varint(-1)), BatchRule.OFFSET_DELTA),
    "key beyond the record": (record_bytes(key=varint(60)), BatchRule.KEY),
    "key length -2": (record_bytes(key=varint(-2)), BatchRule.KEY),
    "value beyond the record": (record_bytes(value=varint(60)), BatchRule.VALUE),
    "value length -2": (record_bytes(value=varint(-(2**31))), BatchRule.VALUE),
    "header count": (record_bytes(headers=varint(1)), BatchRule.HEADERS),
    "negative header count": (record_bytes(headers=varint(-1)), BatchRule.HEADERS),
    "null header key": (record_bytes(headers=varint(1) + varint(-1) + sized(b"v")), BatchRule.HEADER_KEY),
    "header key beyond": (record_bytes(headers=varint(1) + varint(9) + b"v"), BatchRule.HEADER_KEY),
    "header value beyond": (record_bytes(headers=varint(1) + sized(b"k") + varint(9)), BatchRule.HEADER_VALUE),
    "header value length -2": (record_bytes(headers=varint(1) + sized(b"k") + varint(-2)), BatchRule.HEADER_VALUE),
    "headers cut": (record_bytes(headers=varint(1) + sized(b"k") + b"\x80"), BatchRule.RECORD_CUT),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_record_is_found(name: str, kernel: BatchKernel) -> None:
    payload, rule = BROKEN[name]
    with pytest.raises(InvalidBatchError) as caught:
        validate_records(with_payload(payload), kernel=kernel)
    assert caught.value.rule == rule


def test_a_record_whose_length_is_cut_is_found(kernel: BatchKernel) -> None:
    payload = record_bytes(value=sized(bytes(20))) + b"\x80"
    with pytest.raises(InvalidBatchError) as caught:
        validate_records(with_payload(payload, count=2, last_offset_delta=1), kernel=kernel)
    assert (caught.value.rule, caught.value.fault.record) == (BatchRule.RECORD_CUT, 1)


def test_a_record_written_by_hand_is_sound(kernel: BatchKernel) -> None:
    headers = varint(2) + sized(b"k") + sized(None) + sized(b"") + sized(b"v")
    validate_records(with_payload(record_bytes(headers=headers, timestamp_delta=b"\x80\x00")), kernel=kernel)


def test_the_limits_hold_for_a_compressed_batch_too(kernel: BatchKernel) -> None:
    batch = encode([Record(0, 0, None, bytes(100_000))], compression="gzip", kernel=kernel)
    validate_records(batch, kernel=kernel)
    small = RecordBatchLimits(inflated_bytes_max=100_000)
    with pytest.raises(InvalidBatchError) as refused:
        validate_records(batch, limits=small, kernel=kernel)
    assert (refused.value.rule, refused.value.given) == (BatchRule.INFLATED_SIZE, 100_000)
    with pytest.raises(CorruptBatchError):
        list(decode(batch, limits=small, kernel=kernel))
    with pytest.raises(CorruptBatchError) as broken:
        list(decode(with_fields(batch, attributes=4), kernel=kernel))
    assert broken.value.rule == BatchRule.COMPRESSED


def test_a_compressed_batch_cannot_lie_about_its_count(kernel: BatchKernel) -> None:
    batch = encode([Record(0, 0, None, b"v")], compression="lz4", kernel=kernel)
    for count in (2, 500_000):
        liar = with_fields(batch, count=count, last_offset_delta=count - 1)
        split_batches(liar, limits=RecordBatchLimits(), kernel=kernel)  # the header alone cannot tell
        with pytest.raises(InvalidBatchError) as caught:
            validate_records(liar, kernel=kernel)
        assert caught.value.rule == BatchRule.COUNT
        with pytest.raises(CorruptBatchError):
            list(decode(liar, kernel=kernel))


def test_append_time_exempts_the_producers_timestamps_from_validation(kernel: BatchKernel) -> None:
    batch = bytearray(encode([Record(0, 9_000, None, None)], kernel=kernel))
    set_append_time(batch, timestamp_ms=5)
    validate_records(batch, kernel=kernel)


def test_a_buffer_of_two_batches_is_not_a_batch(kernel: BatchKernel) -> None:
    two = encode([Record(0, 0, None, None)]) * 2
    for call in (lambda: list(decode(two, kernel=kernel)), lambda: validate_records(two, kernel=kernel)):
        with pytest.raises(InvalidError, match="number of batches"):
            call()


@pytest.mark.parametrize("kernel", KERNELS)
def test_times_too_far_apart_for_one_batch_are_refused(kernel: BatchKernel) -> None:
    records = [Record(0, -1, None, None), Record(1, 2**63 - 1, None, None)]
    with pytest.raises(InvalidBatchError) as refused:
        encode(records, kernel=kernel)
    assert refused.value.rule is BatchRule.RECORD_TIMESTAMP
    assert decode(encode([Record(0, 2**63 - 1, None, None)], kernel=kernel))
