"""Metrics of the heaps that are led here: under the names that heaps have always been watched by, and under our own.

The one rule: series are bounded by settings; partitions beyond that are in the totals alone.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from holdfast.agent.agent import Agent
from holdfast.gateways.http.metrics.exposition import (
    Labels,
    MetricFamily,
    MetricSource,
    counter,
    gauge,
    histogram,
)
from holdfast.gateways.http.metrics.settings import MetricsSettings
from holdfast.heap.local_heaps import DLQ_SUFFIX
from holdfast.heap.model import PartitionStats

_THROTTLES: Final = {"leases": "keys_at_limit", "rate": "keys_at_rate"}
_STATES: Final = ("ready", "delayed", "inflight", "moving")


def heap_metrics(agent: Agent, settings: MetricsSettings) -> MetricSource:
    """Metrics of what an agent leads."""

    async def families() -> Iterable[MetricFamily]:
        heaps = agent.local_heaps
        figures = heaps.figures
        opened = sorted(heaps.open.items(), key=lambda each: (each[0].topic, each[0].number))
        rows = [(which.topic, view.stats()) for which, view in opened]
        counted = figures.counters()
        snapshot_bytes = sum(stats.snapshot_bytes for _, stats in rows)

        def total(*names: str, letters: bool = True) -> int:
            chosen = [each for topic, each in counted.items() if letters or not topic.endswith(DLQ_SUFFIX)]
            return sum(each[name] for each in chosen for name in names)

        return [
            histogram(
                "enqueue_latency_ms", "Enqueues, from the request to durable, in milliseconds.", figures.enqueue_ms
            ),
            histogram("pop_latency_ms", "Pops that got messages, without the wait for them, in ms.", figures.pop_ms),
            histogram(
                "raft_apply_latency_ms", "Batches of operations, from the append to durable, in ms.", figures.apply_ms()
            ),
            *_by_partition(rows, settings.partitions_max),
            counter(
                "retries_total",
                "Messages that are tried again: refused, or not acknowledged in time.",
                total("nacked", "expired"),
            ),
            counter("dlq_total", "Messages that became dead letters.", total("moved", letters=False)),
            counter("lease_timeouts_total", "Leases that expired, of messages that are tried again.", total("expired")),
            gauge(
                "snapshot_bytes",
                "Bytes of the newest snapshots of heap partitions led here.",
                snapshot_bytes,
            ),
            counter("wal_bytes_written_total", "Bytes written to the WAL of this node.", agent.wal.stats.bytes),
            gauge("holdfast_heap_partitions", "Heap partitions served here.", len(rows)),
            gauge(
                "holdfast_heap_partitions_failed",
                "Heap partitions led here that cannot be served.",
                len(heaps.failures),
            ),
            MetricFamily(
                "holdfast_heap_messages",
                "gauge",
                "Messages of heap partitions served here, by state.",
                [({"state": name}, float(sum(getattr(each, name) for _, each in rows))) for name in _STATES],
            ),
            gauge(
                "holdfast_heap_keys",
                "Fairness keys that heap partitions served here tell apart.",
                sum(each.keys for _, each in rows),
            ),
            MetricFamily(
                "holdfast_heap_keys_throttled",
                "gauge",
                "Fairness keys with messages that wait for a lease to end, or for a rate.",
                [
                    ({"reason": reason}, float(sum(getattr(each, name) for _, each in rows)))
                    for reason, name in _THROTTLES.items()
                ],
            ),
            MetricFamily(
                "holdfast_heap_operations_total",
                "counter",
                "Messages that were enqueued, granted, acked and so on here, by topic.",
                [
                    ({"topic": topic, "operation": name}, float(value))
                    for topic, values in islice(sorted(counted.items()), settings.topics_max)
                    for name, value in values.items()
                ],
            ),
        ]

    return families


def _by_partition(rows: list[tuple[str, PartitionStats]], most: int) -> Iterable[MetricFamily]:
    labels: list[Labels] = [{"topic": topic, "partition": str(each.partition)} for topic, each in rows[:most]]
    inflight = [float(each.inflight) for _, each in rows[:most]]
    backlog = [float(each.ready + each.delayed) for _, each in rows[:most]]
    yield MetricFamily("inflight", "gauge", "Messages that are leased.", list(zip(labels, inflight, strict=True)))
    yield MetricFamily("backlog", "gauge", "Messages that wait.", list(zip(labels, backlog, strict=True)))
