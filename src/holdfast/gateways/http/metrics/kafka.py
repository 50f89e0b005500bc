"""What the Kafka face counts."""

from collections.abc import Iterable

from holdfast.gateways.http.metrics.exposition import MetricFamily, MetricSource, counter, gauge
from holdfast.gateways.kafka.server import KafkaServer


def kafka_metrics(server: KafkaServer) -> MetricSource:
    """The numbers of a Kafka face."""

    async def families() -> Iterable[MetricFamily]:
        return (
            counter("holdfast_kafka_requests_total", "Kafka requests begun.", server.requests),
            counter("holdfast_kafka_malformed_total", "Kafka connections closed for what they sent.", server.malformed),
            gauge("holdfast_kafka_connections", "Open Kafka connections.", len(server.connections)),
            gauge("holdfast_kafka_fetch_sessions", "Fetch sessions kept.", len(server.backend.fetch_sessions)),
            gauge(
                "holdfast_kafka_request_bytes",
                "Memory of Kafka requests that arrive or are under way.",
                server.used_bytes,
            ),
        )

    return families
