"""One partition that publishes nothing keeps its own frames, and not the files of everybody else (docs/safety.md, rule 23)."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.partitions import FullDisk
from tests.support.waiting import async_until, until
from tests.support.wal import SMALL, TOPIC, crash_copy, fill, flip, frame, offsets, opened, payload_of, turns

from holdfast.log.wal import Wal
from holdfast.log.wal.files import live_files
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import UnavailableError

COPYING = replace(SMALL, copy_forward_files=3, copy_forward_bytes=8 << 10)
STUCK, BUSY = 0, 1


async def work(wal: Wal, offsets: Iterable[int], *, size: int = 3_000) -> None:
    """A partition that appends and publishes, one frame after the other."""
    for offset in offsets:
        await wal.append(frame(offset, partition=BUSY, size=size))
        wal.release(TOPIC, BUSY, offset + 1)


async def of(wal: Wal, partition: int) -> list[int]:
    return [each.base_offset async for each in wal.recovered.of(TOPIC, partition)]


async def test_a_stuck_partition_pins_no_files(tmp_path: Path) -> None:
    async with opened(tmp_path / "wal", settings=COPYING) as wal:
        for offset in range(3):
            await wal.append(frame(offset, partition=STUCK))
        most = 0
        for offset in range(300):
            await work(wal, [offset])
            most = max(most, len(wal._file_references.files))
        assert wal.stats.rolls >= 30
        assert most < 20  # it was all of them
        assert wal.unreleased() == {(TOPIC, STUCK): 3}
    # What was copied is what was written, and in a WAL of its own right.
    async with opened(tmp_path / "wal", settings=COPYING, seed=2) as wal:
        found = [each async for each in wal.recovered.of(TOPIC, STUCK)]
        assert sorted({each.base_offset for each in found}) == [0, 1, 2]
        assert all(each.payload[0] == payload_of(STUCK, each.base_offset, 100) and each.epoch == 1 for each in found)


async def test_frames_recovered_at_the_start_are_found_after_they_were_copied(tmp_path: Path) -> None:
    await fill(tmp_path / "wal", (frame(offset, partition=offset % 2, size=500) for offset in range(20)))
    async with opened(tmp_path / "wal", settings=COPYING) as wal:
        wal.release(TOPIC, BUSY, 20)
        first = live_files(tmp_path / "wal")[0]
        await work(wal, range(20, 120))
        assert first not in live_files(tmp_path / "wal")
        assert sorted(set(await of(wal, STUCK))) == list(range(0, 20, 2))


@pytest.mark.slow
async def test_a_reader_in_the_middle_of_a_file_that_goes_away_finds_the_rest(tmp_path: Path) -> None:
    await fill(tmp_path / "wal", (frame(offset, partition=STUCK, size=3_000) for offset in range(15)))
    async with opened(tmp_path / "wal", settings=COPYING) as wal:
        reading = wal.recovered.of(TOPIC, STUCK)
        seen = {(await anext(reading)).base_offset}
        first = live_files(tmp_path / "wal")[0]
        await work(wal, range(200))
        assert first not in live_files(tmp_path / "wal")
        seen |= {each.base_offset async for each in reading}
        assert seen == set(range(15))


async def test_what_is_released_while_it_is_copied_stays_released(tmp_path: Path) -> None:
    async with opened(tmp_path / "wal", settings=COPYING) as wal:
        await wal.append(frame(0, partition=STUCK))

        def release(label: str) -> None:
            if label == "wal.frames-copied":
                wal.release(TOPIC, STUCK, 1)

        with failpoints.installed(release):
            await work(wal, range(60))
        assert wal.stats.copied_frames == 1
        assert wal.unreleased() == {}
        assert len(wal._file_references.files) <= 2


async def test_a_file_that_is_released_before_it_is_copied_ends_no_later_copy(tmp_path: Path) -> None:
    async with opened(tmp_path / "wal", settings=COPYING) as wal:
        await wal.append(frame(0, partition=STUCK))
        begun: list[int] = []

        def release(label: str) -> None:
            if label == "wal.copy-begun":
                begun.append(1)
                if len(begun) == 1:
                    wal.release(TOPIC, STUCK, 1)
                    until(lambda: wal._file_worker._jobs.empty(), what="the file is a spare, or in use again")

        with failpoints.installed(release):
            await work(wal, range(60))
            await wal.append(frame(1, partition=STUCK))
            await work(wal, range(60, 160))
        assert len(begun) > 1
        assert wal.stats.copied_frames >= 1
        assert wal.unreleased() == {(TOPIC, STUCK): 2}


@pytest.mark.slow
async def test_copying_writes_no_more_than_it_frees(tmp_path: Path) -> None:
    """Twenty frames of 3000 bytes are stuck: two files of them."""
    async with opened(tmp_path / "wal", settings=COPYING) as wal:
        for offset in range(20):
            await wal.append(frame(offset, partition=STUCK, size=3_000))
        await work(wal, range(400))
        assert wal.stats.copied_bytes > 0
        # About one byte copied for each that was appended; a little more, because the ends of files stay empty.
        assert wal.stats.copied_bytes <= 1.5 * (wal.stats.bytes - wal.stats.copied_bytes)
        await async_until(lambda: len(wal._file_references.files) <= 7)  # copying is another task
        assert wal.unreleased() == {(TOPIC, STUCK): 20}
    found = await offsets(tmp_path / "wal", settings=COPYING)
    assert {offset for partition, offset in found if partition == STUCK} == set(range(20))


async def test_files_that_are_mostly_needed_are_left_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "wal", settings=COPYING) as wal:
        for offset in range(80):
            await wal.append(frame(offset, partition=offset % 4, size=3_000))
        await turns()
        assert wal.stats.copied_frames == 0


async def test_a_crash_between_copy_and_release_leaves_both_and_loses_none(tmp_path: Path) -> None:
    crashed: list[Path] = []

    def crash(label: str) -> None:
        if label == "wal.frames-copied" and not crashed:
            crashed.append(crash_copy(tmp_path / "wal", tmp_path / "crashed"))

    async with opened(tmp_path / "wal", settings=COPYING) as wal:
        for offset in range(4):
            await wal.append(frame(offset, partition=STUCK))
        with failpoints.installed(crash):
            await work(wal, range(100))
    found = [offset for partition, offset in await offsets(crashed[0], settings=COPYING) if partition == STUCK]
    assert sorted(found) == sorted([*range(4), *range(4)])


async def test_a_full_disk_ends_a_copy_and_costs_nothing(tmp_path: Path) -> None:
    disk = FullDisk()
    async with opened(tmp_path / "wal", settings=COPYING, disk=disk) as wal:
        await wal.append(frame(0, partition=STUCK))

        def fill_disk(label: str) -> None:
            disk.full = label == "wal.copy-begun" or disk.full

        with failpoints.installed(fill_disk), pytest.raises(UnavailableError):
            await work(wal, range(100))
        disk.full = False
        await work(wal, range(100, 200))
        assert wal.stats.copied_frames > 0
        assert wal.unreleased() == {(TOPIC, STUCK): 1}
    found = await offsets(tmp_path / "wal", settings=COPYING)
    assert {offset for partition, offset in found if partition == STUCK} == {0}


async def test_leaving_in_the_middle_of_a_copy_ends_it(tmp_path: Path) -> None:
    async with opened(tmp_path / "wal", settings=COPYING) as wal:
        for offset in range(10):
            await wal.append(frame(offset, partition=STUCK, size=2_000))
        appends = [wal.append(frame(offset, partition=BUSY, size=3_000)) for offset in range(60)]
        await asyncio.gather(*appends)
        wal.release(TOPIC, BUSY, 60)
        await turns(2)
    found = await offsets(tmp_path / "wal", settings=COPYING)
    assert {offset for partition, offset in found if partition == STUCK} == set(range(10))


async def test_a_file_in_which_something_became_unreadable_is_kept(tmp_path: Path) -> None:
    async with opened(tmp_path / "wal", settings=COPYING) as wal:
        await wal.append(frame(0, partition=STUCK))
        await wal.append(frame(0, partition=2))
        await work(wal, range(4))  # the block with both is not written again
        first = live_files(tmp_path / "wal")[0][1]
        flip(first, first.read_bytes().index(payload_of(2, 0, 100)) - 50)  # in the head of the second frame
        await work(wal, range(4, 100))
        assert first in [path for _, path in live_files(tmp_path / "wal")]
