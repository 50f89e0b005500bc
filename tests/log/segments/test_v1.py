"""STRM v1: the golden bytes, round trips, and what is lost on the way out."""

import hashlib
from contextlib import suppress
from pathlib import Path
from struct import pack
from zlib import crc32

import lz4.block
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.segments import NOW_MS

from holdfast.log.batches import Record
from holdfast.log.segments.v1 import ExportLosses, HeaderV1, export_v1, header_v1, import_v1, is_v1
from holdfast.vocabulary.errors import CorruptError, InvalidError

GOLDEN = Path(__file__).parent / "golden" / "v1.strm"
ONE = [Record(100, 1234567890, b"key1", b"value1")]

plain_records = st.lists(
    st.builds(
        Record,
        offset=st.integers(1, 50),
        timestamp_ms=st.integers(0, 2**45),
        key=st.none() | st.binary(min_size=1, max_size=20),
        value=st.binary(max_size=200),
        headers=st.just(()),
    ),
    min_size=1,
    max_size=30,
).map(lambda found: [r._replace(offset=sum(q.offset for q in found[: n + 1])) for n, r in enumerate(found)])


def test_the_golden_file_is_written_and_read() -> None:
    data = GOLDEN.read_bytes()
    assert len(data) == 138
    assert data[-24:-20].hex() == "b79bf257"
    assert hashlib.sha256(data).hexdigest().startswith("329957a82b403e8d")
    assert export_v1(ONE).data == data
    assert import_v1(data) == ONE
    assert header_v1(data) == HeaderV1("none", 100, 100, 1, 1)


@settings(deadline=None)
@given(plain_records, st.sampled_from(("none", "lz4", "zstd")), st.sampled_from((1, 200, 1 << 20)))
def test_plain_records_come_back(records: list[Record], compression: str, block_bytes: int) -> None:
    exported = export_v1(records, compression=compression, block_bytes=block_bytes)
    assert exported.losses == ExportLosses()
    assert import_v1(exported.data) == records
    assert header_v1(exported.data).record_count == len(records)


def by_hand(compression: int, *blocks: bytes) -> bytes:
    """Two records of offsets 5 and 6, a block each, as the format's description has them."""
    plain = [b"\0\0\0\1a", b"\0\0\1k\1b"]
    data = b"STRM" + pack(">HHQQII", 1, compression, 5, 6, 2, 2) + bytes(32)
    positions = [len(data), len(data) + len(blocks[0])]
    assert [len(block) for block in plain] == [5, 6]
    data += b"".join(blocks)
    index = pack(">I", 2) + pack(">QQQ", 5, positions[0], 1000) + pack(">QQQ", 6, positions[1], 2000)
    index_at = len(data)
    data += index
    return data + pack(">QI4s16s", index_at, crc32(data), b"STRM", b"")


@pytest.mark.parametrize("codec", [0, 1, 2])
def test_files_made_by_others_are_read(codec: int) -> None:
    blocks = [b"\0\0\0\1a", b"\0\0\1k\1b"]
    if codec == 1:
        blocks = [pack("<I", len(block)) + lz4.block.compress(block, store_size=False) for block in blocks]
    elif codec == 2:
        streaming = zstandard.ZstdCompressor(write_content_size=False)
        blocks = [streaming.compress(block) for block in blocks]
    assert import_v1(by_hand(codec, *blocks)) == [Record(5, 1000, None, b"a"), Record(6, 2000, b"k", b"b")]


def test_deltas_restart_with_every_block() -> None:
    records = [Record(n * 10, NOW_MS - n * 1000, b"k", b"v" * 100) for n in range(1, 40)]
    data = export_v1(records, block_bytes=300).data
    assert header_v1(data).block_count > 5
    assert import_v1(data) == records


def test_what_would_be_lost_is_counted_and_refused() -> None:
    records = [
        Record(0, NOW_MS, b"k", b"v", (("h", b"1"),)),
        Record(1, NOW_MS, b"k", None),
        Record(2, NOW_MS, b"", b"v"),
        Record(3, -1, b"k", b"v", (("h", None), ("h", b""))),
    ]
    with pytest.raises(InvalidError, match="2 with headers"):
        export_v1(records, blur_nulls=True)
    with pytest.raises(InvalidError, match="1 with null values, 1 with empty keys, 1 with missing timestamps"):
        export_v1(records, drop_headers=True)
    exported = export_v1(records, drop_headers=True, blur_nulls=True)
    assert exported.losses == ExportLosses(headers=2, null_values=1, empty_keys=1, missing_timestamps=1)
    assert import_v1(exported.data) == [
        Record(0, NOW_MS, b"k", b"v"),
        Record(1, NOW_MS, b"k", b""),
        Record(2, NOW_MS, None, b"v"),
        Record(3, 0, b"k", b"v"),
    ]


@pytest.mark.parametrize("records", [[], [*ONE, *ONE], [Record(5, 0, None, b""), Record(4, 0, None, b"")]])
def test_records_must_be_there_and_in_order(records: list[Record]) -> None:
    with pytest.raises(InvalidError):
        export_v1(records)


def test_no_damaged_or_missing_byte_goes_unseen() -> None:
    data = export_v1([*ONE, Record(101, 5, None, b"w" * 50)], compression="lz4").data
    assert is_v1(data)
    for at in range(len(data) - 16):  # the format ends with zeros that mean nothing
        damaged = bytearray(data)
        damaged[at] ^= 0x55
        with pytest.raises((CorruptError, InvalidError)):
            import_v1(damaged)
    for size in range(len(data)):
        with pytest.raises((CorruptError, InvalidError)):
            import_v1(data[:size])


@settings(deadline=None)
@given(st.data())
def test_lies_with_right_checksums_are_refused_or_read(data: st.DataObject) -> None:
    codec = data.draw(st.sampled_from(("none", "lz4", "zstd")))
    lying = bytearray(export_v1([Record(n, n, b"k", b"v" * 30) for n in range(20)], compression=codec).data[:-32])
    index_at = len(lying) - 28
    for _ in range(data.draw(st.integers(1, 4))):
        lying[data.draw(st.integers(6, len(lying) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CorruptError, InvalidError):
        import_v1(bytes(lying) + pack(">QI4s16s", index_at, crc32(lying), b"STRM", b""))
