"""Latencies of an open loop as they were scheduled, and what is read from them: percentiles of all, and of every second."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.kafka.disk import at_share

SHARES: Final = {"p50_us": 0.5, "p99_us": 0.99, "p999_us": 0.999, "max_us": 1.0}
EPISODE_P99_US: Final = 5_000.0


@dataclass(frozen=True)
class Samples:
    """In the order of the schedule, in microseconds: from when a request was due to its answer, and to its sending."""

    latency_us: Sequence[int]
    late_us: Sequence[int]


def read_samples(path: Path) -> Samples:
    """What the load generator left."""
    both = array("I")
    both.frombytes(path.read_bytes())
    half = len(both) // 2
    return Samples(both[:half], both[half:])


def percentiles(times_us: Sequence[int]) -> dict[str, float]:
    ordered = sorted(map(float, times_us))
    return {name: at_share(ordered, share) for name, share in SHARES.items()}


def p99_of_each_second(times_us: Sequence[int], per_second: int) -> list[float]:
    """By when a request was due. A last second that is not whole counts as one."""
    windows = (times_us[at : at + per_second] for at in range(0, len(times_us), per_second))
    return [at_share(sorted(map(float, window)), 0.99) for window in windows]


def episodes(p99s_us: Sequence[float]) -> int:
    """How many seconds were slow."""
    return sum(p99 > EPISODE_P99_US for p99 in p99s_us)
