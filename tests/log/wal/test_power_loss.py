"""The power goes off: of what was not synced, any sectors may be on disk and any may not. Acknowledged frames survive it."""

import errno
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.wal import SMALL, TOPIC, frame, opened, places
from tests.support.wal_disks import BlockDisk

from holdfast.log.wal import Wal, WalDisk
from holdfast.log.wal.frames import Buffer
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.random import SeededRandom

SECTOR_BYTES = 512


class ForgetfulDisk(BlockDisk):
    """Remembers what each unsynced write replaced, so that a crash can undo any part of it. Dies after `calls`."""

    def __init__(self, calls: int, *, blocks: bool) -> None:
        self._calls_left, self._blocks = calls, blocks
        self._unsynced: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)  # by inode

    def open_blocks(self, path: Path) -> int | None:
        return super().open_blocks(path) if self._blocks else None

    def write(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        self._use_power()
        data = b"".join(buffers)
        data = data[: max(1, len(data) * 2 // 3)]  # short: the power may also go off between two calls for one group
        before = os.pread(descriptor, len(data), position)
        self._unsynced[os.fstat(descriptor).st_ino].append((position, before))
        return os.pwrite(descriptor, data, position)

    def sync(self, descriptor: int) -> None:
        self._use_power()
        super().sync(descriptor)
        self._unsynced.pop(os.fstat(descriptor).st_ino, None)

    def lose(self, directory: Path, random: SeededRandom) -> None:
        """Leave what the disk holds when the power is back."""
        for path in directory.iterdir():
            with path.open("r+b") as file:
                for position, before in reversed(self._unsynced.get(path.stat().st_ino, [])):
                    for start in range(0, len(before), SECTOR_BYTES):
                        if random.random.random() < 0.5:
                            file.seek(position + start)
                            file.write(before[start : start + SECTOR_BYTES])

    def _use_power(self) -> None:
        self._calls_left -= 1
        if self._calls_left < 0:
            raise OSError(errno.EIO, "the power is off")


COPYING = replace(SMALL, copy_forward_files=2)


class Producer:
    """Appends to a few partitions and remembers what it was promised."""

    def __init__(self, random: SeededRandom) -> None:
        self._rng = random.random
        self.ends: defaultdict[int, int] = defaultdict(int)  # acknowledged, or seen after a crash
        self._released: defaultdict[int, int] = defaultdict(int)

    async def run(self, directory: Path, disk: WalDisk, *, seed: int) -> None:
        """Until the disk fails."""
        async with opened(directory, disk=disk, seed=seed, settings=COPYING) as wal:
            await self.check(wal)
            while True:
                await self.produce(wal)

    async def check(self, wal: Wal) -> None:
        """Everything that was promised and not released is there."""
        read: defaultdict[int, list[int]] = defaultdict(list)
        async for partition, offset in places(wal):
            read[partition].append(offset)
        for partition in {*read, *self.ends}:
            # A frame that was copied forward stands behind later ones, and may be there twice; released ones may be left out.
            end, released = self.ends[partition], self._released[partition]
            found = sorted({offset for offset in read[partition] if offset >= released})
            assert found == list(range(released, released + len(found)))
            if end > released:
                assert found, f"all of partition {partition} is gone"
                assert found[-1] >= end - 1
            self.ends[partition] = max([end, *(offset + 1 for offset in read[partition])])

    async def produce(self, wal: Wal) -> None:
        """One burst to one partition, and now and then a release."""
        partition = self._rng.randrange(4)
        start = self.ends[partition]
        burst = [
            wal.append(frame(start + at, partition=partition, size=self._rng.randrange(3000)))
            for at in range(self._rng.randrange(1, 6))
        ]
        try:
            for answer in burst:
                await answer
                self.ends[partition] += 1
        finally:
            for answer in burst:
                if answer.done() and not answer.cancelled():
                    answer.exception()  # seen; the loop need not complain that nobody looked
        if partition and self._rng.random() < 0.4:  # partition 0 is stuck: it is copied forward
            self._released[partition] = self.ends[partition]
            wal.release(TOPIC, partition, self.ends[partition])


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [False, True], ids=["cached", "blocks"])
@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(6, 20))])
async def test_acknowledged_frames_survive_power_losses(tmp_path: Path, seed: int, blocks: bool) -> None:
    random = SeededRandom(seed)
    producer = Producer(random)
    for round_ in range(15):
        disk = ForgetfulDisk(calls=random.random.randrange(1, 200), blocks=blocks)
        with pytest.raises(HoldfastError, match="the power is off"):
            await producer.run(tmp_path / "wal", disk, seed=seed * 100 + round_)
        disk.lose(tmp_path / "wal", random)
    async with opened(tmp_path / "wal") as wal:
        await producer.check(wal)
    assert sum(producer.ends.values()) > 30
