"""What publishing costs: calls to object storage per GiB, and commits per segment, for few and for many partitions.

Records come at a steady rate for a minute or two of a clock that runs as fast as the work is done; partitions roll by size or
age as they do by default. Counted is what was published meanwhile, folding of old keys and sweeping included.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from bench.events import event_batches
from bench.figures import Figure
from bench.leader import CountedStore, Leader, Parts, leading
from holdfast.contracts.validation import StoreLimits
from holdfast.kernel.session import SessionSettings
from holdfast.log.batches import RecordBatchLimits, split_batches
from holdfast.objects.counters import CountingObjects, ObjectCounters
from holdfast.objects.memory import MemoryObjects
from holdfast.stores.memory import MemoryStore
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.random import SystemRandom
from holdfast.vocabulary.settings import KIB, MIB

PART: Final = "cost"
_GIB: Final = 1024 * MIB
_RATE_BYTES: Final = 16 * MIB  # a second, of all partitions together
_TICK_MS: Final = 100
_BATCH_BYTES: Final = 16 * KIB
_LIMITS: Final = RecordBatchLimits()
_DAY_MS: Final = 86_400_000


async def measure(directory: Path, *, quick: bool, say: Callable[[str], None]) -> AsyncIterator[Figure]:
    for partitions in (1, 100, 1_000):
        name = f"{partitions:,} partition{'s' if partitions > 1 else ''}"
        say(name)
        async for figure in _cost(
            directory / str(partitions), partitions, _GIB + _GIB // 8 if quick else 2 * _GIB, name
        ):
            yield figure


async def _cost(directory: Path, partitions: int, total_bytes: int, name: str) -> AsyncIterator[Figure]:
    clock, random, counters = FakeClock(), SystemRandom(), ObjectCounters()
    store = CountedStore(MemoryStore(clock=clock, random=random, limits=StoreLimits()), random=random)
    objects = CountingObjects(MemoryObjects(clock=clock), counters=counters, clock=clock)
    parts = Parts(
        store=store, objects=objects, directory=directory, clock=clock, partitions=partitions,
        session=SessionSettings(ttl_ms=_DAY_MS, renew_ms=_DAY_MS // 2, stall_ms=0),
    )  # fmt: skip
    async with leading(parts) as leader:
        before = store.commits
        appended = await _run(leader, clock, total_bytes)
        published_gib = (appended - sum(each.unpublished_bytes for each in leader.partitions)) / _GIB
        commits = store.commits - before
    calls = {operation: 0 for operation, _, _ in counters.each()}
    for operation, _, tally in counters.each():
        calls[operation] += tally.calls
    listed = ", ".join(f"{operation} {count / published_gib:,.1f}" for operation, count in calls.items())
    per_segment = store.naming_commits / store.segments
    yield Figure(
        PART, f"calls to object storage per GiB, {name}", "calls", sum(calls.values()) / published_gib,
        note=f"{listed}; ${counters.cost_usd / published_gib:.5f} per GiB at {_RATE_BYTES // MIB} MiB/s",
    )  # fmt: skip
    yield Figure(
        PART, f"commits per published segment, {name}", "commits", per_segment, None, None, "≤ 1", per_segment <= 1,
        f"{store.segments:,} segments in {store.naming_commits:,} commits; {commits:,} commits in all",
    )  # fmt: skip


async def _run(leader: Leader, clock: FakeClock, total_bytes: int) -> int:
    """Append at the rate, round robin; after each tick publish what is due."""
    batches = event_batches(8 * MIB, _BATCH_BYTES)
    size = sum(map(len, batches)) // len(batches)
    per_tick, at, appended, due_bytes = _RATE_BYTES * _TICK_MS // 1_000, 0, 0, 0

    async def append(number: int) -> int:
        batch = batches[number % len(batches)]
        await leader.partitions[number % len(leader.partitions)].append(split_batches(batch, limits=_LIMITS))
        return len(batch)

    while appended < total_bytes:
        due_bytes += per_tick
        count = due_bytes // size
        due_bytes -= count * size
        appended += sum(await asyncio.gather(*map(append, range(at, at + count))))
        at += count
        await clock.run_for_ms(_TICK_MS)
        await leader.publish_due()
    return appended
