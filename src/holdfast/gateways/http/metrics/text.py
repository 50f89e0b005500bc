"""Metrics of the text gateway and of shared cursors."""

from collections.abc import Iterable, Sized
from typing import Any, Final, Protocol

from holdfast.cursors.service import CursorService
from holdfast.gateways.http.metrics.exposition import MetricFamily, MetricSource, counters_of, gauge, histogram
from holdfast.vocabulary.histogram import Latencies

_TEXT_HELP: Final = {
    "requests": "Text requests started.",
    "errors": "Errors answered.",
    "invalid_frames": "Frames of an invalid length.",
    "forwarded": "PUTs and GETs forwarded to another node.",
    "retries": "Attempts of a request after one that had no effect.",
    "received_bytes": "Bytes received from clients and other nodes.",
    "sent_bytes": "Bytes sent to clients and other nodes.",
    "connections_accepted": "Text connections accepted.",
    "connections_refused": "Text connections refused: too many.",
    "unfinished_closed": "Text connections closed: requests that had not arrived whole held too much memory.",
}
_CURSOR_HELP: Final = {
    "delivered": "Records delivered by GET.",
    "returned": "Records of GET that were handed out and not delivered.",
    "redelivered": "Records of GET handed out again.",
    "reads": "Reads ahead of cursors.",
    "store_commits": "Commits of positions to the store.",
    "shards_opened": "Cursor shards opened.",
    "shards_lost": "Cursor shards lost to another agent.",
}


class TextFigures(Protocol):
    """What the text server counts. A protocol, so that one gateway does not import the other."""

    @property
    def counters(self) -> Any:
        """A dataclass of counters."""
        ...

    @property
    def latencies(self) -> Latencies:
        """Durations by verb."""
        ...

    @property
    def connections(self) -> Sized:
        """Open connections."""
        ...

    @property
    def used_bytes(self) -> int:
        """Memory of requests in flight."""
        ...

    @property
    def unfinished_bytes(self) -> int:
        """Memory of requests that have not arrived whole."""
        ...


def text_metrics(server: TextFigures) -> MetricSource:
    """Metrics of a text server."""

    async def families() -> Iterable[MetricFamily]:
        return (
            *counters_of("holdfast_text", server.counters, _TEXT_HELP),
            histogram(
                "holdfast_text_request_seconds",
                "Duration of text requests, by verb.",
                [({"verb": verb}, each) for verb, each in sorted(server.latencies.items())],
            ),
            gauge("holdfast_text_connections", "Open text connections.", len(server.connections)),
            gauge("holdfast_text_request_bytes", "Memory of text requests in flight.", server.used_bytes),
            gauge(
                "holdfast_text_unfinished_bytes",
                "Memory of text requests that have not arrived whole.",
                server.unfinished_bytes,
            ),
        )

    return families


def cursor_metrics(cursors: CursorService) -> MetricSource:
    """Metrics of the shared cursors that this node owns."""

    async def families() -> Iterable[MetricFamily]:
        leading = cursors.leading
        owned = len(leading.shards()) if leading is not None else 0
        return (
            *counters_of("holdfast_cursors", cursors.counters, _CURSOR_HELP),
            gauge("holdfast_cursors_shards_owned", "Cursor shards owned by this node.", owned),
        )

    return families
