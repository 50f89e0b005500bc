"""What the WAL tests share: frames that can be recognised, a WAL on a small disk, and what is in it afterwards."""

import os
import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from holdfast.log.wal import Wal, WalDisk, WalFrame, WalSettings
from holdfast.log.wal.files import live_files
from holdfast.vocabulary.clock import Clock, RealClock
from holdfast.vocabulary.random import SeededRandom
from holdfast.vocabulary.settings import KIB

TOPIC = bytes(range(16))
OTHER = bytes(range(16, 32))
SMALL = WalSettings(file_bytes=32 * KIB, files_spare_max=3, read_bytes=4 * KIB, copy_forward_files=1_000)


def payload_of(partition: int, offset: int, size: int) -> bytes:
    """Bytes that say where they belong."""
    text = f"{partition}:{offset};".encode()
    return (text * (size // len(text) + 1))[:size]


def frame(offset: int, *, partition: int = 0, count: int = 1, size: int = 100, topic_id: bytes = TOPIC) -> WalFrame:
    return WalFrame(topic_id, partition, 1, offset, count, (payload_of(partition, offset, size),))


@asynccontextmanager
async def opened(
    directory: Path,
    *,
    settings: WalSettings = SMALL,
    disk: WalDisk | None = None,
    seed: int = 1,
    clock: Clock | None = None,
) -> AsyncIterator[Wal]:
    async with Wal.open(
        directory,
        clock=clock or RealClock(),
        random=SeededRandom(seed),
        settings=settings,
        disk=disk,
    ) as wal:
        yield wal


async def fill(directory: Path, frames: Iterable[WalFrame], **how: object) -> None:
    """A WAL with these frames, each in a group of its own, closed as a crash leaves it: without a mark at the end."""
    async with opened(directory, **how) as wal:  # type: ignore[arg-type]
        for each in frames:
            await wal.append(each)
        crashed = crash_copy(directory, directory.with_name(directory.name + "-crashed"))
    shutil.rmtree(directory)
    crashed.rename(directory)


def crash_copy(directory: Path, to: Path) -> Path:
    """The directory as a crash at this moment would leave it. Files the keeper is just making or renaming may be left out."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir()
    for path in directory.iterdir():
        with suppress(FileNotFoundError):
            shutil.copyfile(path, to / path.name)
    return to


async def offsets(directory: Path, **how: object) -> list[tuple[int, int]]:
    """(partition, offset) of everything a WAL gives back; payloads are checked."""
    async with opened(directory, **how) as wal:  # type: ignore[arg-type]
        return [place async for place in places(wal)]


async def places(wal: Wal) -> AsyncIterator[tuple[int, int]]:
    async for each in wal.recovered:
        assert each.payload[0] == payload_of(each.partition, each.base_offset, len(each.payload[0]))
        yield each.partition, each.base_offset


def newest(directory: Path) -> Path:
    """The file with the last frames."""
    return max((path for _, path in live_files(directory)), key=_end_of_data)


def _end_of_data(path: Path) -> tuple[bool, str]:
    return any(path.read_bytes()[512:4096]), path.name


def overwrite(path: Path, position: int, data: bytes) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.pwrite(descriptor, data, position)
    finally:
        os.close(descriptor)


def flip(path: Path, position: int, bit: int = 0) -> None:
    byte = path.read_bytes()[position]
    overwrite(path, position, bytes([byte ^ (1 << bit)]))


async def turns(count: int = 5) -> None:
    """Let the tasks that are ready run."""
    for _ in range(count):
        await RealClock().sleep_ms(0)
