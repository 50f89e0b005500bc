"""Histograms of a server's `/metrics`, before and after a run: what the WAL did in between.

A histogram that the server does not have is None here and "not exposed" in the report.
"""

import re
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

GROUP_BATCHES: Final = "holdfast_wal_group_batches"
HANDOVER: Final = "holdfast_wal_handover_seconds"
LOOP_STALL: Final = "holdfast_loop_stall_seconds"
NAMES: Final = (GROUP_BATCHES, HANDOVER, LOOP_STALL)

_SAMPLE: Final = re.compile(r"^(\w+?)_(bucket|sum|count)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_BOUND: Final = re.compile(r'(?:^|,)le="([^"]+)"')
_TIMEOUT_S: Final = 10


@dataclass(frozen=True)
class Histogram:
    """Over all label values. `buckets` are cumulative, by upper bound."""

    count: float
    sum: float
    buckets: Mapping[float, float]

    def since(self, before: "Histogram | None") -> "Histogram":
        if before is None:
            return self
        buckets = {bound: count - before.buckets.get(bound, 0.0) for bound, count in self.buckets.items()}
        return Histogram(self.count - before.count, self.sum - before.sum, buckets)

    def mean(self) -> float | None:
        return self.sum / self.count if self.count else None

    def at_most(self, share: float) -> float | None:
        """The upper bound of the bucket in which `share` of all is reached; infinite beyond the last."""
        if not self.count:
            return None
        return next((bound for bound in sorted(self.buckets) if self.buckets[bound] >= share * self.count), None)


def histograms(exposition: str) -> dict[str, Histogram]:
    """Those of `NAMES` that are in it."""
    counts, sums, buckets = dict[str, float](), dict[str, float](), dict[str, dict[float, float]]()
    for name, kind, labels, value in _SAMPLE.findall(exposition):
        if name not in NAMES:
            continue
        if kind == "bucket":
            (bound,) = _BOUND.findall(labels)
            of_name = buckets.setdefault(name, {})
            of_name[float(bound)] = of_name.get(float(bound), 0.0) + float(value)
        else:
            totals = counts if kind == "count" else sums
            totals[name] = totals.get(name, 0.0) + float(value)
    return {name: Histogram(counts[name], sums.get(name, 0.0), buckets.get(name, {})) for name in counts}


def read_histograms(url: str | None) -> dict[str, Histogram]:
    if url is None:
        return {}
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
        return histograms(answer.read().decode())


def wal_figures(before: Mapping[str, Histogram], after: Mapping[str, Histogram]) -> dict[str, float | None]:
    """What is reported of the time between."""
    between = {name: after[name].since(before.get(name)) for name in after}
    frames, handover, stall = (between.get(name) for name in NAMES)
    return {
        "batches_per_group": frames.mean() if frames else None,
        "handover_p99_us": _us(handover.at_most(0.99) if handover else None),
        "loop_stall_p99_us": _us(stall.at_most(0.99) if stall else None),
    }


def _us(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6
