"""Metrics of the streams between agents."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from holdfast.agent.peers.peers import Peers
from holdfast.agent.peers.settings import TrafficCounters
from holdfast.agent.peers.stream import PeerStream
from holdfast.gateways.http.metrics.exposition import Labels, MetricFamily, counter, histogram

_COUNTER_HELP: Final = {
    "connects": "Connections to another agent made.",
    "credit_waits": "Waits for credit of a partition or a stream.",
    "lags": "Waits for credit that took longer than peers.lag_ms.",
    "refused_sends": "Messages not taken: no connection, or no room.",
}
_GAUGE_HELP: Final = {
    "connected": "1 while the stream to another agent is connected.",
    "unanswered_bytes": "Messages sent and not answered.",
    "queued_bytes": "Messages that wait for credit.",
}


def peer_families(peers: Peers) -> Iterable[MetricFamily]:
    """Metrics of an agent's streams."""
    streams = list(peers.streams)
    return (
        *_traffic(peers, streams),
        *_counters(streams),
        *_gauges(streams),
        MetricFamily(
            "holdfast_peer_disconnects_total",
            "counter",
            "Connections to another agent that ended or failed, by reason.",
            [
                ({**_peer(each), "reason": reason}, count)
                for each in streams
                for reason, count in sorted(each.counters.disconnects.items())
            ],
        ),
        histogram(
            "holdfast_peer_round_trip_seconds",
            "From sending a frame of messages to its last answer.",
            [(_peer(each), each.counters.round_trip_s) for each in streams],
        ),
        counter("holdfast_peer_refused_hellos_total", "Connections refused: not a peer.", peers.server.refused),
    )


def _traffic(peers: Peers, streams: Sequence[PeerStream]) -> Iterator[MetricFamily]:
    ends: list[tuple[Labels, TrafficCounters]] = [
        *(({**_peer(each), "stream": "to"}, each.counters) for each in streams),
        *(({"peer": agent, "stream": "from"}, counters) for agent, counters in sorted(peers.server.counters.items())),
    ]
    for unit in ("bytes", "frames"):
        yield MetricFamily(
            f"holdfast_peer_{unit}_total",
            "counter",
            f"{unit.capitalize()} sent and received over connections between agents.",
            [
                ({**labels, "direction": direction}, getattr(counters, f"{direction}_{unit}"))
                for labels, counters in ends
                for direction in ("sent", "received")
            ],
        )


def _counters(streams: Sequence[PeerStream]) -> Iterator[MetricFamily]:
    for name, help_text in _COUNTER_HELP.items():
        samples = [(_peer(each), float(getattr(each.counters, name))) for each in streams]
        yield MetricFamily(f"holdfast_peer_{name}_total", "counter", help_text, samples)


def _gauges(streams: Sequence[PeerStream]) -> Iterator[MetricFamily]:
    for name, help_text in _GAUGE_HELP.items():
        samples = [(_peer(each), float(getattr(each, name))) for each in streams]
        yield MetricFamily(f"holdfast_peer_{name}", "gauge", help_text, samples)


def _peer(stream: PeerStream) -> Labels:
    return {"peer": stream.peer.agent}
