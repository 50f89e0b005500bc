"""The WAL: appends with group commit against a bare `pwrite` + `fdatasync` loop, and how long recovery takes.

The bare loop writes 1 MiB at a time into a file that was written before, on the same disk, from the same memory, and does
nothing else: no frames, no checksums, no futures, one thread.
"""

import asyncio
import os
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from crc32c import crc32c

from bench.figures import Figure, against
from bench.measure import Compared, compare_runs
from bench.memory import watch_memory
from holdfast.log.wal import Wal, WalFrame, WalSettings
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom
from holdfast.vocabulary.settings import KIB, MIB

TOPIC: Final = bytes(range(16))
PART: Final = "WAL"
_RELEASE_BEHIND: Final = 64 * MIB  # as a publisher would: what is older than this is in object storage


async def measure(directory: Path, *, quick: bool, say: Callable[[str], None]) -> AsyncIterator[Figure]:
    # Short turns, many of them: a disk shared with others is fast and slow by the second.
    run_bytes, rounds = 128 * MIB, 7 if quick else 21
    for size, in_flight, ratio_min in ((16 * KIB, 256, 0.7), (MIB, 16, 0.8)):
        say(f"{size // KIB} KiB payloads")
        what = f"append, {size // KIB} KiB payloads, {in_flight} appenders"
        found, note = await _appends(directory, size, in_flight, run_bytes=run_bytes, rounds=rounds)
        yield against(PART, what, "MB/s", found, ratio_min=ratio_min, note=note)
    say("recovery")
    async for figure in _recovery(directory, 256 * MIB if quick else 1024 * MIB):
        yield figure


@asynccontextmanager
async def _opened(directory: Path, settings: WalSettings | None = None) -> AsyncIterator[Wal]:
    async with Wal.open(directory, clock=RealClock(), random=SystemRandom(), settings=settings) as wal:
        yield wal


async def _appends(directory: Path, size: int, in_flight: int, *, run_bytes: int, rounds: int) -> tuple[Compared, str]:
    memory = memoryview(bytearray(os.urandom(MIB)) * max(1, size * in_flight // MIB))
    bare = directory / "bare"
    bare.write_bytes(bytes(64 * MIB))
    try:
        async with _opened(directory / "wal") as wal:
            found = await compare_runs(
                lambda: _append(wal, memory, size, in_flight, run_bytes),
                lambda: _bare_loop(bare, memory, run_bytes),
                rounds=rounds,
            )
            return found, f"{wal.stats.bytes / wal.stats.fsyncs / KIB:,.0f} KiB a sync, bare {MIB // KIB}"
    finally:
        bare.unlink()


async def _append(wal: Wal, memory: memoryview, size: int, in_flight: int, run_bytes: int) -> float:
    """MB/s of appenders that each send, wait until it is durable, and send again. Each has its own memory."""
    offset = max(wal.unreleased().values(), default=0)
    left = run_bytes // size
    behind = _RELEASE_BEHIND // size

    async def appender(payload: memoryview) -> None:
        nonlocal offset, left
        while left > 0:
            left -= 1
            await wal.room(size)
            written = wal.append(WalFrame(TOPIC, 0, 1, offset, 1, (payload,)))
            offset += 1
            if offset % behind == 0:
                wal.release(TOPIC, 0, offset - behind)
            await written

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for at in range(0, in_flight * size, size):
            group.create_task(appender(memory[at : at + size]))
    return run_bytes / (time.perf_counter() - started) / 1e6


async def _bare_loop(path: Path, memory: memoryview, run_bytes: int) -> float:
    def loop() -> float:
        descriptor = os.open(path, os.O_RDWR)
        size = path.stat().st_size
        started = time.perf_counter()
        for at in range(0, run_bytes, MIB):
            os.pwrite(descriptor, memory[at % len(memory) :][:MIB], at % size)
            os.fdatasync(descriptor)
        took_s = time.perf_counter() - started
        os.close(descriptor)
        return run_bytes / took_s / 1e6

    return await asyncio.to_thread(loop)


async def _recovery(directory: Path, size_bytes: int) -> AsyncIterator[Figure]:
    """Judge a WAL of that size after a stop, then hand every frame out again; from the disk, not from the system's memory."""
    place, payload = directory / "recovered", os.urandom(16 * KIB)
    frames = size_bytes // len(payload)
    async with _opened(place) as wal:
        for offset in range(0, frames, 256):
            await asyncio.gather(
                *(
                    wal.append(WalFrame(TOPIC, at % 100, 1, at // 100, 1, (payload,)))
                    for at in range(offset, offset + 256)
                )
            )
    reading: list[float] = []

    async def recover() -> float:
        _forget_pages(place)
        started = time.perf_counter()
        async with _opened(place) as wal:
            opened_s = time.perf_counter() - started
            seen = 0
            async for _ in wal.recovered:
                seen += 1
            reading.append(time.perf_counter() - started - opened_s)
        assert seen == frames, (seen, frames)
        return size_bytes / opened_s / 1e6

    async def read() -> float:
        _forget_pages(place)
        started = time.perf_counter()
        await asyncio.to_thread(_read_all, place)
        return size_bytes / (time.perf_counter() - started) / 1e6

    with watch_memory() as memory:
        found = await compare_runs(recover, read, rounds=5)
    what = f"recovery of {size_bytes / (1024 * MIB):g} GiB of 16 KiB frames"
    yield Figure(PART, f"{what}: until it takes appends", "s", size_bytes / 1e6 / found.ours)
    yield against(PART, f"{what}, against bare reads with CRC-32C", "MB/s", found)
    yield Figure(PART, f"{what}: all frames handed out after that", "s", statistics.median(reading))
    yield Figure(PART, f"{what}: memory", "MiB more", memory.grown_bytes / MIB)


def _forget_pages(directory: Path) -> None:
    """Ask the system to read the files from the disk next time."""
    for path in directory.glob("*.wal"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _read_all(directory: Path) -> None:
    buffer = bytearray(4 * MIB)
    for path in sorted(directory.glob("*.wal")):
        with path.open("rb", buffering=0) as file:
            while got := file.readinto(buffer):
                crc32c(memoryview(buffer)[:got])
