"""`python -m bench.heap_partition`: one heap partition in process, durable: rates, and the memory of messages that wait.

Everything is acknowledged after fdatasync. No network: what a gateway can reach at most.
"""

import argparse
import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from tests.support.heaps import HeapWorld

from bench.figures import Figure, table
from bench.memory import resident_bytes
from holdfast.heap.model import NewMessage
from holdfast.heap.partition_state import HeapState
from holdfast.heap.records import Enqueue
from holdfast.heap.service import HeapService

PAYLOAD: Final = b"x" * 256
CLIENTS: Final = 64
MIB: Final = 1 << 20
AIM_BYTES: Final = 200 * MIB


def message(number: int) -> NewMessage:
    return NewMessage(payload=PAYLOAD, priority=number * 7_919 % 10_007)


async def rates(directory: Path, messages: int) -> list[Figure]:
    """Enqueue, then pop and ack, one by one and in batches."""
    world = HeapWorld(directory)
    heaps = await world.heap(await world.node())
    found: list[Figure] = []
    try:
        for batch in (1, 100):
            each = messages // CLIENTS // batch

            async def produce(client: int, batch: int = batch, each: int = each) -> int:
                for turn in range(each):
                    await heaps.enqueue_batch("jobs", [message(client + turn * batch + at) for at in range(batch)])
                return each * batch

            label = "one by one" if batch == 1 else f"batches of {batch}"
            found.append(await _rate(f"enqueue, {label}", produce))
            found.append(await _rate(f"pop and ack, {label}", partial(_consume, heaps, batch)))
    finally:
        await world.end()
    return found


async def backlog(directory: Path, waiting: int, messages: int) -> list[Figure]:
    """A heap with so many messages that wait: rates against an empty one, its snapshot, and how soon it is served again."""
    world = HeapWorld(directory)
    node = await world.node()
    heaps = await world.heap(node)
    try:
        empty = await _enqueue_and_pop(heaps, messages)
        for at in range(0, waiting, 4_000):
            parts = [range(first, min(first + 500, waiting)) for first in range(at, min(at + 4_000, waiting), 500)]
            await asyncio.gather(*(heaps.enqueue_batch("jobs", [message(each) for each in part]) for part in parts))
        full = await _enqueue_and_pop(heaps, messages)
        found = [
            Figure("backlog", f"{what} against an empty heap", "", share, aim=">= 0.7", met=share >= 0.7, note=note)
            for what, share, note in (
                (what, full[what] / empty[what], f"{full[what]:,.0f}/s, empty {empty[what]:,.0f}/s") for what in empty
            )
        ]
        found += await _snapshot(world, heaps)
        began = time.perf_counter()
        await node.drop()
        again = await world.node()
        await world.served(again)
        took = time.perf_counter() - began
        (stats,) = await again.agent.heaps.stats("jobs")
        note = f"{stats.ready:,} ready; from the end of one agent to being served by the next"
        return [*found, Figure("backlog", "takeover", "s", took, aim="< 5", met=took < 5, note=note)]
    finally:
        await world.end()


async def _enqueue_and_pop(heaps: HeapService, messages: int) -> dict[str, float]:
    each = messages // CLIENTS // 10

    async def produce(client: int) -> int:
        for turn in range(each):
            await heaps.enqueue_batch("jobs", [message(client + turn * 10 + at) for at in range(10)])
        return each * 10

    async def consume(client: int) -> int:
        for _ in range(each):
            popped = await heaps.pop("jobs", consumer=f"c{client}", max_messages=10)
            await heaps.ack("jobs", [one.lease_token for one in popped])
        return each * 10

    return {"enqueue": (await _rate("", produce)).ours, "pop and ack": (await _rate("", consume)).ours}


async def _snapshot(world: HeapWorld, heaps: HeapService) -> list[Figure]:
    """A snapshot, while somebody looks how long the event loop is away."""
    stalls: list[float] = [0.0]

    async def watch() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            stalls.append(time.perf_counter() - began - 0.001)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0.01)  # it has begun: the copy is made before the first turn of the loop
    began = time.perf_counter()
    (taken,) = await heaps.snapshot("jobs")
    took = time.perf_counter() - began
    watching.cancel()
    (stats,) = await heaps.stats("jobs")
    note = f"taken in {took:.1f} s; the copy itself took {stats.snapshot_pause_ms:.0f} ms"
    pause_ms = max(stalls) * 1_000
    return [
        Figure("backlog", "snapshot", "MiB", taken.size_bytes / MIB, note=f"{stats.ready:,} ready"),
        Figure("backlog", "longest pause of the loop", "ms", pause_ms, aim="< 1000", met=pause_ms < 1_000, note=note),
    ]


async def _consume(heaps: HeapService, batch: int, client: int) -> int:
    count = 0
    while popped := await heaps.pop("jobs", consumer=f"c{client}", max_messages=batch):
        await heaps.ack("jobs", [each.lease_token for each in popped])
        count += len(popped)
    return count


async def _rate(what: str, work: Callable[[int], Coroutine[Any, Any, int]]) -> Figure:
    began, cpu = time.perf_counter(), time.process_time()
    count = sum(await asyncio.gather(*(work(client) for client in range(CLIENTS))))
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    note = f"{count:,} of 256 B, {CLIENTS} at a time; {cpu / count * 1e6:.0f} µs of CPU each"
    return Figure("rates", what, "messages/s", count / took, note=note)


def memory(messages: int) -> Iterator[Figure]:
    """The state with so many messages that wait."""
    gc.collect()
    before = resident_bytes()
    state, began = HeapState("min"), time.perf_counter()
    for at in range(messages):
        state.apply(at, 1_700_000_000_000, Enqueue(at * 7_919 % 1_000_003, b""))
    took = time.perf_counter() - began
    gc.collect()
    grown = resident_bytes() - before
    aim = AIM_BYTES * messages / 2_000_000
    note = f"{messages:,} ready messages, applied in {took:.1f} s"
    yield Figure("memory", "growth", "MiB", grown / MIB, aim=f"< {aim / MIB:.0f}", met=grown < aim, note=note)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.heap_partition", description=__doc__)
    parser.add_argument("--messages", type=int, default=50_000, help="of each rate")
    parser.add_argument("--waiting", type=int, default=2_000_000, help="messages that wait")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    figures = list(memory(given.waiting))
    with tempfile.TemporaryDirectory() as directory:
        figures += asyncio.run(rates(Path(directory), given.messages))
    with tempfile.TemporaryDirectory() as directory:
        figures += asyncio.run(backlog(Path(directory), given.waiting, given.messages))
    if given.json:
        print("\n".join(figure.json() for figure in figures))
    else:
        Console().print(table(figures, "A heap partition"))
    return 0 if all(figure.met is not False for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
