"""What an agent counts: partitions, publishing, sessions, and its write-ahead log; and the cluster as a node sees it."""

from collections.abc import Iterable
from typing import Final

from holdfast.agent.agent import Agent
from holdfast.agent.cluster import Cluster
from holdfast.gateways.http.metrics.exposition import MetricFamily, MetricSource, counters_of, gauge

_AGENT_HELP: Final = {
    "opened": "Partitions opened.",
    "open_failures": "Partitions that could not be opened.",
    "drained": "Partitions handed to another agent.",
    "closed": "Partitions closed.",
    "publications": "Publications: uploads with the commit that names them.",
    "segments_published": "Segments published.",
    "bytes_published": "Bytes of records published.",
    "publish_failures": "Publications that failed and are tried again.",
    "lost_while_publishing": "Partitions that belonged to somebody else by the time they were published.",
    "bookings_returned": "Offsets booked ahead and given back.",
    "sessions": "Sessions opened.",
    "sessions_lost": "Sessions that ended although the agent wanted to go on.",
}
_WAL_HELP: Final = {
    "groups": "Groups of records written together.",
    "frames": "Frames written.",
    "bytes": "Bytes written.",
    "fsyncs": "Times the disk was told to keep what it has.",
    "stalls": "Appends that had to wait for the disk.",
    "refused": "Appends refused because the disk was full.",
    "rolls": "Files begun.",
    "recycled": "Files used again.",
}


def agent_metrics(agent: Agent) -> MetricSource:
    """The numbers of an agent."""

    async def families() -> Iterable[MetricFamily]:
        return (
            *counters_of("holdfast_agent", agent.counters, _AGENT_HELP),
            *counters_of("holdfast_wal", agent.wal.stats, _WAL_HELP),
            gauge("holdfast_agent_joined", "1 while the agent is a member.", float(agent.member is not None)),
            gauge("holdfast_agent_partitions_led", "Partitions served here.", len(agent.leading)),
            gauge(
                "holdfast_agent_partitions_offline", "Partitions it should serve and cannot open.", len(agent.offline)
            ),
        )

    return families


def cluster_metrics(cluster: Cluster) -> MetricSource:
    """The cluster as this node sees it."""

    async def families() -> Iterable[MetricFamily]:
        topics = cluster.topics
        return (
            gauge("holdfast_cluster_agents", "Agents that are there.", len(cluster.members)),
            gauge("holdfast_cluster_topics", "Topics.", len(topics)),
            gauge("holdfast_cluster_partitions", "Partitions of all topics.", sum(each.partitions for each in topics)),
        )

    return families
