"""Metrics of the HTTP gateway."""

from collections.abc import Iterable, Iterator
from typing import Final

from holdfast.gateways.http.metrics.exposition import MetricFamily, counter, gauge, histogram
from holdfast.vocabulary.histogram import Histogram

_BUCKET_BOUNDS_S: Final = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0)


class RequestCounters:
    """Counters since the start of the process. Labels are routes of the application, so their number is bounded."""

    def __init__(self) -> None:
        self.in_flight = self.waiting = self.rejected = self.connections = self.aborted = self.malformed = 0
        self._by_status: dict[tuple[str, str, int], int] = {}
        self._by_route: dict[tuple[str, str], Histogram] = {}

    def observe(self, method: str, route: str, status: int, took_ms: int) -> None:
        """Count a finished request."""
        key = (method, route, status)
        self._by_status[key] = self._by_status.get(key, 0) + 1
        if (method, route) not in self._by_route:
            self._by_route[method, route] = Histogram(_BUCKET_BOUNDS_S)
        self._by_route[method, route].observe(took_ms / 1000)

    async def families(self) -> Iterable[MetricFamily]:
        """The families of these counters."""
        return list(self._families())

    def _families(self) -> Iterator[MetricFamily]:
        by_status = [
            ({"method": method, "route": route, "status": str(status)}, float(count))
            for (method, route, status), count in sorted(self._by_status.items())
        ]
        yield MetricFamily("holdfast_http_requests_total", "counter", "HTTP requests.", by_status)
        yield histogram(
            "holdfast_http_request_seconds",
            "Duration of HTTP requests, from the head to the end of the response.",
            [({"method": method, "route": route}, each) for (method, route), each in sorted(self._by_route.items())],
        )
        yield gauge("holdfast_http_requests_under_way", "HTTP requests in flight.", self.in_flight)
        yield gauge("holdfast_http_waits", "Of these, reads and tails that wait for records.", self.waiting)
        yield counter(
            "holdfast_http_turned_away_total",
            "HTTP requests rejected: too many in flight.",
            self.rejected,
        )
        yield gauge("holdfast_http_connections", "Open HTTP connections.", self.connections)
        yield counter(
            "holdfast_http_hung_up_total",
            "HTTP connections aborted: too many, or too slow.",
            self.aborted,
        )
        yield counter("holdfast_http_malformed_total", "Malformed HTTP requests.", self.malformed)
