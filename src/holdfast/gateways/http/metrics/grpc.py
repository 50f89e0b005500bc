"""Metrics of the gRPC gateway."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from holdfast.gateways.http.metrics.exposition import MetricFamily, MetricSource, counter, gauge, histogram
from holdfast.vocabulary.histogram import Latencies


class GrpcFigures(Protocol):
    """What the gRPC server counts. A protocol, so that one gateway does not import the other."""

    @property
    def calls(self) -> Mapping[tuple[str, str], int]:
        """Calls that have ended, by rpc and code."""
        ...

    @property
    def latencies(self) -> Latencies:
        """Durations of calls with one response, by rpc."""
        ...

    @property
    def in_flight(self) -> int:
        """Calls that have not."""
        ...

    @property
    def open_streams(self) -> int:
        """Of these, Fetch and Watch streams."""
        ...

    @property
    def records_appended(self) -> int:
        """By any call."""
        ...

    @property
    def records_read(self) -> int:
        """For Fetch streams."""
        ...


def grpc_metrics(counters: GrpcFigures) -> MetricSource:
    """Metrics of a gRPC server."""

    async def families() -> Iterable[MetricFamily]:
        calls = [({"rpc": rpc, "code": code}, float(count)) for (rpc, code), count in sorted(counters.calls.items())]
        return (
            MetricFamily("holdfast_grpc_calls_total", "counter", "gRPC calls that have ended.", calls),
            histogram(
                "holdfast_grpc_call_seconds",
                "Duration of gRPC calls with one response, by rpc.",
                [({"rpc": rpc}, each) for rpc, each in sorted(counters.latencies.items())],
            ),
            gauge("holdfast_grpc_calls_under_way", "gRPC calls in flight, streams included.", counters.in_flight),
            gauge("holdfast_grpc_streams", "Open Fetch and Watch streams.", counters.open_streams),
            counter("holdfast_grpc_records_appended_total", "Records appended over gRPC.", counters.records_appended),
            counter("holdfast_grpc_records_read_total", "Records read for Fetch streams.", counters.records_read),
        )

    return families
