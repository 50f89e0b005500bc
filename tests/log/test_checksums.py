"""Checksums put together are those of the bytes put together."""

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from holdfast.log.batches import Record, encode
from holdfast.log.checksums import COMBINE_MIN_BYTES, batch_checksum, joined, joined_by_tables


@given(st.binary(max_size=200), st.binary(max_size=3_000))
def test_two_parts(first: bytes, second: bytes) -> None:
    assert joined(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)
    assert joined_by_tables(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


@given(st.integers(0, 5_000_000))
def test_any_length(size: int) -> None:
    second = bytes(size)
    assert joined(crc32c(b"first"), crc32c(second), size) == crc32c(second, crc32c(b"first"))
    assert joined_by_tables(crc32c(b"first"), crc32c(second), size) == crc32c(second, crc32c(b"first"))


@given(st.integers(0, 3 * COMBINE_MIN_BYTES))
def test_a_batch(size: int) -> None:
    batch = encode([Record(0, 1, b"k", b"v" * size)])
    assert batch_checksum(batch) == crc32c(batch)
    assert batch_checksum(memoryview(bytearray(batch))) == crc32c(batch)
