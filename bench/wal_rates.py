"""How fast the WAL appends and recovers, against a bare loop of 1 MiB `pwrite` + `fdatasync` on a recycled file of the same disk.

`bench.log` calls `append_rates` and `recovery_ms`; both leave nothing behind but the directory they were given.
"""

import asyncio
import os
import statistics
import time
from pathlib import Path

from bench.measure import Compared
from holdfast.log.wal import Wal, WalFrame, WalSettings
from holdfast.vocabulary.clock import RealChance, RealClock
from holdfast.vocabulary.settings import MIB

TOPIC = bytes(16)
RELEASE_EVERY = 32
LIVE_BYTES_MAX = 128 * MIB  # what is published in the meantime, in a real agent


async def append_rates(
    directory: Path,
    *,
    payload_bytes: int,
    rounds: int = 7,
    bytes_per_round: int = 512 * MIB,
    settings: WalSettings | None = None,
) -> Compared:
    """MiB/s by turns: durable appends of `payload_bytes` each, as many in flight as allowed, and the bare loop."""
    settings = settings or WalSettings()
    payload = bytearray(os.urandom(payload_bytes))
    with BareLoop(directory / "bare", settings.file_bytes) as bare:
        async with Wal.open(directory / "wal", clock=RealClock(), chance=RealChance(), settings=settings) as wal:
            appender = Appender(wal, payload)
            await appender.run(4 * settings.file_bytes)  # the files are made, then only used again
            bare.run(settings.file_bytes)
            pairs = [(await appender.run(bytes_per_round), bare.run(bytes_per_round)) for _ in range(rounds)]
    return Compared(
        statistics.median(ours for ours, _ in pairs),
        statistics.median(theirs for _, theirs in pairs),
        statistics.median(ours / theirs for ours, theirs in pairs),
        max(ours for ours, _ in pairs),
    )


class Appender:
    """Keeps the WAL busy and releases what is durable, so that files are used again."""

    def __init__(self, wal: Wal, payload: bytearray) -> None:
        self._wal, self._payload, self._offset = wal, payload, 0

    async def run(self, total_bytes: int) -> float:
        """Append that much; MiB/s."""
        wal, payload, size = self._wal, (self._payload,), len(self._payload)
        started = time.perf_counter()
        last: asyncio.Future[int] | None = None
        for count in range(max(1, total_bytes // size)):
            await wal.room(size)
            last = wal.append(WalFrame(TOPIC, 0, 1, self._offset, 1, payload))
            self._offset += 1
            if count % RELEASE_EVERY == 0 and wal.live_bytes > LIVE_BYTES_MAX:
                wal.release(TOPIC, 0, self._offset)
        assert last is not None
        await last
        return total_bytes / MIB / (time.perf_counter() - started)


class BareLoop:
    """What the disk can do: one megabyte after the other into a file that was written before, each synced."""

    def __init__(self, path: Path, file_bytes: int) -> None:
        self._path, self._file_bytes = path, file_bytes
        self._data = bytearray(os.urandom(MIB))

    def __enter__(self) -> "BareLoop":
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        for position in range(0, self._file_bytes, MIB):
            os.pwrite(self._descriptor, bytes(MIB), position)
        os.fsync(self._descriptor)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def run(self, total_bytes: int) -> float:
        """Write that much; MiB/s."""
        started = time.perf_counter()
        for at in range(0, total_bytes, MIB):
            os.pwrite(self._descriptor, self._data, at % self._file_bytes)
            os.fdatasync(self._descriptor)
        return total_bytes / MIB / (time.perf_counter() - started)


async def recovery_ms(
    directory: Path, *, total_bytes: int = 1024 * MIB, payload_bytes: int = 16 * 1024
) -> tuple[float, float]:
    """Milliseconds to open a WAL with that much unreleased, and to read all its frames afterwards."""
    settings = WalSettings()
    clock, chance = RealClock(), RealChance()
    payload = (os.urandom(payload_bytes),)
    async with Wal.open(directory / "wal", clock=clock, chance=chance, settings=settings) as wal:
        for offset in range(total_bytes // payload_bytes):
            await wal.room(payload_bytes)
            last = wal.append(WalFrame(TOPIC, 0, 1, offset, 1, payload))
        await last
    started = time.perf_counter()
    async with Wal.open(directory / "wal", clock=clock, chance=chance, settings=settings) as wal:
        opened = time.perf_counter()
        frames = 0
        async for _ in wal.recovered:
            frames += 1
        assert frames == total_bytes // payload_bytes
        return (opened - started) * 1000, (time.perf_counter() - opened) * 1000
