"""Gaps that bring a large buffer to where it lies in memory, counted in blocks."""

import pytest

from holdfast.vocabulary.alignment import DISK_BLOCK_BYTES, alignment_padding
from holdfast.vocabulary.settings import KIB


def test_a_gap_brings_a_large_part_to_where_it_lies_in_memory() -> None:
    native = pytest.importorskip("holdfast._native", reason="the C kernel was not built: no compiler")
    arena = memoryview(bytearray(3 * DISK_BLOCK_BYTES + 64 * KIB))
    for at in (0, 1, 17, DISK_BLOCK_BYTES - 1, DISK_BLOCK_BYTES):
        part = arena[at : at + 64 * KIB]
        for position in (0, 96, 5_000, 1 << 40):
            gap = alignment_padding(part, position, min_bytes=64 * KIB)
            assert 0 <= gap < DISK_BLOCK_BYTES
            assert (position + gap - native.address(part)) % DISK_BLOCK_BYTES == 0
        assert alignment_padding(part, 5, min_bytes=64 * KIB + 1) == 0
