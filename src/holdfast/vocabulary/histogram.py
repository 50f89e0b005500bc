"""A histogram: how often values fell below each of a few bounds, and their sum. Counting is all it does."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

# From a wake-up of a thread to a disk that stands still.
DURATION_BOUNDS_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
# Of requests: from what memory answers to what a client gives up on.
REQUEST_BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
LATENCY_BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 250, 500, 1_000, 2_500, 10_000)
COUNT_BOUNDS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024)


class Histogram:
    """Values seen so far. One thread observes."""

    __slots__ = ("_counts", "bounds", "sum")

    def __init__(self, bounds: Sequence[float] = DURATION_BOUNDS_S) -> None:
        self.bounds = tuple(bounds)
        self.sum = 0.0
        self._counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value, of several things that took the same."""
        self._counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def observe_alike(self, times: int, total: float, *, least: float, most: float) -> bool:
        """Count several values by their sum, if the least and the most of them are in one bucket; else nothing is counted."""
        at = bisect_left(self.bounds, least)
        if at != bisect_left(self.bounds, most):
            return False
        self._counts[at] += times
        self.sum += total
        return True

    def merge(self, other: "Histogram") -> None:
        """Count what another one of the same bounds has counted."""
        self._counts = [mine + theirs for mine, theirs in zip(self._counts, other._counts, strict=True)]
        self.sum += other.sum

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self._counts)

    def cumulative(self) -> list[int]:
        """How many values were at most each bound; last, how many there were."""
        total, found = 0, []
        for count in self._counts:
            total += count
            found.append(total)
        return found


class Latencies(dict[str, Histogram]):
    """Histograms of what requests took, by what was asked for: a bounded set of names."""

    def __missing__(self, name: str) -> Histogram:
        made = self[name] = Histogram(REQUEST_BOUNDS_S)
        return made
