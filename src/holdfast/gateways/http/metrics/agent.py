"""Metrics of an agent: partitions, publishing, sessions, its write-ahead log; and of the cluster as this node sees it."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from holdfast.agent.agent import Agent
from holdfast.agent.cluster import Cluster
from holdfast.gateways.http.metrics.exposition import MetricFamily, MetricSource, counters_of, gauge, histogram
from holdfast.gateways.http.metrics.peers import peer_families
from holdfast.gateways.http.metrics.replicas import replica_families
from holdfast.kernel.keys import is_log_partition
from holdfast.log.wal import WalHistograms

_AGENT_HELP: Final = {
    "opened": "Partitions opened.",
    "open_failures": "Partitions that failed to open.",
    "drained": "Partitions transferred to another agent.",
    "closed": "Partitions closed.",
    "publications": "Publications: uploads with their commit.",
    "segments_published": "Segments published.",
    "bytes_published": "Bytes of records published.",
    "publish_failures": "Publications that failed and are retried.",
    "lost_while_publishing": "Partitions fenced by another owner while publishing.",
    "bookings_returned": "Reserved offsets returned.",
    "producers_expired": "Idempotent producers forgotten because they were silent for too long.",
    "producers_evicted": "Idempotent producers forgotten because a partition had too many.",
    "sessions": "Sessions opened.",
    "sessions_lost": "Sessions lost.",
    "sessions_ended_early": "Sessions of dead agents that this one ended before their TTL.",
    "sessions_ended_wrongly": "Those whose agent was alive.",
}
_WAL_HELP: Final = {
    "groups": "Group commits.",
    "frames": "Frames written.",
    "bytes": "Bytes written.",
    "fsyncs": "fsync calls.",
    "stalls": "Appends delayed by the disk.",
    "refused": "Appends refused because the disk was full.",
    "rolls": "Files started.",
    "recycled": "Files recycled.",
    "copied_frames": "Frames copied out of old files.",
    "copied_bytes": "Bytes copied out of old files.",
}


def agent_metrics(agent: Agent) -> MetricSource:
    """Metrics of an agent."""

    async def families() -> Iterable[MetricFamily]:
        return (
            *counters_of("holdfast_agent", agent.counters, _AGENT_HELP),
            *counters_of("holdfast_wal", agent.wal.stats, _WAL_HELP),
            *_wal_histograms(agent.wal.histograms),
            gauge("holdfast_wal_live_bytes", "Bytes of WAL files that hold unreleased frames.", agent.wal.live_bytes),
            gauge("holdfast_wal_in_flight_bytes", "Bytes appended and not durable yet.", agent.wal.in_flight_bytes),
            *(peer_families(agent.peers) if agent.peers is not None else ()),
            *replica_families(agent.replicas),
            gauge("holdfast_agent_joined", "1 while the agent is a member.", float(agent.member is not None)),
            gauge("holdfast_agent_partitions_led", "Partitions led by this agent.", len(agent.leading)),
            gauge(
                "holdfast_agent_partitions_offline",
                "Partitions assigned to this agent that failed to open.",
                len(agent.offline),
            ),
        )

    return families


def _wal_histograms(observed: WalHistograms) -> Iterable[MetricFamily]:
    return (
        histogram("holdfast_wal_group_batches", "Record batches of a group commit.", observed.group_batches),
        histogram("holdfast_wal_write_seconds", "Write and sync of a group commit.", observed.write_s),
        histogram(
            "holdfast_wal_handover_seconds",
            "From the append to the writer's thread, and from its sync back to the event loop.",
            [({"to": "writer"}, observed.to_writer_s), ({"to": "loop"}, observed.to_loop_s)],
        ),
    )


def cluster_metrics(cluster: Cluster) -> MetricSource:
    """Metrics of the cluster as this node sees it."""

    made: tuple[MetricFamily, ...] = ()
    version: tuple[int, ...] = ()

    async def families() -> Iterable[MetricFamily]:
        nonlocal made, version
        if version != cluster.version:  # ten thousand leases are counted when one of them has changed
            version, made = cluster.version, _cluster_families(cluster)
        return made

    return families


def _cluster_families(cluster: Cluster) -> tuple[MetricFamily, ...]:
    topics, leases = cluster.topics, cluster.leases
    partitions = sum(each.partitions for each in topics)
    held = Counter(each.holder for each in leases)
    led = sum(is_log_partition(each.resource) for each in leases)
    return (
        gauge("holdfast_cluster_agents", "Live agents.", len(cluster.members)),
        gauge("holdfast_cluster_topics", "Topics.", len(topics)),
        gauge("holdfast_cluster_partitions", "Partitions of all topics.", partitions),
        gauge("holdfast_cluster_partitions_leaderless", "Partitions whose lease nobody holds.", partitions - led),
        MetricFamily(
            "holdfast_cluster_leases",
            "gauge",
            "Placed leases, by holder: partitions, group shards, cursor shards.",
            [({"agent": agent}, float(count)) for agent, count in sorted(held.items())],
        ),
        gauge(
            "holdfast_cluster_lease_epochs",
            "Sum of their epochs: it grows by one whenever a lease changes its owner.",
            sum(each.epoch for each in leases),
        ),
    )
