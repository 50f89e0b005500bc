"""Appending, grouping, waiting, rolling, releasing: the WAL while all is well."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.wal import OTHER, SMALL, TOPIC, fill, frame, offsets, opened, places, turns
from tests.support.wal_disks import CacheOnlyDisk

from holdfast.log.slabs import Slabs, SlabSettings
from holdfast.log.wal import NOTE, Wal
from holdfast.log.wal import wal as wal_module
from holdfast.log.wal.files import live_files, spare_files
from holdfast.log.wal.frames import Buffer
from holdfast.log.wal.repair import RepairReport, read_repairs
from holdfast.vocabulary.clock import FakeClock, RealClock
from holdfast.vocabulary.errors import ClosedError, InvalidError, UnavailableError


class GatedDisk(CacheOnlyDisk):
    """Syncs wait for the gate, so that a test decides what is queued meanwhile."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.writes = 0
        self.syncing = threading.Event()

    def write(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        self.writes += threading.current_thread().name == "wal-writer"
        return super().write(descriptor, buffers, position)

    def sync(self, descriptor: int) -> None:
        if threading.current_thread().name == "wal-writer":
            self.syncing.set()
            self.gate.wait(30)
        super().sync(descriptor)


async def test_what_was_appended_is_there_again_in_order(tmp_path: Path) -> None:
    async with opened(tmp_path / "wal") as wal:
        lsns = [await wal.append(frame(offset, partition=offset % 3, size=offset * 10)) for offset in range(20)]
        assert lsns == list(range(1, 21))
        assert [place async for place in places(wal)] == []
    assert await offsets(tmp_path / "wal") == [(offset % 3, offset) for offset in range(20)]


async def test_every_field_comes_back(tmp_path: Path) -> None:
    written = frame(41, partition=2, count=9)._replace(
        kind=NOTE, epoch=77, payload=(b"a", bytearray(b"b"), memoryview(b"c"))
    )
    async with opened(tmp_path / "wal") as wal:
        lsn = await wal.append(written)
    async with opened(tmp_path / "wal") as wal:
        [read] = [each async for each in wal.recovered]
    assert read == written._replace(payload=(b"abc",), lsn=lsn)
    assert read.end_offset == 50


async def test_an_empty_payload_is_a_frame(tmp_path: Path) -> None:
    async with opened(tmp_path / "wal") as wal:
        await wal.append(frame(0)._replace(payload=()))
    assert await offsets(tmp_path / "wal") == [(0, 0)]


async def test_appends_that_come_during_a_sync_share_the_next_one(tmp_path: Path) -> None:
    disk = GatedDisk()
    async with opened(tmp_path / "wal", disk=disk) as wal:
        first = wal.append(frame(0))
        await asyncio.to_thread(disk.syncing.wait, 30)
        rest = [wal.append(frame(offset)) for offset in range(1, 100)]
        assert not first.done()
        disk.gate.set()
        assert await asyncio.gather(first, *rest) == list(range(1, 101))
        assert wal.stats.groups == wal.stats.fsyncs == disk.writes == 2
        assert wal.stats.frames == 100
        assert wal.in_flight_bytes == 0
        assert wal.synced_lsn == 100


async def test_nothing_is_acknowledged_before_its_sync(tmp_path: Path) -> None:
    disk = GatedDisk()
    async with opened(tmp_path / "wal", disk=disk) as wal:
        answer = wal.append(frame(0))
        await asyncio.to_thread(disk.syncing.wait, 30)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(answer), 0.05)
        disk.gate.set()
        assert await answer == 1


async def test_a_group_is_cut_at_its_limit_and_more_buffers_than_one_call_takes_are_written(tmp_path: Path) -> None:
    disk = GatedDisk()
    settings = replace(SMALL, file_bytes=1 << 20, group_bytes_max=300_000)
    async with opened(tmp_path / "wal", disk=disk, settings=settings) as wal:
        answers = [wal.append(frame(0))]
        await asyncio.to_thread(disk.syncing.wait, 30)
        answers += [wal.append(frame(offset)) for offset in range(1, 3000)]  # 196 bytes each, two buffers each
        disk.gate.set()
        assert await asyncio.gather(*answers) == list(range(1, 3001))
        assert wal.stats.groups == 3
        assert disk.writes > 3
    assert await offsets(tmp_path / "wal", settings=settings) == [(0, offset) for offset in range(3000)]


async def test_a_group_may_wait_for_company(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path / "wal", settings=replace(SMALL, group_wait_ms=10), clock=clock) as wal:
        first = wal.append(frame(0))
        await RealClock().sleep_ms(30)
        assert not first.done()  # by the WAL's clock no time went by
        last = wal.append(frame(1))
        clock.advance_ms(10)
        assert (await first, await last) == (1, 2)
        assert wal.stats.groups == 1


async def test_a_full_group_does_not_wait(tmp_path: Path) -> None:
    settings = replace(SMALL, group_wait_ms=10, group_bytes_max=392)
    async with opened(tmp_path / "wal", settings=settings, clock=FakeClock()) as wal:
        assert await asyncio.gather(*(wal.append(frame(offset)) for offset in range(4))) == [1, 2, 3, 4]


async def test_room_waits_for_bytes_in_flight_and_goes_on_in_order(tmp_path: Path) -> None:
    disk = GatedDisk()
    async with opened(tmp_path / "wal", disk=disk, settings=replace(SMALL, in_flight_bytes_max=1000)) as wal:
        await wal.room(5000)  # a lone one always fits
        answers = [wal.append(frame(0, size=900))]
        passed: list[int] = []

        async def append_later(offset: int) -> None:
            await wal.room(500)
            passed.append(offset)
            answers.append(wal.append(frame(offset, size=404)))

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(append_later(offset)) for offset in range(1, 6)]
            await turns()
            assert passed == []
            tasks[1].cancel()
            disk.gate.set()
        assert passed == [1, 3, 4, 5]
        assert await asyncio.gather(*answers) == [1, 2, 3, 4, 5]
        assert wal.stats.stalls >= 4


async def test_a_cancelled_caller_does_not_disturb_the_others(tmp_path: Path) -> None:
    disk = GatedDisk()
    async with opened(tmp_path / "wal", disk=disk) as wal:
        answers = [wal.append(frame(offset)) for offset in range(3)]
        answers[1].cancel()
        disk.gate.set()
        assert await answers[2] == 3
    assert await offsets(tmp_path / "wal") == [(0, 0), (0, 1), (0, 2)]


async def test_a_caller_that_is_cancelled_while_the_wal_opens_leaves_it_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, gate = threading.Event(), threading.Event()

    def read_slowly(directory: Path) -> list[RepairReport]:
        reading.set()
        gate.wait(30)
        return read_repairs(directory)

    async def open_and_wait() -> None:
        async with opened(tmp_path / "wal"):
            await asyncio.Event().wait()

    monkeypatch.setattr(wal_module, "read_repairs", read_slowly)
    task = asyncio.create_task(open_and_wait())
    await asyncio.to_thread(reading.wait, 30)
    task.cancel()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with opened(tmp_path / "wal") as wal:
        assert await wal.append(frame(0)) == 1


async def test_leaving_waits_for_what_was_appended(tmp_path: Path) -> None:
    async with opened(tmp_path / "wal") as wal:
        answers = [wal.append(frame(offset)) for offset in range(50)]
    assert [answer.result() for answer in answers] == list(range(1, 51))
    with pytest.raises(ClosedError):
        wal.append(frame(50))
    with pytest.raises(ClosedError):
        await wal.room(1)


async def test_only_one_process_opens_a_wal(tmp_path: Path) -> None:
    async with opened(tmp_path / "wal"):
        with pytest.raises(UnavailableError, match="is open in process"):
            async with opened(tmp_path / "wal"):
                pass
    async with opened(tmp_path / "wal"):
        pass


async def test_an_invalid_frame_is_refused_and_affects_no_other(tmp_path: Path) -> None:
    async with opened(tmp_path / "wal") as wal:
        with pytest.raises(InvalidError, match="payload bytes"):
            wal.append(frame(0, size=SMALL.payload_bytes_max + 1))
        assert await wal.append(frame(0, size=SMALL.payload_bytes_max)) == 1
        assert await wal.append(frame(1)) == 2


async def test_files_roll_and_are_used_again_oldest_first(tmp_path: Path) -> None:
    async with opened(tmp_path / "wal") as wal:
        for offset in range(40):
            await wal.append(frame(offset, partition=offset % 2, size=3000))
        assert wal.stats.rolls == 4
        assert len(wal._file_references.files) == 5
        assert wal.holding_oldest() == {(TOPIC, 0), (TOPIC, 1)}
        wal.release(TOPIC, 0, 40)
        assert wal.holding_oldest() == {(TOPIC, 1)}
        assert wal.unreleased() == {(TOPIC, 1): 40}
        wal.release(TOPIC, 1, 1)
        assert wal.live_bytes == 5 * SMALL.file_bytes
        wal.release(TOPIC, 1, 20)  # the third file ends at offset 26: two are free
        assert wal.live_bytes == 3 * SMALL.file_bytes
        wal.release(OTHER, 1, 100)
        wal.release(TOPIC, 1, 40)
        assert wal.live_bytes == SMALL.file_bytes
        for offset in range(40, 200):
            await wal.append(frame(offset, partition=7, size=3000))
            wal.release(TOPIC, 7, offset + 1)
    assert wal.stats.recycled > 15
    assert len(live_files(tmp_path / "wal")) <= 3
    assert len(spare_files(tmp_path / "wal")) <= SMALL.files_spare_max
    assert [partition for partition, _ in await offsets(tmp_path / "wal")] == [7] * len(await offsets(tmp_path / "wal"))


async def test_more_spares_than_wanted_are_deleted(tmp_path: Path) -> None:
    settings = replace(SMALL, files_spare_max=0)
    async with opened(tmp_path / "wal", settings=settings) as wal:
        for offset in range(30):
            await wal.append(frame(offset, size=3000))
        wal.release(TOPIC, 0, 30)
    assert spare_files(tmp_path / "wal") == []
    assert len(live_files(tmp_path / "wal")) == 2


async def test_files_of_another_size_are_read_and_not_kept(tmp_path: Path) -> None:
    await fill(tmp_path / "wal", (frame(offset, size=3000) for offset in range(20)))
    larger = replace(SMALL, file_bytes=SMALL.file_bytes * 2)
    async with opened(tmp_path / "wal", settings=larger) as wal:
        assert [offset async for _, offset in places(wal)] == list(range(20))
        await wal.append(frame(20, size=SMALL.file_bytes))
        wal.release(TOPIC, 0, 20)
    assert await offsets(tmp_path / "wal", settings=larger) == [(0, 20)]
    assert {path.stat().st_size for _, path in live_files(tmp_path / "wal")} == {larger.file_bytes}


async def test_a_partitions_frames_can_be_read_by_themselves_and_as_long_as_they_are_unreleased(tmp_path: Path) -> None:
    await fill(tmp_path / "wal", (frame(offset, partition=offset // 10, size=3000) for offset in range(40)))
    async with opened(tmp_path / "wal") as wal:
        assert wal.unreleased() == {(TOPIC, part): 10 * part + 10 for part in range(4)}
        assert wal.recovered.frames == 40
        for offset in range(40, 60):
            await wal.append(frame(offset, partition=3, size=3000))
        assert [each.base_offset async for each in wal.recovered.of(TOPIC, 3)] == list(range(30, 40))
        assert [each async for each in wal.recovered.of(OTHER, 3)] == []
        stream = wal.recovered.of(TOPIC, 0)
        assert (await anext(stream)).base_offset == 0
        for part in range(3):
            wal.release(TOPIC, part, 10 * part + 10)
        for offset in range(60, 90):  # the released files are written again
            await wal.append(frame(offset, partition=3, size=3000))
        assert {each.partition async for each in wal.recovered} == {2, 3}


async def test_opening_again_and_again_takes_no_more_files(tmp_path: Path) -> None:
    for offset in range(6):
        async with opened(tmp_path / "wal", seed=offset) as wal:
            assert [seen async for _, seen in places(wal)] == list(range(offset))
            await wal.append(frame(offset))
    assert len(live_files(tmp_path / "wal")) == 2  # the one in use, and the one made ready
    assert len(spare_files(tmp_path / "wal")) == 0


async def test_payload_memory_is_free_once_it_is_durable(tmp_path: Path) -> None:
    slabs = Slabs(SlabSettings(slab_bytes=8192, bytes_max=8192))
    async with opened(tmp_path / "wal") as wal:
        for offset in range(10):
            await slabs.room()
            slab = slabs.take()
            assert slab is not None
            slab[:5] = b"hello"
            answer = wal.append(frame(offset)._replace(payload=(slab[:5],)))
            del slab
            assert slabs.pinned_bytes == 8192
            await answer
        await slabs.room()
        assert slabs.pinned_bytes == 0


async def test_appends_of_many_tasks_keep_each_tasks_order(tmp_path: Path) -> None:
    async def produce(wal: Wal, partition: int) -> None:
        for offset in range(100):
            await wal.room(300)
            await wal.append(frame(offset, partition=partition, size=partition * 20))

    async with opened(tmp_path / "wal", settings=replace(SMALL, in_flight_bytes_max=2000)) as wal:
        async with asyncio.TaskGroup() as group:
            for partition in range(8):
                group.create_task(produce(wal, partition))
        assert wal.stats.groups < wal.stats.frames
    read = await offsets(tmp_path / "wal")
    assert [[offset for at, offset in read if at == partition] for partition in range(8)] == [list(range(100))] * 8


async def test_a_callback_that_raises_does_not_keep_the_next_from_being_called(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[object] = []

    def broken(error: object) -> None:
        raise RuntimeError("no")

    async with opened(tmp_path / "wal") as wal:
        wal.append_with_callback(frame(0), broken)
        wal.append_with_callback(frame(1), lambda error: called.append((wal.synced_lsn, error)))
        assert await wal.append(frame(2)) == 3
    assert called == [(2, None)]
    assert any("append callback for LSN 1 " in each for each in caplog.messages)
