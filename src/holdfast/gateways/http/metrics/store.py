"""Metrics of the store: what its calls took, those that failed, commits that lost their race."""

from collections.abc import Iterable

from holdfast.contracts.measured_store import StoreCounters
from holdfast.gateways.http.metrics.exposition import MetricFamily, MetricSource, counter, histogram


def store_metrics(counters: StoreCounters) -> MetricSource:
    """Metrics of this process's calls."""

    async def families() -> Iterable[MetricFamily]:
        return (
            histogram(
                "holdfast_store_request_seconds",
                "Duration of calls of the store.",
                [({"operation": operation}, each) for operation, each in sorted(counters.latencies.items())],
            ),
            MetricFamily(
                "holdfast_store_errors_total",
                "counter",
                "Calls of the store that failed, or whose outcome is unknown.",
                [({"operation": operation}, float(count)) for operation, count in sorted(counters.errors.items())],
            ),
            counter("holdfast_store_conflicts_total", "Commits that lost their race.", counters.conflicts),
        )

    return families
