"""A disk that is full, slow to take bytes, or broken."""

import asyncio
import errno
import logging
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.support.waiting import async_until
from tests.support.wal import TOPIC, crash_copy, fill, frame, offsets, opened
from tests.support.wal_disks import CacheOnlyDisk

from holdfast.log.wal import Wal, WalFrame, WalSettings
from holdfast.log.wal.frames import FRAMES_AT, Buffer, checked_bytes
from holdfast.log.wal.recovery import scan_directory
from holdfast.vocabulary.errors import CorruptError, UnavailableError
from holdfast.vocabulary.settings import KIB


class FaultyDisk(CacheOnlyDisk):
    """Fails where a test says. Only the writer's calls, unless `everybody`."""

    def __init__(self) -> None:
        self.room_bytes: int | None = None  # what still fits before ENOSPC; change it with `make_room`
        self._lock = threading.Lock()
        self.sync_error: int | None = None
        self.bytes_per_write = 1 << 30
        self.everybody = False
        self.strikes_fail = False
        self.gate = threading.Event()
        self.gate.set()
        self.at_gate = False  # somebody has come to it since it was shut

    def write(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        if not self._mine():
            return super().write(descriptor, buffers, position)
        self.at_gate = True
        self.gate.wait(30)
        data = b"".join(buffers)[: self.bytes_per_write]
        with self._lock:
            if self.room_bytes is not None and (data != bytes(4) or self.strikes_fail):
                if self.room_bytes == 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                data = data[: self.room_bytes]
                self.room_bytes -= len(data)
        return super().write(descriptor, (data,), position)

    async def shut_gate(self, wal: Wal, plug: WalFrame) -> "asyncio.Future[int]":
        """From now on everything queues up behind `plug`, and is the next group when the gate is opened."""
        self.at_gate = False
        self.gate.clear()
        plugged = wal.append(plug)
        await async_until(lambda: self.at_gate)
        return plugged

    def make_room(self, room_bytes: int | None) -> None:
        with self._lock:
            self.room_bytes = room_bytes

    def sync(self, descriptor: int) -> None:
        if self._mine() and self.sync_error is not None:
            raise OSError(self.sync_error, os.strerror(self.sync_error))
        super().sync(descriptor)

    def free_bytes(self, directory: Path) -> int:
        room_bytes = self.room_bytes
        return room_bytes if room_bytes is not None else super().free_bytes(directory)

    def _mine(self) -> bool:
        return self.everybody or threading.current_thread().name == "wal-writer"


async def failures(answers: list["asyncio.Future[int]"]) -> list[type[BaseException] | int]:
    return [
        result if isinstance(result, int) else type(result)
        for result in await asyncio.gather(*answers, return_exceptions=True)
    ]


@pytest.mark.parametrize("bytes_per_write", [1, 50, 97, 1000])
async def test_short_writes_are_continued(tmp_path: Path, bytes_per_write: int) -> None:
    disk = FaultyDisk()
    disk.bytes_per_write = bytes_per_write
    async with opened(tmp_path / "wal", disk=disk) as wal:
        answers = [wal.append(frame(offset)._replace(payload=(b"0:", f"{offset};".encode()))) for offset in range(9)]
        assert await asyncio.gather(*answers) == list(range(1, 10))
    assert await offsets(tmp_path / "wal") == [(0, offset) for offset in range(9)]


@pytest.mark.parametrize("strikes_fail", [False, True])
@pytest.mark.parametrize("room_bytes", [0, 1, 95, 96, 196, 250, 392, 600])
async def test_a_full_disk_refuses_the_group_and_all_behind_it(
    tmp_path: Path, room_bytes: int, strikes_fail: bool
) -> None:
    disk = FaultyDisk()
    disk.strikes_fail = strikes_fail
    async with opened(tmp_path / "wal", disk=disk) as wal:
        assert await wal.append(frame(0)) == 1
        plugged = await disk.shut_gate(wal, frame(1))
        disk.make_room(checked_bytes(frame(1), KIB) + room_bytes)
        answers = [wal.append(frame(offset)) for offset in range(2, 30)]
        disk.gate.set()
        assert await plugged == 2
        assert set(await failures(answers)) == {UnavailableError}
        error = answers[0].exception()
        assert str(tmp_path / "wal") in str(error)
        assert "bytes are free" in str(error)
        assert wal.stats.refused == 28
        assert wal.in_flight_bytes == 0
        crash_copy(tmp_path / "wal", tmp_path / "full")

        disk.make_room(None)
        assert await wal.append(frame(2)) == 3  # as long as the first refused one: the second must not reappear
        crash_copy(tmp_path / "wal", tmp_path / "crash")
        assert await wal.append(frame(3)) == 4
    assert await offsets(tmp_path / "full") == [(0, 0), (0, 1)]
    assert await offsets(tmp_path / "crash") == [(0, 0), (0, 1), (0, 2)]
    assert await offsets(tmp_path / "wal") == [(0, 0), (0, 1), (0, 2), (0, 3)]


@pytest.mark.parametrize("room_bytes", [0, 96, 5_000, 70_000, 140_000, 200_000])
async def test_a_full_disk_leaves_nothing_of_large_frames_with_gaps_before_them(
    tmp_path: Path, room_bytes: int
) -> None:
    disk, settings = FaultyDisk(), WalSettings(file_bytes=1024 * KIB)
    async with opened(tmp_path / "wal", disk=disk, settings=settings) as wal:
        assert await wal.append(frame(0, size=70_000)) == 1
        plugged = await disk.shut_gate(wal, frame(1))
        disk.make_room(4_096 + room_bytes)
        answers = [wal.append(frame(offset, size=70_000)) for offset in range(2, 5)]
        disk.gate.set()
        assert await plugged == 2
        assert await failures(answers) == [UnavailableError] * 3
        disk.make_room(None)
        assert await wal.append(frame(2, size=50)) == 3
        crashed = crash_copy(tmp_path / "wal", tmp_path / "crashed")
    for directory in (tmp_path / "wal", crashed):
        assert await offsets(directory, settings=settings) == [(0, 0), (0, 1), (0, 2)]


async def test_no_space_for_another_file_refuses_until_there_is_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="holdfast.log.wal")
    disk = FaultyDisk()
    disk.everybody = True
    settings = WalSettings(file_bytes=32 * KIB, files_spare_max=0)
    async with opened(tmp_path / "wal", disk=disk, settings=settings) as wal:
        offset = 0
        for _ in range(3):
            disk.make_room(20 * KIB)  # less than a file
            refused = False
            while not refused:
                try:
                    await wal.append(frame(offset, size=3000))
                    offset += 1
                except UnavailableError:
                    with pytest.raises(UnavailableError):
                        await wal.append(frame(offset, size=3000))
                    refused = True
                    disk.make_room(None)
                if disk.room_bytes is not None:
                    disk.make_room(20 * KIB)
            rolls = (
                wal.stats.rolls
            )  # the keeper may have taken the space that this file wanted: then it goes on, and says so later
            while wal.stats.rolls == rolls:
                await wal.append(frame(offset, size=3000))
                offset += 1
        assert wal.stats.rolls >= 3
    said = [each.getMessage().partition(":")[0] for each in caplog.records]
    assert said == ["appends are refused", f"WAL {tmp_path / 'wal'} has space again"] * 3
    assert await offsets(tmp_path / "wal", settings=settings) == [(0, at) for at in range(offset)]


async def test_a_full_disk_at_the_start_is_a_clear_error(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.everybody = True
    disk.make_room(1000)
    with pytest.raises(UnavailableError, match="1000 bytes are free"):
        async with opened(tmp_path / "wal", disk=disk):
            pass
    disk.make_room(None)
    async with opened(tmp_path / "wal", disk=disk) as wal:
        assert await wal.append(frame(0)) == 1


@pytest.mark.parametrize("reason", [errno.EIO, errno.ENOSPC])
async def test_a_failed_sync_stops_everything_and_is_never_tried_again(tmp_path: Path, reason: int) -> None:
    disk = FaultyDisk()
    reached: list[str] = []

    async def use() -> None:
        async with opened(tmp_path / "wal", disk=disk) as wal:
            assert await wal.append(frame(0)) == 1
            disk.sync_error = reason
            disk.gate.clear()
            answers = [wal.append(frame(offset)) for offset in range(1, 5)]
            waiting = asyncio.ensure_future(wal.room(1 << 40))
            disk.gate.set()
            try:
                await for_ever()
            finally:
                disk.sync_error = None  # the disk is well again; nobody may try
                assert set(await failures(answers)) == {CorruptError}
                assert isinstance(await wal.failed, CorruptError)
                with pytest.raises(CorruptError):
                    wal.append(frame(9))
                with pytest.raises(CorruptError):
                    await wal.room(1)
                with pytest.raises(CorruptError):
                    await waiting
                reached.append("the end")

    with pytest.raises(CorruptError, match="sync failed"):
        await use()
    assert reached == ["the end"]
    assert (await offsets(tmp_path / "wal"))[0] == (0, 0)


async def for_ever() -> None:
    await asyncio.get_running_loop().create_future()


async def test_an_append_that_fails_with_the_wal_raises_one_plain_error(tmp_path: Path) -> None:
    disk = FaultyDisk()

    async def use() -> None:
        async with opened(tmp_path / "wal", disk=disk) as wal:
            disk.sync_error = errno.EIO
            await wal.append(frame(0))

    with pytest.raises(CorruptError, match="the process must stop"):
        await use()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_an_error_of_the_body_is_not_replaced(tmp_path: Path) -> None:
    async def fail() -> None:
        async with opened(tmp_path / "wal") as wal:
            await wal.append(frame(0))
            raise ZeroDivisionError

    async def be_late() -> None:
        async with asyncio.timeout(0.05), opened(tmp_path / "wal"):
            await for_ever()

    with pytest.raises(ZeroDivisionError):
        await fail()
    with pytest.raises(TimeoutError):
        await be_late()
    assert await offsets(tmp_path / "wal") == [(0, 0)]


async def test_a_file_that_cannot_be_retired_stops_the_wal(tmp_path: Path) -> None:
    async def use() -> None:
        async with opened(tmp_path / "wal") as wal:
            for offset in range(20):
                await wal.append(frame(offset, size=3000))
            wal._file_references.files[0].path.unlink()
            wal.release(TOPIC, 0, 20)
            await for_ever()

    with pytest.raises(CorruptError, match="cannot be used again"):
        await use()


async def test_a_tail_that_a_failed_sync_left_in_memory_is_written_again(tmp_path: Path) -> None:
    """After a failed sync the system shows pages that are not on disk; recovery must not believe them."""

    await fill(tmp_path / "wal", (frame(offset) for offset in range(3)))
    last = scan_directory(tmp_path / "wal").files[-1]
    inode = last.path.stat().st_ino

    class WatchedDisk(CacheOnlyDisk):
        def __init__(self) -> None:
            self.written: set[int] = set()

        def write(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
            if os.fstat(descriptor).st_ino == inode:  # the keeper writes other files meanwhile
                self.written.update(range(position, position + sum(map(len, buffers))))
            return super().write(descriptor, buffers, position)

    last_group = set(range(FRAMES_AT + 2 * 196, FRAMES_AT + 3 * 196))
    assert last.unproven == min(last_group)
    disk = WatchedDisk()
    async with opened(tmp_path / "wal", disk=disk):
        assert last_group <= disk.written
        assert min(disk.written) == min(last_group)
    disk = WatchedDisk()
    async with opened(tmp_path / "wal", disk=disk) as wal:
        assert wal.recovered.frames == 4
    assert not disk.written  # proven by the mark: nothing is left to do


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    point = tmp_path / "disk"
    point.mkdir()
    mount = shutil.which("mount")
    made = mount and subprocess.run([mount, "-t", "tmpfs", "-o", "size=200k", "tmpfs", point], capture_output=True)
    if not made or made.returncode:
        pytest.skip("only root can make a disk this small")
    yield point
    subprocess.run(["umount", point], check=True)


async def test_a_really_full_disk_refuses_and_recovers(small_disk: Path) -> None:
    settings = WalSettings(file_bytes=32 * KIB, files_spare_max=2)
    ballast = small_disk / "ballast"
    async with opened(small_disk / "wal", settings=settings) as wal:
        ballast.write_bytes(bytes(80 * KIB))
        end = 0
        refused = ""
        while not refused:
            try:
                await wal.append(frame(end, size=3000))
                end += 1
            except UnavailableError as error:
                refused = str(error)
        assert "the disk is full" in refused
        with pytest.raises(UnavailableError):
            await wal.append(frame(end, size=28_000))
        ballast.unlink()
        for offset in range(end, end + 10):
            await wal.append(frame(offset, size=3000))
    assert end > 3
    assert await offsets(small_disk / "wal", settings=settings) == [(0, offset) for offset in range(end + 10)]
