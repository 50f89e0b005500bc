"""Metrics of the etcd member that runs beside the server."""

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.gateways.http.metrics.exposition import MetricFamily, MetricSource, counter, gauge


@dataclass(slots=True, kw_only=True)
class EtcdMemberFigures:
    """The member as it was a few seconds ago."""

    quota_bytes: int
    up: bool = False
    has_leader: bool = False
    bytes: int = 0
    used_bytes: int = 0
    restarts: int = 0
    alarms: tuple[str, ...] = ()


def etcd_member_metrics(figures: EtcdMemberFigures) -> MetricSource:
    """Metrics of the member."""

    async def families() -> Iterable[MetricFamily]:
        return [
            gauge("holdfast_etcd_up", "Whether the embedded etcd member answers.", int(figures.up)),
            gauge("holdfast_etcd_has_leader", "Whether the member has a leader.", int(figures.has_leader)),
            gauge("holdfast_etcd_database_bytes", "Size of the member's database.", figures.bytes),
            gauge("holdfast_etcd_database_used_bytes", "Bytes of the database in use.", figures.used_bytes),
            gauge("holdfast_etcd_quota_bytes", "Size from which on etcd refuses writes.", figures.quota_bytes),
            gauge(
                "holdfast_etcd_alarms", "Alarms of etcd: while there are any, it refuses writes.", len(figures.alarms)
            ),
            counter("holdfast_etcd_restarts_total", "Times the member's process ended.", figures.restarts),
        ]

    return families
