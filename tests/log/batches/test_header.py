"""What a leader may change in a batch, and what that leaves as it was."""

import pytest

from holdfast.log.batches import (
    Record,
    RecordBatchLimits,
    decode,
    encode,
    parse_header,
    patch,
    set_append_time,
    split_batches,
    validate_records,
)
from holdfast.vocabulary.errors import InvalidError

RECORDS = [Record(0, 1_000, b"a", b"b"), Record(1, 900, None, None, (("h", None),))]


def test_a_patched_batch_has_new_offsets_and_its_old_checksum() -> None:
    before = encode(RECORDS, compression="zstd")
    batch = bytearray(before)
    patch(batch, base_offset=2**40, leader_epoch=12)
    header = parse_header(batch)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (2**40, 2**40 + 1, 12)
    assert header.crc == parse_header(before).crc
    assert bytes(batch[8:12] + batch[16:]) == before[8:12] + before[16:]
    split_batches(batch, limits=RecordBatchLimits(), stored=True)
    assert list(decode(batch)) == [record._replace(offset=2**40 + record.offset) for record in RECORDS]


def test_a_patch_lands_in_the_batch_alone() -> None:
    one = encode(RECORDS)
    payload = bytearray(one + one + one)
    patch(memoryview(payload)[len(one) : 2 * len(one)], base_offset=5, leader_epoch=1)
    assert payload[: len(one)] == one == payload[2 * len(one) :]
    with pytest.raises(InvalidError, match="bytes of the batch"):
        patch(payload, base_offset=5, leader_epoch=1)


def test_append_time_is_every_records_time_and_the_checksum_follows() -> None:
    batch = bytearray(encode(RECORDS, compression="lz4"))
    set_append_time(batch, timestamp_ms=5_555)
    (found,) = split_batches(batch, limits=RecordBatchLimits())
    assert found.header.append_time
    assert found.header.compression == "lz4"
    validate_records(found)
    assert [record.timestamp_ms for record in decode(batch)] == [5_555, 5_555]


@pytest.mark.parametrize(("base_offset", "leader_epoch"), [(-1, 0), (2**63, 0), (0, -2), (0, 2**31)])
def test_a_patch_that_does_not_fit_is_refused(base_offset: int, leader_epoch: int) -> None:
    batch = bytearray(encode(RECORDS))
    with pytest.raises(InvalidError):
        patch(batch, base_offset=base_offset, leader_epoch=leader_epoch)
    assert batch == encode(RECORDS)


def test_an_append_time_before_1970_is_refused() -> None:
    with pytest.raises(InvalidError, match="append time"):
        set_append_time(bytearray(encode(RECORDS)), timestamp_ms=-1)


def test_a_header_needs_61_bytes() -> None:
    batch = encode(RECORDS)
    assert parse_header(b"xy" + batch, 2) == parse_header(batch)
    for buffer, at in ((batch[:60], 0), (batch, len(batch) - 60), (batch, -1), (b"", 0)):
        with pytest.raises(InvalidError, match="header"):
            parse_header(buffer, at)


def test_the_properties_read_the_attributes() -> None:
    header = parse_header(encode(RECORDS, compression="snappy", transactional=True, control=True, producer_id=1))
    assert (header.compression, header.is_control, header.is_transactional, header.append_time) == (
        "snappy",
        True,
        True,
        False,
    )
    assert header._replace(attributes=6).compression == "unknown 6"
    assert header.size_bytes == len(encode(RECORDS, compression="snappy"))
