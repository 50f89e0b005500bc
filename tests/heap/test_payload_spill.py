"""A backlog that is scattered over the log is read once for many rounds, from a file that nobody has to trust or to remove."""

import asyncio
import errno
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from tests.support.heaps import HeapWorld, noted_reads, popped
from tests.support.waiting import async_until

from holdfast.heap import payload_spill, read_ahead, spilled_messages
from holdfast.heap.model import NewMessage
from holdfast.heap.partition import HeapPartition
from holdfast.heap.payload_spill import PayloadSpill, SpillSpace
from holdfast.heap.read_ahead import PayloadReadAhead
from holdfast.heap.service import HeapService
from holdfast.heap.settings import HeapSettings
from holdfast.log.batches import PickedExtents
from holdfast.log.reader import FetchedBatches

COUNT = 1_200
IN_BATCH = 60
ORDER = sorted(range(COUNT), key=lambda at: at * 377 % COUNT)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of 40 messages, buckets of 60, each read of the log brings one batch."""
    for name, value in {"_FIRST": 40, "_ROUND_MAX": 40, "_SPILLED_MIN": 100, "_BUCKET": 60, "_READ_BYTES": 1}.items():
        monkeypatch.setattr(read_ahead, name, value)
    monkeypatch.setattr(payload_spill, "_READ_BYTES", 1)
    monkeypatch.setattr(payload_spill, "_WRITE_BYTES", 100_000)
    monkeypatch.setattr(read_ahead, "_BUCKET_MIN", 60)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[HeapWorld]:
    made = HeapWorld(tmp_path)
    yield made
    await made.end()


async def filled(world: HeapWorld, **settings: int) -> tuple[HeapService, HeapPartition]:
    node = await world.node(heaps=HeapSettings(payload_cache_bytes_max=0, **settings))
    heaps = await world.heap(node)
    for first in range(0, COUNT, IN_BATCH):
        numbers = range(first, first + IN_BATCH)
        messages = [NewMessage(payload=b"%d" % at + b" " * 400, priority=at * 377 % COUNT) for at in numbers]
        await heaps.enqueue_batch("jobs", messages)
    return heaps, world.view(node)


async def spilled(heaps: HeapService, view: HeapPartition) -> PayloadSpill:
    """The file, after the first pop of 20."""
    assert await popped(heaps, 20) == ORDER[:20]
    await async_until(lambda: rested(view))
    (file,) = view._reader.ahead._spilled._files
    return file.spill


def rested(view: HeapPartition) -> bool:
    return view._reader.ahead._round is None


def open_files() -> int:
    """Those without a name, which the files of messages are: others come and go with whatever else the process does."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found += str(descriptor.readlink()).endswith(" (deleted)")
    return found


async def test_what_comes_next_is_read_from_the_file_and_is_what_the_log_has(world: HeapWorld) -> None:
    heaps, view = await filled(world)
    await spilled(heaps, view)
    reads = noted_reads(view)
    for first in range(20, COUNT, 20):
        assert await popped(heaps, 20) == ORDER[first : first + 20]
        await async_until(lambda: rested(view))
    assert len(reads) <= 2 * COUNT // IN_BATCH, "a round without the file reads nearly every batch"


async def test_what_is_enqueued_later_and_comes_before_is_read_from_the_log(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PayloadReadAhead, "inherit", lambda *_: None)
    heaps, view = await filled(world)
    await spilled(heaps, view)
    await heaps.enqueue_batch("jobs", [NewMessage(payload=b"%d" % -at, priority=-at) for at in range(1, 31)])
    assert await popped(heaps, 30) == list(range(-30, 0))
    assert await popped(heaps, 20) == ORDER[20:40]


async def test_a_message_whose_priority_is_changed_is_read_all_the_same(world: HeapWorld) -> None:
    heaps, view = await filled(world)
    await spilled(heaps, view)
    last = (await heaps.peek("jobs", limit=1_000))[-1]
    await heaps.reprioritise("jobs", last.message_id, -1)
    assert await popped(heaps, 1) == [int(last.payload)]
    assert await popped(heaps, 20) == ORDER[20:40]


@pytest.mark.parametrize("fault", ["torn", "gone", "unreadable"])
async def test_a_file_that_is_broken_is_given_up_and_the_log_is_read(
    world: HeapWorld, fault: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    heaps, view = await filled(world)
    spill = await spilled(heaps, view)
    if fault == "torn":
        for bucket in spill._buckets:
            for extent in bucket:
                os.pwrite(spill._file.number, b"?", extent.at + extent.size // 2)
    elif fault == "gone":
        os.ftruncate(spill._file.number, 100)
    else:

        def refused(*args: object) -> bytes:
            raise OSError(errno.EIO, "on purpose")

        monkeypatch.setattr(os, "pread", refused)
    for first in range(20, 200, 20):
        assert await popped(heaps, 20) == ORDER[first : first + 20]
        await async_until(lambda: rested(view))
    assert not view._reader.ahead._spilled
    assert view._reader.ahead._budget.spill.bytes == 0
    assert [record.getMessage() for record in caplog.records if "from the log alone" in record.getMessage()]


async def test_a_disk_that_takes_nothing_costs_nothing_but_the_file(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    heaps, view = await filled(world)

    def full(*args: object) -> int:
        raise OSError(errno.ENOSPC, "no space left on purpose")

    monkeypatch.setattr(os, "pwrite", full)
    for first in range(0, 200, 20):
        assert await popped(heaps, 20) == ORDER[first : first + 20]
        await async_until(lambda: rested(view))
    assert not view._reader.ahead._spilled
    assert view._reader.ahead._budget.spill.bytes == 0
    assert len([each for each in caplog.messages if "from the log alone" in each]) == 1, (
        "it is not tried in every round"
    )


async def test_there_is_no_file_without_space_for_it(world: HeapWorld) -> None:
    heaps, view = await filled(world, spill_bytes_max=0)
    for first in range(0, 100, 20):
        assert await popped(heaps, 20) == ORDER[first : first + 20]
        await async_until(lambda: rested(view))
    assert not view._reader.ahead._spilled


async def test_a_file_has_no_more_than_the_space_that_there_is(world: HeapWorld) -> None:
    heaps, view = await filled(world, spill_bytes_max=100_000)
    space = view._reader.ahead._budget.spill
    for first in range(0, COUNT, 20):
        assert await popped(heaps, 20) == ORDER[first : first + 20]
        await async_until(lambda: rested(view))
        assert space.bytes <= 100_000


def test_most_of_what_is_free_on_the_disk_stays_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(4_000))
    assert SpillSpace(tmp_path, 500).free_bytes() == 500
    assert SpillSpace(tmp_path, 5_000).free_bytes() == 1_000
    space = SpillSpace(tmp_path, 5_000)
    space.bytes = 4_900
    assert space.free_bytes() == 100
    assert SpillSpace().free_bytes() == 0
    assert SpillSpace(None, 5_000).free_bytes() == 0
    monkeypatch.undo()
    assert SpillSpace(tmp_path / "missing", 5_000).free_bytes() == 0


class Usage:
    def __init__(self, free: int) -> None:
        self.free = free


async def test_a_leadership_that_ends_leaves_no_file_and_no_space_behind(world: HeapWorld) -> None:
    heaps, view = await filled(world)
    spill = await spilled(heaps, view)
    space, before = view._reader.ahead._budget.spill, open_files()
    assert space.bytes > 0
    view._reader.close()
    assert space.bytes == 0
    del spill
    await async_until(lambda: open_files() == before - 1)


async def test_a_leadership_that_ends_while_a_file_is_written_leaves_nothing_behind(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    heaps, view = await filled(world)
    ahead, writing, before = view._reader.ahead, asyncio.Event(), open_files()
    loop, real = asyncio.get_running_loop(), os.pwrite

    def slow(*args: object) -> int:
        loop.call_soon_threadsafe(writing.set)
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "pwrite", slow)
    popping = asyncio.ensure_future(popped(heaps, 20))
    await writing.wait()
    ahead.close()
    assert await popping == ORDER[:20]
    await async_until(lambda: ahead._round is None and open_files() <= before)
    assert ahead._budget.spill.bytes == 0


async def test_while_a_file_is_written_pops_do_not_wait_for_long(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    heaps, view = await filled(world)
    held = asyncio.Event()
    real = PayloadSpill._write

    async def waits(self: PayloadSpill, picked: PickedExtents) -> bool:
        await held.wait()
        return await real(self, picked)

    monkeypatch.setattr(PayloadSpill, "_write", waits)
    monkeypatch.setattr(read_ahead, "_STALLED_S", 0.01)
    for first in range(0, 100, 20):
        assert await popped(heaps, 20) == ORDER[first : first + 20]
    assert not view._reader.ahead._spilled
    held.set()
    await async_until(lambda: bool(view._reader.ahead._spilled))
    assert await popped(heaps, 20) == ORDER[100:120]


async def test_pops_wait_for_a_file_that_is_being_written_rather_than_read_the_log_once_more(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    heaps, view = await filled(world)
    reads = noted_reads(view)
    real, slow_s = PayloadSpill._write, 0.05

    async def slow(self: PayloadSpill, picked: PickedExtents) -> bool:
        await asyncio.sleep(slow_s)  # noqa: TID251 (a slow disk)
        return await real(self, picked)

    monkeypatch.setattr(PayloadSpill, "_write", slow)
    monkeypatch.setattr(payload_spill, "_WRITE_BYTES", 20_000)
    monkeypatch.setattr(read_ahead, "_STALLED_S", 10 * slow_s)
    found = await asyncio.gather(*[popped(heaps, 20) for _ in range(10)])
    assert sorted(chain.from_iterable(found)) == sorted(ORDER[:200])
    await async_until(lambda: bool(view._reader.ahead._spilled))
    batches = COUNT // IN_BATCH
    assert len(reads) <= 3 * batches, "once for the file, and little else"


async def test_messages_that_are_withdrawn_or_have_moved_take_no_room(world: HeapWorld) -> None:
    heaps, view = await filled(world)
    await spilled(heaps, view)
    ahead = view._reader.ahead
    first, second = (await heaps.peek("jobs", limit=2))[:2]
    before = len(ahead)
    await heaps.cancel("jobs", first.message_id)
    assert len(ahead) == before - 1
    await heaps.move_to_dead_letters("jobs", second.message_id)
    await async_until(lambda: len(ahead) == before - 2)
    await heaps.purge("jobs")
    assert len(ahead) == 0 == ahead._budget.bytes == ahead._budget.spill.bytes


async def test_a_heap_that_is_empty_leaves_the_space_to_others(world: HeapWorld) -> None:
    heaps, view = await filled(world)
    await spilled(heaps, view)
    for first in range(20, COUNT, 20):
        assert await popped(heaps, 20) == ORDER[first : first + 20]
    await async_until(lambda: rested(view))
    assert view._reader.ahead._budget.spill.bytes == 0


async def enqueue_scattered(heaps: HeapService, first: int, count: int) -> list[int]:
    """Messages whose priorities are between the others'; their payloads, in the order of pops."""
    numbers = range(first, first + count)
    priorities = {number: number * 377 % COUNT for number in numbers}
    for at in range(first, first + count, IN_BATCH):
        some = range(at, min(at + IN_BATCH, first + count))
        await heaps.enqueue_batch(
            "jobs", [NewMessage(payload=b"%d" % each + b" " * 400, priority=priorities[each]) for each in some]
        )
    return sorted(numbers, key=lambda number: (priorities[number], number))


async def test_what_came_since_goes_into_files_of_its_own_and_is_read_from_there(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spilled_messages, "_NEWER_MIN", 120)
    monkeypatch.setattr(spilled_messages, "_FILES", 3)
    monkeypatch.setattr(PayloadReadAhead, "inherit", lambda *_: None)  # what came since is in the log alone
    heaps, view = await filled(world)
    await spilled(heaps, view)
    waiting = {number: (number * 377 % COUNT, number) for number in ORDER[20:]}
    files, reads, most = view._reader.ahead._spilled._files, noted_reads(view), 0
    for turn in range(30):  # as many in as out
        new = await enqueue_scattered(heaps, COUNT + 60 * turn, 60)
        waiting |= {number: (number * 377 % COUNT, number) for number in new}
        expected = sorted(waiting, key=waiting.__getitem__)[:60]
        assert [await popped(heaps, 20) for _ in range(3)] == [expected[:20], expected[20:40], expected[40:]]
        for number in expected:
            del waiting[number]
        await async_until(lambda: rested(view))
        most = max(most, len(files))
        ends = [0, *[file.end for file in files]]
        assert [file.first for file in files] == ends[:-1], "they follow one another"
    assert most >= 3, "what came since has files"
    assert most <= 5, "small ones become one"
    assert view._reader.ahead._budget.spill.bytes == sum(file.spill._bytes for file in files)
    in_log = (COUNT + 30 * 60) // IN_BATCH
    assert len(reads) < 30 * in_log / 3, "not all of it is read for each round"


async def test_what_came_since_and_is_all_more_urgent_is_in_many_buckets(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not all of it in the first one, as a file of the old ones has them."""
    monkeypatch.setattr(spilled_messages, "_NEWER_MIN", 60)
    monkeypatch.setattr(spilled_messages, "_COST", 0)
    heaps, view = await filled(world)
    await spilled(heaps, view)
    for first in range(0, 600, IN_BATCH):
        messages = [
            NewMessage(payload=b"%d" % at + b" " * 400, priority=-10_000 + at * 377 % 600)
            for at in range(first, first + IN_BATCH)
        ]
        await heaps.enqueue_batch("jobs", messages)
    await popped(heaps, 40)
    await async_until(lambda: rested(view))
    files = view._reader.ahead._spilled._files
    assert len(files) == 2
    assert max(files[1].spill._sizes) < 3 * 60 * 450, "about as many as a bucket has"


async def test_an_extent_is_no_larger_than_what_is_read_at_once(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload_spill, "_READ_BYTES", 5_000)
    monkeypatch.setattr(payload_spill, "_WRITE_BYTES", 10_000_000)
    monkeypatch.setattr(read_ahead, "_BUCKET", 10_000)  # one for all of them
    heaps, view = await filled(world)
    spill = await spilled(heaps, view)
    extents = [extent for bucket in spill._buckets for extent in bucket]
    assert len(extents) > 10
    assert max(extent.size for extent in extents) < 5_000 + 2 * IN_BATCH * 450


async def test_large_messages_are_read_from_the_log_alone(world: HeapWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket of them is hardly ever worth reading."""
    monkeypatch.setattr(read_ahead, "WORTH_BYTES", 300)
    heaps, view = await filled(world)
    for first in range(0, 200, 20):
        assert await popped(heaps, 20) == ORDER[first : first + 20]
    await async_until(lambda: rested(view))
    assert not view._reader.ahead._spilled
    assert 400 < view._reader.ahead._record_bytes < 500


async def test_a_heap_that_was_emptied_during_a_round_keeps_no_memory(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    heaps, view = await filled(world, spill_bytes_max=0)
    ahead, reads, read = view._reader.ahead, 0, view.log.read
    held = asyncio.Event()

    async def held_up(offset: int, **options: Any) -> FetchedBatches:
        nonlocal reads
        reads += 1
        found = await read(offset, **options)
        if asyncio.current_task() is ahead._round and reads > 3:
            await held.wait()
        return found

    monkeypatch.setattr(view.log, "read", held_up)
    while await popped(heaps, 2):  # few at a time: they read by themselves
        pass
    held.set()
    await async_until(lambda: rested(view))
    assert len(ahead) == 0 == ahead._budget.bytes


async def test_files_of_what_came_since_that_cannot_be_written_are_given_up(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spilled_messages, "_NEWER_MIN", 60)
    monkeypatch.setattr(spilled_messages, "_COST", 0)
    heaps, view = await filled(world)
    await spilled(heaps, view)

    async def full(self: PayloadSpill, picked: PickedExtents) -> bool:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(PayloadSpill, "_write", full)
    new = await enqueue_scattered(heaps, COUNT, 120)
    order = sorted([*ORDER[20:], *new], key=lambda number: (number * 377 % COUNT, number))
    for first in range(0, 200, 20):
        assert await popped(heaps, 20) == order[first : first + 20]
    await async_until(lambda: rested(view))
    assert not view._reader.ahead._spilled
    assert view._reader.ahead._budget.spill.bytes == 0


async def test_a_backlog_that_nobody_pops_leaves_the_space_to_others_after_a_while(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    heaps, view = await filled(world, spill_idle_ms=1_000)
    await spilled(heaps, view)
    ahead = view._reader.ahead
    assert ahead._budget.spill.bytes > 0
    await async_until(lambda: not ahead._spilled)
    assert ahead._budget.spill.bytes == 0
    ahead._budget.spill.idle_ms = 600_000
    for first in range(20, 200, 20):
        assert await popped(heaps, 20) == ORDER[first : first + 20]
    await async_until(lambda: rested(view))
    assert ahead._spilled, "a new one"


async def test_a_purge_while_a_file_is_written_leaves_nothing_behind(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    heaps, view = await filled(world)
    ahead, writing, real = view._reader.ahead, asyncio.Event(), PayloadSpill._write

    async def noted(self: PayloadSpill, picked: PickedExtents) -> bool:
        writing.set()
        return await real(self, picked)

    monkeypatch.setattr(PayloadSpill, "_write", noted)
    popping = asyncio.ensure_future(popped(heaps, 20))
    await writing.wait()
    await heaps.purge("jobs")
    await asyncio.wait({popping})
    await async_until(lambda: rested(view))
    assert ahead._budget.spill.bytes == 0 == ahead._budget.bytes


async def test_most_of_a_lease_is_left_when_a_round_takes_its_time(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    heaps, view = await filled(world)
    held, real = asyncio.Event(), PayloadSpill._write

    async def waits(self: PayloadSpill, picked: PickedExtents) -> bool:
        await held.wait()
        return await real(self, picked)

    monkeypatch.setattr(PayloadSpill, "_write", waits)
    found = await heaps.pop("jobs", consumer="c", max_messages=20, visibility_timeout_ms=3_000)
    assert found[0].lease_deadline_ms - view.now_ms() > 1_500
    held.set()


async def test_a_bucket_is_read_in_pieces_and_no_further_than_there_is_room(world: HeapWorld) -> None:
    heaps, view = await filled(world, read_ahead_bytes_max=200_000)
    spill = await spilled(heaps, view)
    pieces = [piece async for piece in spill.read([0])]
    assert len(pieces) == len(spill._buckets[0])
    budget = view._reader.ahead._budget
    for first in range(20, 400, 20):
        assert await popped(heaps, 20) == ORDER[first : first + 20]
        assert budget.bytes <= 200_000 + IN_BATCH * 1_000
