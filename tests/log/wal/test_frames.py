"""Framing: what was written is what is read, and nothing else passes for it."""

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from tests.support.wal import frame

from holdfast.log.wal.frames import (
    DATA,
    FRAME_BYTES,
    NOTE,
    FileHeader,
    WalFrame,
    checked_bytes,
    decode_file_header,
    decode_head,
    decode_opening,
    encode_file_header,
    encode_head,
    encode_opening,
    generation_mark,
    salt_of,
)
from holdfast.log.wal.settings import WalSettings
from holdfast.vocabulary.errors import InvalidError

U63 = st.integers(0, 2**63 - 1)
U64 = st.integers(0, 2**64 - 1)
U31 = st.integers(0, 2**31 - 1)
HEADERS = st.builds(FileHeader, U63, U64, U63, U63)
FRAMES = st.builds(
    WalFrame,
    topic_id=st.binary(min_size=16, max_size=16),
    partition=U31,
    epoch=U63,
    base_offset=st.integers(0, 2**62),
    count=U31,
    payload=st.lists(
        st.one_of(st.binary(), st.binary().map(bytearray), st.binary().map(lambda data: memoryview(data))), max_size=4
    ),
    kind=st.sampled_from([DATA, NOTE]),
    checksum=st.none(),
    batch_count=st.just(1),
    origin_lsn=st.just(0),
)


@given(header=HEADERS, written=FRAMES, lsn=U63, last_synced=U63)
def test_a_head_says_what_was_put_into_it(header: FileHeader, written: WalFrame, lsn: int, last_synced: int) -> None:
    size = checked_bytes(written, 1 << 20) - FRAME_BYTES
    head = encode_head(header.mark, lsn, last_synced, written, size)
    read = decode_head(memoryview(head), header.mark)
    assert len(head) == FRAME_BYTES
    assert read is not None
    whole = b"".join(written.payload)
    assert read.frame(whole) == written._replace(payload=(whole,), lsn=lsn)
    assert (read.last_synced, read.payload_bytes) == (last_synced, len(whole))
    assert decode_head(head, generation_mark(header.generation)) == read


@given(header=HEADERS, written=FRAMES)
def test_a_checksum_that_is_known_makes_the_same_head(header: FileHeader, written: WalFrame) -> None:
    whole = b"".join(written.payload)
    known = written._replace(checksum=crc32c(whole))
    assert encode_head(header.mark, 7, 6, known, len(whole)) == encode_head(header.mark, 7, 6, written, len(whole))


@given(header=HEADERS, written=FRAMES, bit=st.integers(0, FRAME_BYTES * 8 - 1))
def test_no_bit_of_a_head_can_change_unnoticed(header: FileHeader, written: WalFrame, bit: int) -> None:
    head = bytearray(encode_head(header.mark, 7, 6, written, sum(map(len, written.payload))))
    head[bit // 8] ^= 1 << bit % 8
    assert decode_head(head, header.mark) is None


@given(header=HEADERS, other=HEADERS, written=FRAMES)
def test_a_frame_of_another_use_of_the_file_is_no_frame(
    header: FileHeader, other: FileHeader, written: WalFrame
) -> None:
    head = encode_head(header.mark, 7, 6, written, 0)
    assert (decode_head(head, other.mark) is None) == (header[:2] != other[:2])


@given(header=HEADERS, first_lsn=U63, bit=st.integers(0, 44 * 8 - 1))
def test_file_header_and_opening_round_trip_and_notice_damage(header: FileHeader, first_lsn: int, bit: int) -> None:
    file_header, opening = encode_file_header(header), encode_opening(header, first_lsn, 5)
    assert decode_file_header(file_header) == (header, 1)
    assert decode_opening(opening, header) == first_lsn
    assert decode_opening(opening, header._replace(salt=header.salt ^ 1)) is None
    assert decode_opening(opening, header._replace(generation=header.generation + 1)) is None
    for record in (bytearray(file_header), bytearray(opening)):
        record[bit // 8] ^= 1 << bit % 8
        assert decode_file_header(record) is None
        assert decode_opening(record, header) is None


def test_the_layout_is_the_documented_one() -> None:
    header = FileHeader(3, 0x1122334455667788, 65536, 9)
    head = encode_head(header.mark, 5, 4, WalFrame(bytes(range(16)), 2, 6, 7, 8, (b"payload",)), 7)
    fields = [
        "4846574c 0000000000000003 1122334455667788 01 01 0000 0000000000000005 0000000000000004",
        "000102030405060708090a0b0c0d0e0f 0000000000000006 0000000000000007 00000002 00000008 00000007",
        "f4e36970 00000000 b5a3aa0f",
    ]
    assert head == bytes.fromhex(" ".join(fields))


def test_salts_differ() -> None:
    assert salt_of("a") != salt_of("b")


@pytest.mark.parametrize(
    "wrong",
    [
        frame(1)._replace(topic_id=b"short"),
        frame(1, partition=-1),
        frame(1, partition=2**31),
        frame(1, count=-1),
        frame(-1),
        frame(2**63 - 1),
        frame(1)._replace(epoch=-1),
        frame(1)._replace(kind=3),
        frame(1)._replace(kind=0),
        frame(1)._replace(payload=(memoryview(b"gaps")[::2],)),
        frame(1)._replace(payload=("text",)),  # type: ignore[arg-type]
        frame(1, size=101),
    ],
)
def test_a_frame_that_cannot_be_written_is_refused_before_anything_is(wrong: WalFrame) -> None:
    with pytest.raises(InvalidError):
        checked_bytes(wrong, 100)


@pytest.mark.parametrize(
    "wrong",
    [
        {"file_bytes": 1},
        {"file_bytes": 2 << 30},
        {"files_spare_max": -1},
        {"group_bytes_max": 0},
        {"group_wait_ms": 11},
        {"in_flight_bytes_max": 0},
        {"read_bytes": 1},
    ],
)
def test_settings_have_bounds(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidError):
        WalSettings(**wrong)
