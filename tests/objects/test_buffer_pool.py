"""Memory of large reads: used again, and never while anybody sees it."""

import gc
import threading

import pytest

from holdfast.objects.buffer_pool import BufferPool, size_class
from holdfast.objects.ram_cache import ENTRY_BYTES, RamCache
from holdfast.vocabulary.settings import KIB, MIB
from holdfast.vocabulary.tracked_memory import retained_bytes


@pytest.mark.parametrize(
    ("size", "rounded"),
    [(1, 128 * KIB), (MIB, MIB), (MIB + 1, MIB + 128 * KIB), (4 * MIB, 4 * MIB), (4 * MIB + 1, 4 * MIB + 512 * KIB)],
)
def test_sizes_come_in_classes(size: int, rounded: int) -> None:
    assert size_class(size) == rounded


@pytest.mark.parametrize("size", [MIB + 4096, 3 * MIB, 7_000_000, 100 * MIB + 1])
def test_rounding_costs_at_most_an_eighth(size: int) -> None:
    assert size <= size_class(size) <= size + size // 8 + 128 * KIB


def test_a_buffer_without_views_is_reused() -> None:
    memory = BufferPool(64 * MIB)
    view = memory.take(3 * MIB)
    view[:4] = b"mark"
    del view
    assert memory.idle_bytes == 3 * MIB
    assert bytes(memory.take(3 * MIB - 1)[:4]) == b"mark"
    assert memory.idle_bytes == 3 * MIB  # the view was dropped at once


def test_a_slice_keeps_the_whole_buffer() -> None:
    memory = BufferPool(64 * MIB)
    kept = memory.take(2 * MIB)[10:20].toreadonly()
    kept_bytes = bytes(kept)
    others = [memory.take(2 * MIB) for _ in range(3)]
    for other in others:
        other[:] = b"\xff" * len(other)
    assert bytes(kept) == kept_bytes
    assert retained_bytes(kept) == 2 * MIB


def test_a_released_buffer_is_reused_for_a_fitting_size() -> None:
    memory = BufferPool(64 * MIB)
    large, small = memory.take(8 * MIB), memory.take(5 * MIB)
    large[0], small[0] = 8, 5
    del large, small
    assert memory.idle_bytes == size_class(8 * MIB) + size_class(5 * MIB)
    assert memory.take(4 * MIB)[0] == 5  # the smaller one
    both = memory.take(5 * MIB), memory.take(5 * MIB)
    assert sorted(view[0] for view in both) == [5, 8]  # one is better than fresh memory, though larger
    assert memory.idle_bytes == 0


def test_a_much_too_large_buffer_is_not_reused() -> None:
    memory = BufferPool(64 * MIB)
    memory.take(8 * MIB)[0] = 8
    assert memory.take(3 * MIB)[0] == 0


def test_the_first_released_buffer_is_freed_first() -> None:
    memory = BufferPool(10 * MIB)
    views = [memory.take(4 * MIB) for _ in range(4)]
    for number, view in enumerate(views):
        view[0] = number + 1
    del view
    while views:
        views.pop(0)
    assert memory.idle_bytes == 8 * MIB
    assert {memory.take(4 * MIB)[0], memory.take(4 * MIB)[0]} <= {3, 4}
    assert BufferPool(0).take(MIB)[0] == 0


def test_no_more_than_the_budget_is_kept() -> None:
    memory = BufferPool(4 * MIB)
    views = [memory.take(2 * MIB) for _ in range(5)]
    views.clear()
    assert memory.idle_bytes == 4 * MIB


def test_views_are_dropped_on_any_thread_while_others_take() -> None:
    memory = BufferPool(32 * MIB)
    faults: list[str] = []

    def use(number: int) -> None:
        for _ in range(200):
            view = memory.take(MIB)
            view[:8] = number.to_bytes(8, "big")
            if int.from_bytes(view[:8], "big") != number:
                faults.append("another thread wrote here")
            del view

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert not faults
    assert memory.idle_bytes <= 4 * MIB


def test_a_cache_counts_all_the_memory_a_view_keeps() -> None:
    memory, ranges = BufferPool(64 * MIB), RamCache(bytes_max=5 * MIB)
    ranges.add(("a", 0, 10), memory.take(2 * MIB)[:10])
    assert ranges.bytes_held == 2 * MIB + ENTRY_BYTES
    ranges.add(("b", 0, 10), memory.take(2 * MIB)[:10])
    ranges.add(("c", 0, 10), memory.take(2 * MIB)[:10])
    assert ranges.bytes_held <= 5 * MIB
    assert ranges.find(("a", 0, 10)) is None
    assert ranges.evicted == 1
