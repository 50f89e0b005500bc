"""`python -m bench.scale`: what an agent costs that leads many partitions, at rest and when all of them start at once.

Processor time is this process's own, so that a busy machine does not change it. A stall is how long the event loop was kept from
its next turn, by the processor time of its thread alone. Each size and store has a process of its own.
"""

import argparse
import asyncio
import gc
import multiprocessing
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from rich.console import Console

from bench import object_hour
from bench.figures import Figure, table
from bench.memory import resident_bytes
from holdfast.agent import Agent, AgentSettings, running_agent
from holdfast.app.process import freeze_garbage_collector, shorten_switch_interval
from holdfast.contracts.store import Store
from holdfast.gateways.kafka.metadata_encoding import MetadataTopic, encode_metadata, encode_topics
from holdfast.kernel.planner import PlannerSettings
from holdfast.log.batches import Record, encode
from holdfast.log.settings import LogSettings
from holdfast.objects.memory import MemoryObjects
from holdfast.stores.urls import open_store
from holdfast.testing.faulty_objects import FaultyObjects
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import SystemRandom

SIZES: Final = (1_000, 10_000, 50_000)
ENGINES: Final = ("sqlite", "postgres")
TOPIC_PARTITIONS: Final = 1_000
IN_FLIGHT: Final = 256
NO_MORE_S: Final = 120.0  # without another partition
AIM_AT: Final = 10_000  # partitions: what the aims are said for

_clock, _random = RealClock(), SystemRandom()


class Stalls:
    """How long the loop was busy between two turns of one task, in milliseconds of its thread's processor time."""

    def __init__(self) -> None:
        self.turns_ms: list[float] = []

    async def watch(self) -> None:
        while True:
            began = time.thread_time()
            await asyncio.sleep(0.001)
            self.turns_ms.append((time.thread_time() - began) * 1_000)

    def p999_ms(self) -> float:
        ordered = sorted(self.turns_ms)
        return ordered[min(len(ordered) - 1, len(ordered) * 999 // 1000)] if ordered else 0.0


@asynccontextmanager
async def stalls() -> AsyncIterator[Stalls]:
    """Watched during the body."""
    seen = Stalls()
    watching = asyncio.ensure_future(seen.watch())
    try:
        yield seen
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


class Place:
    """A store, objects and folders that outlive the agents of one run."""

    def __init__(self, store: Store, directory: Path) -> None:
        self.store = FaultyStore(store, random=_random)
        self.objects = FaultyObjects(MemoryObjects(clock=_clock), clock=_clock, random=_random)
        self.directory = directory

    @asynccontextmanager
    async def agent(self, name: str) -> AsyncIterator[Agent]:
        settings = AgentSettings(id=name, planner=PlannerSettings(settle_ms=50), log=LogSettings(reserve_offsets=1_000))
        async with running_agent(
            settings,
            self.directory / name,
            store=self.store,
            objects=self.objects,
            clock=_clock,
            random=_random,
        ) as agent:
            yield agent

    @property
    def calls(self) -> int:
        return sum(self.store.calls.values())

    async def object_bytes(self) -> int:
        """What object storage holds."""
        return sum([info.size_bytes async for info in self.objects.list("")])

    async def crash(self, agent: Agent) -> None:
        """As a process that is killed, as far as the store and the files are concerned."""
        agent.sessions.graceful = False
        session = agent.sessions.session
        if session is not None:
            session.deadline_ms = 0
            with suppress(UnavailableError):  # then the next agent ends it
                await self.store.close_session(session.id)


async def until_led(agent: Agent, count: int) -> float:
    """Seconds until the agent leads so many partitions."""
    began = grown = time.perf_counter()
    shown = -1
    while len(agent.leading) < count:
        await asyncio.sleep(0.02)
        if len(agent.leading) > shown:
            shown, grown = len(agent.leading), time.perf_counter()
        if time.perf_counter() - grown > NO_MORE_S:
            raise TimeoutError(f"{shown} of {count} partitions are led, and no more come")
    return time.perf_counter() - began


async def cpu_percent(seconds: float) -> float:
    """Of one core, while nobody asks for anything."""
    cpu_s, began = time.process_time(), time.perf_counter()
    await asyncio.sleep(seconds)
    return 100 * (time.process_time() - cpu_s) / (time.perf_counter() - began)


async def append_to_each(agent: Agent, topics: list[str]) -> None:
    """One record to every partition, so many at a time."""
    body = encode([Record(0, _clock.now_ms(), None, b"x" * 100)])  # not so old that retention removes it
    left = ((topic, number) for topic in topics for number in range(TOPIC_PARTITIONS))

    async def work() -> None:
        for topic, number in left:
            await agent.service.produce(topic, number, body)

    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))


@asynccontextmanager
async def opened(engine: str, directory: Path) -> AsyncIterator[Store]:
    async with AsyncExitStack() as stack:
        if engine == "postgres":
            from tests.support.store_engines.postgres import PostgresServer

            url = stack.enter_context(PostgresServer(directory).running()).url(schema="bench")
        else:
            url = "memory:" if engine == "memory" else f"sqlite:///{directory}/holdfast.db"
        yield await stack.enter_async_context(open_store(url, clock=_clock, random=_random))


async def measure(
    engine: str, partitions: int, directory: Path, *, seconds: float, say: Callable[[str], None]
) -> AsyncIterator[Figure]:
    """Every figure of one store and size."""
    part, aimed = f"{engine}, {partitions:,} partitions", partitions <= AIM_AT
    topics = [f"events-{number}" for number in range(partitions // TOPIC_PARTITIONS)]

    def figure(what: str, unit: str, found: float, below: float | None = None, note: str = "") -> Figure:
        if below is None:
            return Figure(part, what, unit, found, note=note)
        return Figure(part, what, unit, found, aim=f"< {below:g}", met=found < below, note=note)

    async with opened(engine, directory) as store:
        place = Place(store, directory)
        async with place.agent("ann") as ann:
            await asyncio.sleep(1)
            gc.collect()
            before_bytes, calls, cpu_s = resident_bytes(), place.calls, time.process_time()
            say("creating")
            for topic in topics:
                await ann.service.create_topic(topic, TOPIC_PARTITIONS, {})
            took_s = await until_led(ann, partitions)
            yield figure("created until led", "s", took_s, 10 if aimed else None)
            yield figure("  processor", "s", time.process_time() - cpu_s)
            yield figure("  store calls each", "calls", (place.calls - calls) / partitions)
            say("idle")
            await asyncio.sleep(2)
            gc.collect()
            yield figure("RAM each, empty", "B", (resident_bytes() - before_bytes) / partitions, 8_192)
            calls = place.calls
            yield figure("idle, empty", "% of a core", await cpu_percent(seconds), 2 if aimed else None)
            yield figure("  store calls", "calls/s", (place.calls - calls) / seconds)
            say("metadata")
            cpu_s, rounds = time.process_time(), 5
            for _ in range(rounds):
                listed = [MetadataTopic(topic) for topic in ann.cluster.topics]
                encode_metadata(
                    12,
                    encode_topics(12, ann.cluster, listed),
                    brokers=[],
                    cluster_id="bench",
                    controller=1,
                    topics=listed,
                    cluster_operations=0,
                )
            yield figure("Metadata of all", "ms", (time.process_time() - cpu_s) * 1_000 / rounds)
            say("first appends")
            calls, cpu_s, began = place.calls, time.process_time(), time.perf_counter()
            async with stalls() as seen:
                await append_to_each(ann, topics)
            yield figure("first append to each", "s", time.perf_counter() - began)
            yield figure("  processor", "s", time.process_time() - cpu_s)
            yield figure("  store calls each", "calls", (place.calls - calls) / partitions)
            yield figure("  stall p99.9", "ms", seen.p999_ms())
            say("resting")
            yield figure(
                "idle, a record each unpublished", "% of a core", await cpu_percent(seconds), 2 if aimed else None
            )
            say("an outage of objects")
            place.objects.reachable = False
            for each in ann.log.leading.values():
                each.request_publish()
            async with stalls() as seen:
                busy = await cpu_percent(seconds)
            yield figure("object outage", "% of a core", busy)
            yield figure("  stall p99.9", "ms", seen.p999_ms(), 20)
            place.objects.reachable = True
            say("publishing")
            cpu_s = time.process_time()
            async with stalls() as seen:
                while any(each.unpublished_bytes for each in ann.log.leading.values()):
                    await asyncio.sleep(0.2)
            yield figure("publication of all, processor", "s", time.process_time() - cpu_s)
            yield figure("  stall p99.9", "ms", seen.p999_ms())
            gc.collect()
            held_bytes = await place.object_bytes()  # object storage of this bench, not the agent's memory
            resting_bytes = (resident_bytes() - held_bytes - before_bytes) / partitions
            yield figure("RAM each, one segment", "B", resting_bytes, 8_192)
            say("releasing what was reserved")
            while not all(each.is_quiescent for each in ann.log.leading.values()):
                await asyncio.sleep(1)
            say("idle with segments")
            await asyncio.sleep(2)
            yield figure("idle, one segment each", "% of a core", await cpu_percent(seconds), 2 if aimed else None)
            say("a crash")
            await place.crash(ann)
        began, cpu_s, calls = time.perf_counter(), time.process_time(), place.calls
        async with place.agent("ann") as ann:
            say("opening after a crash")
            await until_led(ann, partitions)
            yield figure("restart until led", "s", time.perf_counter() - began, 10 if aimed else None)
            yield figure("  processor", "s", time.process_time() - cpu_s)
            yield figure("  store calls each", "calls", (place.calls - calls) / partitions)
            say("a stop")
            began, cpu_s = time.perf_counter(), time.process_time()
        yield figure("stop", "s", time.perf_counter() - began)
        yield figure("  processor", "s", time.process_time() - cpu_s)
        began, cpu_s = time.perf_counter(), time.process_time()
        async with place.agent("bob") as bob:
            say("takeover by another")
            await until_led(bob, partitions)
            yield figure("takeover until led", "s", time.perf_counter() - began, 10 if aimed else None)
            yield figure("  processor", "s", time.process_time() - cpu_s)
            await place.crash(bob)


def run(engine: str, partitions: int, seconds: float) -> list[Figure]:
    """One store and size, in this process, which is set up as a server's."""
    freeze_garbage_collector()
    shorten_switch_interval()
    return asyncio.run(_run(engine, partitions, seconds))


async def _run(engine: str, partitions: int, seconds: float) -> list[Figure]:
    console, figures = Console(stderr=True, log_path=False), []
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as made, console.status(engine) as status:
        async for figure in measure(
            engine, partitions, Path(made), seconds=seconds, say=lambda doing: status.update(f"{engine}: {doing}")
        ):
            figures.append(figure)
            console.log(f"{figure.part}: {figure.what}: {figure.ours:,.2f} {figure.unit}")
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--partitions", type=int, action="append", help=f"so many (may be repeated; {SIZES})")
    parser.add_argument(
        "--engine", choices=("memory", *ENGINES), action="append", help="only this store (may be repeated)"
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="how long CPU is watched (20)")
    parser.add_argument(
        "--object-hour", action="store_true", help="an hour at level object instead (bench.object_hour)"
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="of that hour (60)")
    parser.add_argument("--speed", type=float, default=6.0, help="of its clock (6)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    figures: list[Figure] = []
    if args.object_hour:
        partitions = (args.partitions or [object_hour.PARTITIONS])[0]
        log = Console(stderr=True, log_path=False).log
        figures += object_hour.run(args.minutes, args.speed, partitions, log)
    for engine in () if args.object_hour else args.engine or ENGINES:
        for partitions in args.partitions or SIZES:
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
                figures += process.submit(run, engine, partitions, args.seconds).result()
    if args.json:
        sys.stdout.writelines(f"{figure.json()}\n" for figure in figures)
    else:
        Console().print(table(figures, "Partitions at scale"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
