"""Memory and speed while much more flows through the log than memory holds: append, publish, forget, retention.

SQLite and a folder, as a first installation has them. Producers receive into slabs, as a face does.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Final

from bench.events import event_batches
from bench.figures import Figure
from bench.leader import Leader, Parts, leading
from bench.memory import MemoryWatch, watch_memory
from holdfast.log.batches import Buffer, RecordBatchLimits, split_batches
from holdfast.log.maintenance import MaintenanceSettings
from holdfast.log.model import CleanupPolicy
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.settings import LogSettings
from holdfast.log.slabs import Slabs
from holdfast.objects.urls import open_objects
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom
from holdfast.vocabulary.settings import KIB, MIB
from holdfast.vocabulary.tasks import background_tasks

PART: Final = "flow"
_GIB: Final = 1024 * MIB
_LIMITS: Final = RecordBatchLimits()
# Retention that keeps up with a benchmark; folding, trash and grace as often.
_UPKEEP: Final = MaintenanceSettings(
    grace_ms=1_000, index_interval_ms=1_000, retention_interval_ms=1_000, trash_interval_ms=1_000
)
_KEPT_BYTES: Final = 512 * MIB  # of all partitions, in object storage
_SMALL_BYTES: Final = LogSettings().copy_below_bytes
_SAMPLE_BYTES: Final = 16 * MIB  # of different events, sent again and again
_STEADY: Final = 1.1  # the peak of the second half of the time against that of the first


@dataclass(frozen=True)
class _Load:
    partitions: int
    batch_bytes: int
    batches_per_request: int
    producers: int
    total_bytes: int
    quick_bytes: int


_LOADS: Final = (
    _Load(8, 256 * KIB, 3, 32, 10 * _GIB, _GIB),
    _Load(1_000, 16 * KIB, 1, 1_000, 3 * _GIB, 3 * _GIB // 2),  # many small tails: the WAL's limit is what bounds them
)


async def measure(directory: Path, *, quick: bool, say: Callable[[str], None]) -> AsyncIterator[Figure]:
    for load in _LOADS:
        total_bytes = load.quick_bytes if quick else load.total_bytes
        name = f"{load.partitions:,} partitions, {load.batch_bytes // KIB} KiB batches"
        say(name)
        place = directory / str(load.partitions)
        place.mkdir()
        memory, took_s, left_bytes = await _flow(place, load, total_bytes)
        half = len(memory.samples) // 2
        steady = max(memory.samples[half:]) / max(memory.samples[: half or 1])
        tenths = ", ".join(f"{each / MIB:,.0f}" for each in memory.tenths())
        what = f"{total_bytes / _GIB:g} GiB through {name}"
        yield Figure(
            PART, f"{what}: peak memory", "MiB", memory.peak_bytes / MIB, None, steady,
            f"steady ≤ {_STEADY}", steady <= _STEADY,
            f"by tenths of the time: {tenths}; before: {memory.before_bytes / MIB:,.0f}; ratio: second half to first",
        )  # fmt: skip
        yield Figure(PART, f"{what}: acknowledged", "MB/s", total_bytes / took_s / 1e6)
        yield Figure(PART, f"{what}: on disk at the end", "MiB", left_bytes / MIB)


async def _flow(directory: Path, load: _Load, total_bytes: int) -> tuple[MemoryWatch, float, int]:
    clock, random = RealClock(), SystemRandom()
    async with (
        open_store(f"sqlite:///{directory}/store.db", clock=clock, random=random) as store,
        open_objects(f"file://{directory}/objects", clock=clock, random=random) as objects,
        leading(
            Parts(
                store=store,
                objects=objects,
                directory=directory / "wal",
                clock=clock,
                partitions=load.partitions,
                upkeep=_UPKEEP,
                policy=CleanupPolicy(retention_bytes=_KEPT_BYTES // load.partitions),
            )
        ) as leader,
    ):
        batches = event_batches(_SAMPLE_BYTES, load.batch_bytes)
        every = load.batches_per_request
        requests = [b"".join(batches[at : at + every]) for at in range(0, len(batches) - every + 1, every)]
        with watch_memory() as memory:
            started = time.perf_counter()
            async with background_tasks(leader.keep_publishing()):
                await _produce(leader, load, requests, total_bytes)
            took_s = time.perf_counter() - started
    return memory, took_s, await asyncio.to_thread(_size_bytes, directory)


def _size_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


async def _produce(leader: Leader, load: _Load, requests: list[bytes], total_bytes: int) -> None:
    """Producers that each send, wait for the acknowledgement, and send again, until all is sent."""
    slabs, left, next_request = Slabs(), total_bytes, cycle(requests)

    async def produce(partition: LeadingPartition) -> None:
        nonlocal left
        while left > 0:
            request = next(next_request)
            left -= len(request)
            await partition.append(split_batches(await _received(request, slabs), limits=_LIMITS))

    async with asyncio.TaskGroup() as group:
        for at in range(load.producers):
            group.create_task(produce(leader.partitions[at % load.partitions]))


async def _received(request: bytes, slabs: Slabs) -> Buffer:
    """The request as a face has it: a large one fills a slab; small ones share one, and the partition copies them out."""
    if len(request) < _SMALL_BYTES:
        return request
    while (slab := slabs.take()) is None:
        await slabs.room()
    slab[: len(request)] = request
    return slab[: len(request)]
