"""Metrics of the Kafka gateway."""

from collections.abc import Iterable, Mapping, Sized
from typing import Protocol

from holdfast.gateways.http.metrics.exposition import MetricFamily, MetricSource, counter, gauge, histogram
from holdfast.vocabulary.histogram import Histogram, Latencies


class KafkaCounters(Protocol):
    """What the Kafka server counts. A protocol, so that one gateway does not import the other."""

    requests: int
    malformed: int
    latencies: Latencies

    @property
    def requests_together(self) -> Histogram:
        """Produce requests appended with one call."""
        ...

    @property
    def unsupported_by_api(self) -> Mapping[str, int]:
        """Requests that ApiVersions does not list, by API."""
        ...

    @property
    def throttled_ms(self) -> Mapping[str, int]:
        """How long clients had to pause, by quota."""
        ...

    @property
    def throttled_connections(self) -> Mapping[str, int]:
        """Connections of addresses beyond their rate, by what became of them."""
        ...

    @property
    def connections(self) -> Sized:
        """Open connections."""
        ...

    @property
    def used_bytes(self) -> int:
        """Memory of requests in flight."""
        ...


class ResponseCounters(Protocol):
    """What the responses of the Kafka server hold."""

    closed: int

    @property
    def used_bytes(self) -> int:
        """Memory of responses."""
        ...


def kafka_metrics(
    server: KafkaCounters, fetch_sessions: Sized, responses: ResponseCounters, remote_reads: Sized
) -> MetricSource:
    """Metrics of a Kafka server, its fetch sessions, its responses and its reads of object storage."""

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
            MetricFamily(
                "holdfast_kafka_throttled_seconds_total",
                "counter",
                "Time that clients beyond a quota had to pause.",
                [({"quota": quota}, told_ms / 1_000) for quota, told_ms in sorted(server.throttled_ms.items())],
            ),
            MetricFamily(
                "holdfast_kafka_throttled_connections_total",
                "counter",
                "Kafka connections of addresses beyond their quota: delayed, or closed after a second.",
                [({"outcome": outcome}, count) for outcome, count in sorted(server.throttled_connections.items())],
            ),
            histogram(
                "holdfast_kafka_request_seconds",
                "Duration of Kafka requests, from their arrival to the response; without a Fetch's wait for records.",
                [({"api": api}, each) for api, each in sorted(server.latencies.items())],
            ),
            histogram(
                "holdfast_kafka_produce_together_requests",
                "Produce requests for one partition that were appended together.",
                server.requests_together,
            ),
            gauge("holdfast_kafka_connections", "Open Kafka connections.", len(server.connections)),
            gauge("holdfast_kafka_fetch_sessions", "Fetch sessions.", len(fetch_sessions)),
            gauge("holdfast_kafka_request_bytes", "Memory of Kafka requests in flight.", server.used_bytes),
            gauge("holdfast_kafka_response_bytes", "Memory of unread Kafka responses.", responses.used_bytes),
            gauge("holdfast_kafka_remote_reads", "Reads of object storage for fetches.", len(remote_reads)),
            counter(
                "holdfast_kafka_unread_closed_total", "Kafka connections closed: unread responses.", responses.closed
            ),
        )

    return families
