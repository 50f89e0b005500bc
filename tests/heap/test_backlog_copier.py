"""A backlog that has outgrown memory is copied before anybody pops it, at a rate, and only as far as that is worth it."""

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.heaps import HeapWorld, noted_reads, popped
from tests.support.waiting import async_until

from holdfast.heap import backlog_copier, partition_core, payload_spill, read_ahead
from holdfast.heap.model import NewMessage
from holdfast.heap.partition import HeapPartition
from holdfast.heap.payload_spill import PayloadSpill
from holdfast.heap.service import HeapService
from holdfast.heap.settings import HeapSettings
from holdfast.log.batches import PickedExtents

COUNT = 1_200
IN_BATCH = 60
PART = 300
ORDER = sorted(range(COUNT), key=lambda at: at * 377 % COUNT)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 300 records, rounds of 40 messages, buckets of 60, each read of the log brings one batch."""
    for name, value in {"_FIRST": 40, "_ROUND_MAX": 40, "_SPILLED_MIN": 100, "_BUCKET": 60, "_BUCKET_MIN": 60}.items():
        monkeypatch.setattr(read_ahead, name, value)
    for module in (read_ahead, backlog_copier):
        monkeypatch.setattr(module, "PART", PART)
    monkeypatch.setattr(read_ahead, "_READ_BYTES", 1)
    monkeypatch.setattr(backlog_copier, "_PART_MIN", IN_BATCH)
    monkeypatch.setattr(payload_spill, "_READ_BYTES", 1)
    monkeypatch.setattr(partition_core, "_LOOK_MS", 5)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[HeapWorld]:
    made = HeapWorld(tmp_path)
    yield made
    await made.end()


async def filled(
    world: HeapWorld, *, scattered: bool = True, bytes_per_s: int = 0, **settings: int
) -> tuple[HeapService, HeapPartition]:
    """A heap that is larger than its memory, and is copied when the test says so."""
    changes = {"payload_cache_bytes_max": 0, "read_ahead_bytes_max": 1_000_000, "spill_bytes_per_s": bytes_per_s}
    node = await world.node(heaps=HeapSettings(**(changes | settings)))
    heaps = await world.heap(node)
    await enqueue(heaps, 0, COUNT, scattered=scattered)
    return heaps, world.view(node)


async def enqueue(heaps: HeapService, first: int, count: int, *, scattered: bool = True) -> None:
    for at in range(first, first + count, IN_BATCH):
        messages = [
            NewMessage(payload=b"%d" % each + b" " * 400, priority=each * 377 % COUNT if scattered else each)
            for each in range(at, at + IN_BATCH)
        ]
        await heaps.enqueue_batch("jobs", messages)


async def prepared(view: HeapPartition) -> int:
    """All parts are copied; how many there were."""
    parts = 0
    while await view._reader.ahead.prepare():
        parts += 1
    return parts


def rested(view: HeapPartition) -> bool:
    return view._reader.ahead._round is None


async def test_nothing_of_the_log_is_read_for_the_first_pops_of_a_backlog(world: HeapWorld) -> None:
    heaps, view = await filled(world, bytes_per_s=2**30)
    ahead = view._reader.ahead
    await async_until(lambda: ahead._spilled.end >= COUNT)
    reads = noted_reads(view)
    for first in range(0, COUNT // 2, 20):
        assert await popped(heaps, 20) == ORDER[first : first + 20]
        await async_until(lambda: rested(view))
    assert reads == []


async def test_a_part_is_no_more_than_so_much_of_the_log_and_each_is_read_once(world: HeapWorld) -> None:
    _, view = await filled(world)
    reads = noted_reads(view)
    assert await view._reader.ahead.prepare() > 0
    assert view._reader.ahead._spilled.end == PART
    assert len(set(reads)) <= PART // IN_BATCH + read_ahead._SAMPLED + 1
    reads.clear()
    assert await prepared(view) == COUNT // PART - 1
    assert len(reads) == (COUNT - PART) // IN_BATCH


async def test_parts_wait_as_long_as_the_rate_says(world: HeapWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    _, view = await filled(world)
    waits: list[float] = []
    parts = iter([5_000_000, 0])

    class Noted:
        async def sleep_ms(self, delay_ms: float) -> None:
            waits.append(delay_ms)

    async def prepare() -> int:
        copied = next(parts, None)
        if copied is None:
            raise asyncio.CancelledError
        return copied

    settings = HeapSettings(spill_bytes_per_s=1_000_000)
    monkeypatch.setattr(view, "_settings", settings)
    monkeypatch.setattr(view, "_clock", Noted())
    monkeypatch.setattr(view._reader.ahead, "prepare", prepare)
    with pytest.raises(asyncio.CancelledError):
        await view.copy_backlog()
    assert waits == [5_000, partition_core._LOOK_MS]


async def test_what_fits_into_memory_is_not_copied(world: HeapWorld) -> None:
    _, view = await filled(world, read_ahead_bytes_max=10_000_000)
    assert await prepared(view) == 0
    assert not view._reader.ahead._spilled


async def test_what_is_popped_in_the_order_of_the_log_is_not_copied_and_seldom_looked_at(world: HeapWorld) -> None:
    heaps, view = await filled(world, scattered=False)
    ahead, looks, coming = view._reader.ahead, 0, view._reader.ahead._coming

    async def looked(count: int) -> list[int]:
        nonlocal looks
        looks += 1
        return await coming(count)

    ahead._coming = looked  # type: ignore[method-assign]
    for _ in range(5):
        assert await ahead.prepare() == 0
    assert looks == 1
    await enqueue(heaps, COUNT, COUNT // 2, scattered=False)
    await ahead.prepare()
    assert looks == 2, "it has grown"
    assert await popped(heaps, 20) == list(range(20))


async def test_what_comes_later_is_copied_in_parts_or_when_nothing_more_comes(world: HeapWorld) -> None:
    heaps, view = await filled(world)
    await prepared(view)
    files = view._reader.ahead._spilled
    await enqueue(heaps, COUNT, 2 * IN_BATCH)
    assert await view._reader.ahead.prepare() == 0, "there may be more soon"
    assert await view._reader.ahead.prepare() > 0, "there is not"
    assert files.end == COUNT + 2 * IN_BATCH
    await enqueue(heaps, COUNT + 2 * IN_BATCH, PART)
    assert await view._reader.ahead.prepare() > 0
    assert files.end == COUNT + 2 * IN_BATCH + PART


async def test_who_pops_meanwhile_waits_for_one_part_and_copies_the_rest_at_once(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    heaps, view = await filled(world)
    ahead, writing, held = view._reader.ahead, asyncio.Event(), asyncio.Event()
    real = PayloadSpill._write

    async def waits(self: PayloadSpill, picked: PickedExtents) -> bool:
        writing.set()
        await held.wait()
        return await real(self, picked)

    monkeypatch.setattr(PayloadSpill, "_write", waits)
    preparing = asyncio.ensure_future(ahead.prepare())
    await writing.wait()
    popping = asyncio.ensure_future(popped(heaps, 20))
    await async_until(lambda: not rested(view))
    held.set()
    assert await popping == ORDER[:20]
    assert await preparing > 0
    await async_until(lambda: rested(view))
    first = ahead._spilled._files[0]
    assert (first.first, first.end) == (0, PART)
    assert ahead._spilled.end >= COUNT
    assert await popped(heaps, 20) == ORDER[20:40]


@pytest.mark.parametrize("how", ["closed", "purged", "cancelled"])
async def test_a_copy_that_is_not_needed_any_more_leaves_nothing_behind(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    heaps, view = await filled(world)
    ahead, writing, real = view._reader.ahead, asyncio.Event(), PayloadSpill._write

    async def noted(self: PayloadSpill, picked: PickedExtents) -> bool:
        written = await real(self, picked)
        writing.set()
        await asyncio.Event().wait()  # until it is cancelled
        return written

    monkeypatch.setattr(PayloadSpill, "_write", noted)
    preparing = asyncio.ensure_future(ahead.prepare())
    await writing.wait()
    assert ahead._budget.spill.bytes > 0
    if how == "closed":
        view._reader.close()
    elif how == "purged":
        await heaps.purge("jobs")
    else:
        preparing.cancel()
    await asyncio.wait({preparing})
    await async_until(lambda: ahead._budget.spill.bytes == 0)
    assert not ahead._spilled
    if how != "cancelled":
        assert preparing.result() == 0 == ahead._budget.bytes


async def test_some_of_the_space_is_left_to_heaps_that_are_popped(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog_copier, "_LEFT", 2)
    _, view = await filled(world, spill_bytes_max=400_000)
    assert 0 < await prepared(view) < COUNT // PART
    assert 200_000 < view._reader.ahead._budget.spill.bytes < 350_000


async def test_a_copy_that_nobody_pops_is_given_up_and_not_made_again_before_a_pop(world: HeapWorld) -> None:
    heaps, view = await filled(world, spill_idle_ms=300)
    ahead = view._reader.ahead
    await prepared(view)
    await async_until(lambda: not ahead._spilled)
    assert ahead._budget.spill.bytes == 0
    assert await prepared(view) == 0
    ahead._budget.spill.idle_ms = 600_000
    assert await popped(heaps, 20) == ORDER[:20]
    await async_until(lambda: rested(view))
    assert ahead._spilled, "made for the pop"


async def test_a_disk_that_takes_nothing_is_not_tried_again_and_again(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    heaps, view = await filled(world)

    async def full(self: PayloadSpill, picked: PickedExtents) -> bool:
        raise OSError(errno.ENOSPC, "no space left on purpose")

    monkeypatch.setattr(PayloadSpill, "_write", full)
    for _ in range(5):
        assert await view._reader.ahead.prepare() == 0
    assert await popped(heaps, 20) == ORDER[:20]
    assert len([each for each in caplog.messages if "from the log alone" in each]) == 1
    assert view._reader.ahead._budget.spill.bytes == 0
