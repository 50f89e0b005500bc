"""Metrics of partitions led here: totals of all, by topic, and of each of those led longest.

The one rule: a scrape costs one pass over what is led, in slices that let the event loop go on; series are bounded by settings.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from holdfast.agent.agent import Agent
from holdfast.gateways.http.metrics.exposition import Labels, MetricFamily, MetricSource, gauge
from holdfast.gateways.http.metrics.settings import MetricsSettings
from holdfast.log.figures import PartitionFigures, TopicTraffic
from holdfast.vocabulary.clock import Clock

_SLICE: Final = 500
_PARTITION_GAUGES: Final = {
    "epoch": ("holdfast_partition_epoch", "Epoch under which a partition is led here."),
    "start_offset": ("holdfast_partition_start_offset", "First offset that is kept."),
    "end_offset": ("holdfast_partition_end_offset", "High watermark."),
    "unpublished_bytes": ("holdfast_partition_unpublished_bytes", "Bytes that object storage does not have yet."),
    "replicas": ("holdfast_partition_replicas", "Replicas of a partition at quorum; 0: its leader alone."),
    "in_sync": ("holdfast_partition_in_sync_replicas", "Those that keep up."),
    "lag_records": ("holdfast_partition_replication_lag_records", "Offsets that the replica most behind lacks."),
}
_TOPIC_COUNTERS: Final = {
    "appended_records": ("holdfast_topic_appended_records_total", "Records appended here."),
    "appended_bytes": ("holdfast_topic_appended_bytes_total", "Bytes of batches appended here."),
    "read_bytes": ("holdfast_topic_read_bytes_total", "Bytes of batches read here."),
}


@dataclass(slots=True)
class _Totals:
    """Sums over all partitions led here."""

    unpublished_records: int = 0
    unpublished_bytes: int = 0
    oldest_ms: int | None = None
    replicated: int = 0
    under_replicated: int = 0
    below_quorum: int = 0
    lag_records: int = 0
    by_topic: dict[str, int] = field(default_factory=dict)

    def add(self, each: PartitionFigures) -> None:
        self.unpublished_records += each.unpublished_records
        if each.unpublished_bytes:
            self.unpublished_bytes += each.unpublished_bytes
            self.by_topic[each.topic] = self.by_topic.get(each.topic, 0) + each.unpublished_bytes
        if each.oldest_unpublished_ms is not None and (
            self.oldest_ms is None or each.oldest_unpublished_ms < self.oldest_ms
        ):
            self.oldest_ms = each.oldest_unpublished_ms
        if each.replicas:
            self.replicated += 1
            self.under_replicated += each.in_sync < each.replicas
            self.below_quorum += each.in_sync < each.replicas_needed
            self.lag_records = max(self.lag_records, each.lag_records)


def partition_metrics(agent: Agent, settings: MetricsSettings, clock: Clock) -> MetricSource:
    """Metrics of what an agent leads."""

    async def families() -> Iterable[MetricFamily]:
        totals = _Totals()
        shown: list[PartitionFigures] = []
        led = list(agent.log.leading.values())
        for at in range(0, len(led), _SLICE):
            for partition in led[at : at + _SLICE]:
                is_shown = len(shown) < settings.partitions_max
                if is_shown or partition.adds_to_totals:
                    figures = partition.figures
                    totals.add(figures)
                    if is_shown:
                        shown.append(figures)
            await clock.sleep_ms(0)
        return [
            *_total_families(totals, clock.boot_ms()),
            *_topics(agent.log.traffic, totals, settings.topics_max),
            *_partitions(sorted(shown)),
            MetricFamily(
                "holdfast_metrics_left_out",
                "gauge",
                "Topics, partitions and groups without series of their own: metrics.*_max.",
                [
                    ({"of": "partitions"}, float(len(led) - len(shown))),
                    ({"of": "topics"}, float(max(0, len(agent.log.traffic) - settings.topics_max))),
                ],
            ),
        ]

    return families


def _total_families(totals: _Totals, now_ms: int) -> Iterator[MetricFamily]:
    yield gauge(
        "holdfast_log_unpublished_bytes", "Bytes that object storage does not have yet.", totals.unpublished_bytes
    )
    yield gauge(
        "holdfast_log_unpublished_records", "Offsets that object storage does not have yet.", totals.unpublished_records
    )
    age_ms = 0 if totals.oldest_ms is None else max(0, now_ms - totals.oldest_ms)
    yield gauge("holdfast_log_oldest_unpublished_seconds", "Age of the oldest of them.", age_ms / 1000)
    yield gauge("holdfast_replication_partitions", "Partitions led here that have replicas.", totals.replicated)
    yield gauge(
        "holdfast_replication_under_replicated", "Those with a replica that does not keep up.", totals.under_replicated
    )
    yield gauge(
        "holdfast_replication_below_quorum",
        "Those that too few replicas keep up with for appends.",
        totals.below_quorum,
    )
    yield gauge("holdfast_replication_lag_records", "Offsets that the replica most behind lacks.", totals.lag_records)


def _topics(traffic: TopicTraffic, totals: _Totals, most: int) -> Iterator[MetricFamily]:
    shown = list(islice(sorted(traffic.items()), most))
    for name, (family, help_text) in _TOPIC_COUNTERS.items():
        samples = [({"topic": topic}, float(getattr(counters, name))) for topic, counters in shown]
        yield MetricFamily(family, "counter", help_text, samples)
    unpublished = [({"topic": topic}, float(totals.by_topic.get(topic, 0))) for topic, _ in shown]
    yield MetricFamily("holdfast_topic_unpublished_bytes", "gauge", "Bytes not in object storage yet.", unpublished)


def _partitions(shown: Sequence[PartitionFigures]) -> Iterator[MetricFamily]:
    labels: list[Labels] = [{"topic": each.topic, "partition": str(each.number)} for each in shown]
    for name, (family, help_text) in _PARTITION_GAUGES.items():
        samples = [(label, float(getattr(each, name))) for label, each in zip(labels, shown, strict=True)]
        yield MetricFamily(family, "gauge", help_text, samples)
