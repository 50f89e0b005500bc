"""`python -m bench.scale --object-hour`: what an hour at level `object` leaves behind, and what it asks of object storage.

A real agent with its default settings, on a clock that runs faster than the host's: all intervals shrink by the same factor, so
that every publication, merge and roll-up of the hour is really done. What does not shrink is the work: on a slow machine there are
fewer publications in the hour, and how many there were is told. One producer per partition sends the next batch when the last
one is acknowledged.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.figures import Figure
from holdfast.agent import Agent, AgentSettings, running_agent
from holdfast.app.process import freeze_garbage_collector, shorten_switch_interval
from holdfast.kernel.planner import PlannerSettings
from holdfast.kernel.session import SessionSettings
from holdfast.log.batches import Record, encode
from holdfast.log.settings import LogSettings
from holdfast.objects.counters import CountingObjects, ObjectCounters
from holdfast.objects.memory import MemoryObjects
from holdfast.stores.urls import open_store
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

PARTITIONS: Final = 20
BATCH_BYTES: Final = 8 << 10
SAMPLES: Final = 12

_random = SystemRandom()


class FastClock(RealClock):
    """The host's clock, so many times as fast."""

    def __init__(self, speed: float) -> None:
        self._speed, self._began_ms = speed, super().boot_ms()
        self._wall_ms = super().now_ms()

    def boot_ms(self) -> int:
        return self._began_ms + round((super().boot_ms() - self._began_ms) * self._speed)

    def now_ms(self) -> int:
        return self._wall_ms + self.boot_ms() - self._began_ms

    async def sleep_ms(self, duration_ms: float) -> None:
        await super().sleep_ms(duration_ms / self._speed)


def segment_counts(agent: Agent) -> list[int]:
    """How many segments each partition lists, in the store and in index objects."""
    lists = [each.segments for each in agent.log.leading.values()]
    return [len(each.recent) + sum(index.entries for index in each.indexes) for each in lists]


async def measure(
    minutes: float, speed: float, directory: Path, *, partitions: int, say: Callable[[str], None]
) -> AsyncIterator[Figure]:
    """Every figure of one run of so many minutes on the fast clock."""
    clock, counters = FastClock(speed), ObjectCounters()
    part = f"level object, {minutes:g} minutes at {speed:g} times the speed, {partitions} partitions"
    settings = AgentSettings(
        id="ann",
        planner=PlannerSettings(settle_ms=50),
        # As long as it is by the host's clock, or longer: a session is not what is measured.
        session=replace(SessionSettings(), ttl_ms=round(30_000 * speed), stall_ms=round(20_000 * speed)),
        log=LogSettings(room_wait_ms=round(10_000 * speed)),
    )
    async with open_store(f"sqlite:///{directory}/holdfast.db", clock=RealClock(), random=_random) as below:
        store = FaultyStore(below, random=_random)
        objects = CountingObjects(MemoryObjects(clock=clock), counters=counters, clock=clock)
        async with running_agent(
            settings, directory / "ann", store=store, objects=objects, clock=clock, random=_random
        ) as ann:
            await ann.service.create_topic("events", partitions, {"durability": "object"})
            while len(ann.leading) < partitions:
                await asyncio.sleep(0.02)
            value = "".join(_random.token() for _ in range(BATCH_BYTES // 20)).encode()  # hardly compressible
            body, acknowledged = encode([Record(0, clock.now_ms(), None, value)]), 0
            began_ms, cpu_s, commits = clock.boot_ms(), time.process_time(), store.calls.get("commit", 0)
            end_ms = began_ms + minutes * 60_000

            async def produce(number: int) -> None:
                nonlocal acknowledged
                while clock.boot_ms() < end_ms:
                    await ann.service.produce("events", number, body)
                    acknowledged += 1

            producing = asyncio.gather(*(produce(number) for number in range(partitions)))
            for sample in range(1, SAMPLES + 1):
                until_ms = began_ms + sample * minutes * 60_000 / SAMPLES
                await clock.sleep_ms(until_ms - clock.boot_ms())
                counts = segment_counts(ann)
                note = f"at most {max(counts)}, of {acknowledged / partitions:,.0f} published by each"
                say(f"{sample} of {SAMPLES}")
                what = f"segments each after {sample * minutes / SAMPLES:.1f} min"
                yield Figure(part, what, "segments", sum(counts) / partitions, note=note)
            await producing
            gib = acknowledged * len(body) / (1 << 30)
            yield Figure(part, "produced", "GiB", gib)
            yield Figure(
                part, "publications of a partition", "per fast second", acknowledged / partitions / minutes / 60
            )
            yield Figure(part, "store commits", "per GiB", (store.calls["commit"] - commits) / gib)
            for operation, cause, totals in counters.each():
                yield Figure(part, f"objects: {operation} for {cause}", "calls/GiB", totals.calls / gib)
            every = [totals for *_, totals in counters.each()]
            written = sum(totals.bytes_written for totals in every)
            yield Figure(part, "objects: all calls", "calls/GiB", sum(totals.calls for totals in every) / gib)
            yield Figure(part, "objects: estimated price", "USD/GiB", counters.cost_usd / gib)
            yield Figure(part, "bytes written per byte produced", "", written / gib / (1 << 30))
            yield Figure(part, "processor", "s/GiB", (time.process_time() - cpu_s) / gib)


def run(minutes: float, speed: float, partitions: int, say: Callable[[str], None]) -> list[Figure]:
    """In this process, which is set up as a server's."""
    freeze_garbage_collector()
    shorten_switch_interval()

    async def all_figures() -> list[Figure]:
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as made:
            found = []
            async for figure in measure(minutes, speed, Path(made), partitions=partitions, say=say):
                found.append(figure)
                say(f"{figure.what}: {figure.ours:,.2f} {figure.unit} {figure.note}")
            return found

    return asyncio.run(all_figures())
