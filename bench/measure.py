"""Rates and latencies, ours and the reference's by turns, so that a noisy machine disturbs both alike."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

Step = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Compared:
    """Medians over the rounds; `ratio` is the median of each round's ours/reference, above 1 is better for us."""

    ours: float
    reference: float
    ratio: float
    best: float = 0.0  # ours, in the round that was disturbed least


async def rate(workers: list[Step], seconds: float) -> float:
    """Steps per second of all workers together, each doing one step after the other."""
    done = 0
    until = time.perf_counter() + seconds

    async def work(step: Step) -> None:
        nonlocal done
        while time.perf_counter() < until:
            await step()
            done += 1

    started = time.perf_counter()
    await asyncio.gather(*(work(step) for step in workers))
    return done / (time.perf_counter() - started)


async def compare_rates(ours: list[Step], reference: list[Step], *, rounds: int, seconds: float) -> Compared:
    """Rates by turns."""
    for workers in (ours, reference):
        await rate(workers, seconds / 4)  # connections, statements and caches warm
    pairs = [(await rate(ours, seconds), await rate(reference, seconds)) for _ in range(rounds)]
    return _medians(pairs, [mine / theirs for mine, theirs in pairs])


async def compare_latencies(
    ours: Callable[[], Awaitable[float]], reference: Callable[[], Awaitable[float]], *, rounds: int
) -> Compared:
    """Milliseconds by turns; the ratio is reference/ours."""
    pairs = [(await ours() * 1000, await reference() * 1000) for _ in range(rounds)]
    return _medians(pairs, [theirs / mine for mine, theirs in pairs])


def _medians(pairs: list[tuple[float, float]], ratios: list[float]) -> Compared:
    return Compared(
        statistics.median(mine for mine, _ in pairs),
        statistics.median(theirs for _, theirs in pairs),
        statistics.median(ratios),
        max(mine for mine, _ in pairs),
    )


async def compare_runs(
    ours: Callable[[], Awaitable[float]], reference: Callable[[], Awaitable[float]], *, rounds: int
) -> Compared:
    """Rates that each run reports itself, by turns; the first turn of each warms and is not counted."""
    await ours()
    await reference()
    pairs = [(await ours(), await reference()) for _ in range(rounds)]
    return _medians(pairs, [mine / theirs for mine, theirs in pairs])


def compare_work(
    ours: Callable[[], object], reference: Callable[[], object], *, amount: float, rounds: int, turn_s: float = 0.05
) -> Compared:
    """`amount` per call and second of processor time, by turns: what one core does, however many others want it.

    A turn is as many calls as fill `turn_s`, so that neither side pays for what the other left in the caches.
    """
    pairs = [(amount / processor_s(ours, turn_s), amount / processor_s(reference, turn_s)) for _ in range(rounds + 1)][
        1:
    ]
    return _medians(pairs, [mine / theirs for mine, theirs in pairs])


def processor_s(work: Callable[[], object], turn_s: float) -> float:
    """Seconds a call, in processor time of all threads of this process and of the kernel on their behalf."""
    started, calls, took_s = time.process_time(), 0, 0.0
    while took_s < turn_s:
        work()
        calls += 1
        took_s = time.process_time() - started
    return took_s / calls
