"""The index of many blocks: read and packed in C, exactly as in Python."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.steps import executed_lines

from holdfast.log.segments.index import BlockLocation, SegmentIndex, pack_blocks, read_blocks
from holdfast.log.segments.layout import BLOCK_BYTES
from holdfast.log.segments.section_reader import SectionReader
from holdfast.vocabulary.errors import CorruptError

native = pytest.importorskip("holdfast._native", reason="the C kernel was not built: no compiler")

START = 96

entries = st.tuples(
    st.integers(0, 2**40),  # gap
    st.integers(1, 2**31),  # offsets
    st.integers(BLOCK_BYTES + 1, 2**32),
    st.integers(0, 2**40),
    st.integers(-1, 2**62),
)


def blocks_of(given_: list[tuple[int, int, int, int, int]], base_offset: int) -> tuple[BlockLocation, ...]:
    blocks, start = [], START
    for gap, count, size, raw_bytes, timestamp_ms in given_:
        first = base_offset + gap
        base_offset = first + count
        blocks.append(BlockLocation(start, start + size, first, base_offset, raw_bytes, timestamp_ms))
        start += size
    return tuple(blocks)


def in_python(section: bytes, count: int, start: int, base_offset: int) -> list[BlockLocation] | None:
    with suppress(CorruptError):
        return read_blocks(SectionReader(section, "index"), count, start, base_offset)
    return None


@given(st.lists(entries, max_size=20), st.integers(0, 2**50))
def test_blocks_are_packed_and_read_as_in_python(given_: list[tuple[int, int, int, int, int]], base: int) -> None:
    blocks = blocks_of(given_, base)
    packed = native.pack_blocks(blocks, base)
    assert packed == pack_blocks(blocks, base)
    found = native.read_blocks(b"xyz" + packed + b"more", 3, len(blocks), START, base, BLOCK_BYTES, BlockLocation)
    assert found == (list(blocks), 3 + len(packed))
    assert all(type(each) is BlockLocation for each in found[0])
    assert in_python(packed, len(blocks), START, base) == list(blocks)


@given(st.data(), st.lists(entries, max_size=5))
def test_what_is_wrong_is_left_to_python(data: st.DataObject, given_: list[tuple[int, int, int, int, int]]) -> None:
    section = bytearray(pack_blocks(blocks_of(given_, 7), 7))
    for _ in range(data.draw(st.integers(0, 3))):
        if section:
            section[data.draw(st.integers(0, len(section) - 1))] = data.draw(st.sampled_from((0, 1, 0x7F, 0x80, 0xFF)))
    cut = bytes(section[: data.draw(st.integers(0, len(section)))])
    count = data.draw(st.integers(0, len(given_) + 1))
    found = native.read_blocks(cut, 0, count, START, 7, BLOCK_BYTES, BlockLocation)
    expected = in_python(cut, count, START, 7)
    if found is not None:
        assert found[0] == expected
    else:  # what Python still reads has numbers beyond 63 bits
        assert expected is None or max(max(each) for each in expected) > 2**62


def test_many_blocks_take_no_step_each() -> None:
    few, many = (SegmentIndex("t", (), blocks_of([(0, 1, 100, 1, 5)] * count, 0)) for count in (2, 200))
    assert executed_lines(lambda: few.pack(0)) == executed_lines(lambda: many.pack(0)) - 3  # a longer number of blocks


def test_it_is_called_wrongly_and_lives() -> None:
    assert native.read_blocks(b"", 1, 0, 0, 0, 0, BlockLocation) is None
    assert native.read_blocks(b"", 0, 1 << 40, 0, 0, 0, BlockLocation) is None
    assert native.read_blocks(b"", 0, 0, -1, 0, 0, BlockLocation) is None
    assert native.pack_blocks(((1, 2),), 0) is None
    assert native.pack_blocks((7,), 0) is None
    assert native.pack_blocks(((START, START + 1, 5, 6, 0, 0),), 6) is None  # out of order
    with pytest.raises(TypeError):
        native.read_blocks(b"", 0, 0, 0, 0, 0, dict)
    with pytest.raises(TypeError):
        native.pack_blocks(((None,) * 6,), 0)
    with pytest.raises(OverflowError):
        native.pack_blocks(((2**64,) * 6,), 0)
