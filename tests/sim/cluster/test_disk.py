"""The simulated disk: what was synced stays, the rest may go, and the WAL on it recovers what it acknowledged."""

import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from tests.support.wal import SMALL, frame

from holdfast.log.wal import Wal
from holdfast.log.wal.disk import write_all
from holdfast.sim.cluster.disk import SimDisk
from holdfast.sim.cluster.loop import ClusterLoop
from holdfast.sim.cluster.wal_threads import SteppedFileWorker, SteppedWriter
from holdfast.sim.process import RUNNING, SimClock, SimProcess
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import SeededRandom


def write(path: Path, disk: SimDisk, data: bytes, *, sync: bool) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        write_all(disk, descriptor, (data,), 0)
        if sync:
            disk.sync(descriptor)
    finally:
        os.close(descriptor)


def opened_on(
    disk: SimDisk, loop: ClusterLoop, process: SimProcess, random: SeededRandom
) -> AbstractAsyncContextManager[Wal]:
    return Wal.open(
        disk.directory,
        clock=SimClock(loop, process),
        random=random,
        settings=SMALL,
        disk=disk,
        writer=SteppedWriter,
        file_worker=SteppedFileWorker,
    )


@pytest.mark.parametrize("seed", range(10))
def test_a_power_failure_keeps_what_was_synced_and_sectors_of_the_rest(tmp_path: Path, seed: int) -> None:
    disk = SimDisk(tmp_path, SeededRandom(seed))
    write(tmp_path / "synced", disk, b"a" * 2048, sync=True)
    write(tmp_path / "torn", disk, b"a" * 2048, sync=True)
    write(tmp_path / "torn", disk, b"b" * 2048, sync=False)
    assert disk.lose_power() == 1
    assert (tmp_path / "synced").read_bytes() == b"a" * 2048
    torn = (tmp_path / "torn").read_bytes()
    assert {torn[at : at + 512] for at in range(0, 2048, 512)} <= {b"a" * 512, b"b" * 512}
    assert disk.lose_power() == 0  # what is there now is there


def test_some_power_failure_loses_everything_and_some_tears(tmp_path: Path) -> None:
    found = set()
    for seed in range(30):
        disk = SimDisk(tmp_path, SeededRandom(seed))
        write(tmp_path / "file", disk, b"a" * 2048, sync=True)
        write(tmp_path / "file", disk, b"b" * 2048, sync=False)
        disk.lose_power()
        found.add(len(set((tmp_path / "file").read_bytes())))
        found.add((tmp_path / "file").read_bytes() == b"a" * 2048)
    assert {1, 2} <= found


@pytest.mark.parametrize("blocks", [False, True])
def test_a_wal_finds_what_it_acknowledged_after_a_power_failure(tmp_path: Path, blocks: bool) -> None:
    random = SeededRandom(1)
    loop = ClusterLoop(random, callbacks_max=100_000)
    disk = SimDisk(tmp_path, random, blocks=blocks)
    acknowledged: list[int] = []

    async def live(process: SimProcess) -> None:
        async with opened_on(disk, loop, process, random) as wal:
            recovered = [each.base_offset async for each in wal.recovered]
            assert recovered[: len(acknowledged)] == acknowledged
            loop.post_at(loop.now_ms + 50, process.die)
            for offset in range(len(recovered), 1_000):
                await wal.append(frame(offset, size=700))
                acknowledged[offset:] = [offset]

    for life in range(6):
        process = SimProcess(f"ann.{life}", loop)
        RUNNING.set(process)
        task = loop.create_task(live(process))
        process.on_death.append(task.cancel)
        with pytest.raises(BaseException) as ended:
            loop.run_until_complete(task)
        assert ended.typename == "CancelledError", ended.value
        disk.lose_power()
        acknowledged.sort()
    RUNNING.set(None)
    loop.close()
    assert len(acknowledged) > 30


def test_a_full_disk_refuses_and_nothing_of_it_is_found(tmp_path: Path) -> None:
    random = SeededRandom(1)
    loop = ClusterLoop(random, callbacks_max=100_000)
    disk = SimDisk(tmp_path, random)
    process = SimProcess("ann", loop)
    acknowledged: list[int] = []
    refused = 0

    async def append_some() -> None:
        nonlocal refused
        async with opened_on(disk, loop, process, random) as wal:
            for offset in range(20):
                disk.full = 5 <= offset < 15
                try:
                    await wal.append(frame(offset))
                    acknowledged.append(offset)
                except UnavailableError:
                    refused += 1

    async def read_all() -> list[int]:
        async with opened_on(disk, loop, process, random) as wal:
            return [each.base_offset async for each in wal.recovered]

    RUNNING.set(process)
    try:
        loop.run_until_complete(append_some())
        assert loop.run_until_complete(read_all()) == acknowledged
    finally:
        RUNNING.set(None)
        loop.close()
    assert refused
