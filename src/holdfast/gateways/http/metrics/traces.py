"""Metrics of traces: spans that were sent, and those that were lost."""

from collections.abc import Iterable
from typing import Protocol

from holdfast.gateways.http.metrics.exposition import MetricFamily, MetricSource, gauge


class SpanTotals(Protocol):
    """What became of spans."""

    exported: int
    failed: int
    dropped: int


class QueuedSpans(Protocol):
    """Spans on their way."""

    @property
    def counters(self) -> SpanTotals:
        """What became of earlier ones."""
        ...

    def __len__(self) -> int: ...


def trace_metrics(queue: QueuedSpans) -> MetricSource:
    """Metrics of the traces of this process."""

    async def families() -> Iterable[MetricFamily]:
        totals = queue.counters
        by_outcome = {"exported": totals.exported, "failed": totals.failed, "dropped": totals.dropped}
        return (
            MetricFamily(
                "holdfast_traces_spans_total",
                "counter",
                "Spans that ended: exported, failed at the collector, or dropped because the queue was full.",
                [({"outcome": outcome}, float(count)) for outcome, count in by_outcome.items()],
            ),
            gauge("holdfast_traces_queued_spans", "Spans that wait to be exported.", len(queue)),
        )

    return families
