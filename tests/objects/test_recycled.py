"""Recycled memory: what came back serves what fits it, and not more is kept than may be."""

import pytest

from holdfast.objects.recycled import Recycled, size_class
from holdfast.vocabulary.in_place import BLOCK_BYTES, gap_before
from holdfast.vocabulary.settings import KIB, MIB


def test_what_came_back_is_used_again_for_what_fits_it_well() -> None:
    memory = Recycled(64 * MIB)
    large, small = memory.take(8 * MIB), memory.take(5 * MIB)
    large[0], small[0] = 8, 5
    del large, small
    assert memory.idle_bytes == size_class(8 * MIB) + size_class(5 * MIB)
    assert memory.take(4 * MIB)[0] == 5  # the smaller one
    both = memory.take(5 * MIB), memory.take(5 * MIB)
    assert sorted(view[0] for view in both) == [5, 8]  # one is better than fresh memory, though larger
    assert memory.idle_bytes == 0


def test_what_is_much_too_large_is_left_for_others() -> None:
    memory = Recycled(64 * MIB)
    memory.take(8 * MIB)[0] = 8
    assert memory.take(3 * MIB)[0] == 0


def test_what_came_back_first_goes_first() -> None:
    memory = Recycled(10 * MIB)
    views = [memory.take(4 * MIB) for _ in range(4)]
    for number, view in enumerate(views):
        view[0] = number + 1
    del view
    while views:
        views.pop(0)
    assert memory.idle_bytes == 8 * MIB
    assert {memory.take(4 * MIB)[0], memory.take(4 * MIB)[0]} <= {3, 4}
    assert Recycled(0).take(MIB)[0] == 0


def test_a_gap_brings_a_large_part_to_where_it_lies_in_memory() -> None:
    native = pytest.importorskip("holdfast._native", reason="the C kernel was not built: no compiler")
    arena = memoryview(bytearray(3 * BLOCK_BYTES + 64 * KIB))
    for at in (0, 1, 17, BLOCK_BYTES - 1, BLOCK_BYTES):
        part = arena[at : at + 64 * KIB]
        for position in (0, 96, 5_000, 1 << 40):
            gap = gap_before(part, position, min_bytes=64 * KIB)
            assert 0 <= gap < BLOCK_BYTES
            assert (position + gap - native.address(part)) % BLOCK_BYTES == 0
        assert gap_before(part, 5, min_bytes=64 * KIB + 1) == 0
