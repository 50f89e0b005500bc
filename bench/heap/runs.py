"""The runs: rates of clients that do one call after another, and latencies at a steady rate."""

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from bench.heap.queue import Clients, Job, QueueClient

PAYLOAD: Final = b"x" * 256
_PRIORITIES: Final = 1_000


class Rates(NamedTuple):
    """Messages a second."""

    enqueue: float
    pop_ack: float
    cycle: float


class Latencies(NamedTuple):
    """Milliseconds: of an enqueue from when it was due, of a pop from when it was asked for."""

    enqueue_p50: float
    enqueue_p95: float
    pop_p50: float
    pop_p95: float
    behind: float  # cycles that were due and not begun


def jobs(count: int) -> list[Job]:
    return [Job(random.randrange(_PRIORITIES), PAYLOAD) for _ in range(count)]


async def rates(clients: Clients, *, number: int, batch: int, seconds: float) -> Rates:
    """Enqueue for a time, pop and acknowledge what was enqueued for as long, then cycles of all three."""
    async with clients(number) as made:

        async def enqueue(client: QueueClient) -> int:
            await client.enqueue(jobs(batch))
            return batch

        async def take(client: QueueClient) -> int:
            popped = await client.pop(batch)
            if popped:
                await client.ack(popped)
            return len(popped)

        async def cycle(client: QueueClient) -> int:
            await client.enqueue(jobs(batch))
            return await take(client)

        enqueued = await _rate(made, enqueue, seconds)
        popped = await _rate(made, take, seconds)
        while any(await asyncio.gather(*map(take, made))):
            pass
        return Rates(enqueued, popped, await _rate(made, cycle, seconds))


async def _rate(clients: Sequence[QueueClient], step: Callable[[QueueClient], Awaitable[int]], seconds: float) -> float:
    """Messages a second; a step without any is the end of its client."""
    began = time.perf_counter()
    until = began + seconds

    async def work(client: QueueClient) -> int:
        done = 0
        while time.perf_counter() < until and (found := await step(client)):
            done += found
        return done

    return sum(await asyncio.gather(*map(work, clients))) / (time.perf_counter() - began)


def cycles(rate: float, seconds: float) -> int:
    """How many `latencies` begins."""
    return max(20, int(rate * seconds))


async def latencies(clients: Clients, *, number: int, rate: float, seconds: float) -> Latencies:
    """A cycle each 1/rate seconds, by whichever client is free."""
    enqueues: list[float] = []
    pops: list[float] = []
    async with clients(number) as made:
        free: asyncio.Queue[QueueClient] = asyncio.Queue()
        for client in made:
            free.put_nowait(client)
        running, now = set[asyncio.Task[None]](), time.perf_counter  # the time of uvloop is in milliseconds

        async def cycle(due: float) -> None:
            client = await free.get()
            try:
                await client.enqueue(jobs(1))
                enqueues.append(now() - due)
                asked = now()
                popped = await client.pop(1)
                pops.append(now() - asked)
                if popped:
                    await client.ack(popped)
            finally:
                free.put_nowait(client)

        began, count = now() + 0.01, cycles(rate, seconds)
        for turn in range(count):
            due = began + turn / rate
            if due > now():
                await asyncio.sleep(due - now())
            task = asyncio.ensure_future(cycle(due))
            running.add(task)
            task.add_done_callback(running.discard)
        behind = len(running)
        while running:
            await asyncio.gather(*running)
    return Latencies(*_percentiles(enqueues), *_percentiles(pops), behind)


def _percentiles(times: Sequence[float]) -> tuple[float, float]:
    cut = statistics.quantiles(times, n=20)
    return statistics.median(times) * 1000, cut[18] * 1000
