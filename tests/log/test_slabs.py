"""Slabs come back by themselves, are never overwritten while somebody sees them, and never exceed their budget."""

import asyncio
import threading

import pytest

from holdfast.log.slabs import Slabs, SlabSettings
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError

TWO = SlabSettings(slab_bytes=4096, bytes_max=8192)


def test_a_slab_is_used_again_when_its_last_view_is_gone() -> None:
    slabs = Slabs(TWO)
    slab = slabs.take()
    assert slab is not None
    slab[:] = b"x" * 4096
    part = slab[10:20][2:4]
    del slab
    assert slabs.pinned_bytes == 4096  # two bytes hold the whole of it
    del part
    assert (slabs.pinned_bytes, slabs.idle_bytes) == (0, 4096)
    again = slabs.take()
    assert again is not None
    assert bytes(again[:1]) == b"x"  # the same memory, warm


def test_live_data_is_never_handed_out_again() -> None:
    slabs = Slabs(TWO)
    kept = []
    for number in range(2):
        slab = slabs.take()
        assert slab is not None
        slab[:] = bytes([number]) * 4096
        kept.append(slab[100:200])
        del slab
    assert slabs.take() is None
    assert [part.tobytes() for part in kept] == [b"\0" * 100, b"\1" * 100]
    kept.pop()
    assert slabs.take() is not None
    assert kept[0].tobytes() == b"\0" * 100


async def test_a_waiter_gets_the_slab_that_another_thread_drops() -> None:
    slabs = Slabs(SlabSettings(slab_bytes=4096, bytes_max=4096))
    held = [slabs.take()]
    got: list[int] = []

    async def want(number: int) -> None:
        await slabs.room()
        slab = slabs.take()
        assert slab is not None
        got.append(number)
        await RealClock().sleep_ms(1)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(want(number)) for number in range(4)]
        await RealClock().sleep_ms(1)
        tasks[0].cancel()
        assert got == []
        dropping = threading.Thread(target=held.clear)
        dropping.start()
        dropping.join()
    assert got == [1, 2, 3]
    await slabs.room()


async def test_one_that_waited_and_took_nothing_does_not_starve_the_next() -> None:
    slabs = Slabs(SlabSettings(slab_bytes=4096, bytes_max=4096))
    held = [slabs.take()]
    async with asyncio.TaskGroup() as group:
        group.create_task(slabs.room())
        group.create_task(slabs.room())
        await RealClock().sleep_ms(1)
        held.clear()


def test_settings_have_bounds() -> None:
    with pytest.raises(InvalidError):
        SlabSettings(slab_bytes=1)
    with pytest.raises(InvalidError):
        SlabSettings(slab_bytes=8192, bytes_max=4096)
