"""Metrics of the Kafka gateway."""

from collections.abc import Iterable, Mapping, Sized
from typing import Protocol

from holdfast.gateways.http.metrics.exposition import MetricFamily, MetricSource, counter, gauge


class KafkaCounters(Protocol):
    """What the Kafka server counts. A protocol, so that one gateway does not import the other."""

    requests: int
    malformed: int

    @property
    def unsupported_by_api(self) -> Mapping[str, int]:
        """Requests that ApiVersions does not list, by API."""
        ...

    @property
    def connections(self) -> Sized:
        """Open connections."""
        ...

    @property
    def used_bytes(self) -> int:
        """Memory of requests in flight."""
        ...


def kafka_metrics(server: KafkaCounters, fetch_sessions: Sized) -> MetricSource:
    """Metrics of a Kafka server and its fetch sessions."""

    async def families() -> Iterable[MetricFamily]:
        return (
            counter("holdfast_kafka_requests_total", "Kafka requests started.", server.requests),
            counter("holdfast_kafka_malformed_total", "Kafka connections closed: malformed request.", server.malformed),
            MetricFamily(
                "holdfast_kafka_unsupported_total",
                "counter",
                "Kafka connections closed: an API or version that is not supported.",
                [({"api": api}, count) for api, count in sorted(server.unsupported_by_api.items())],
            ),
            gauge("holdfast_kafka_connections", "Open Kafka connections.", len(server.connections)),
            gauge("holdfast_kafka_fetch_sessions", "Fetch sessions.", len(fetch_sessions)),
            gauge("holdfast_kafka_request_bytes", "Memory of Kafka requests in flight.", server.used_bytes),
        )

    return families
