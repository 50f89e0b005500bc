"""Metrics of the replicas that an agent keeps."""

from collections.abc import Iterable

from holdfast.gateways.http.metrics.exposition import MetricFamily, counter, gauge
from holdfast.log.replication.replica_host import ReplicaHost


def replica_families(host: ReplicaHost) -> Iterable[MetricFamily]:
    """Metrics of an agent's replicas."""
    replicas, counters = list(host.replicas), host.counters
    return (
        gauge("holdfast_replicas", "Partitions of which this agent's WAL is a replica.", len(replicas)),
        gauge(
            "holdfast_replicas_unreadable",
            "Those that cannot be read from the WAL, and answer nothing.",
            sum(bool(each.failure) for each in replicas),
        ),
        gauge(
            "holdfast_replica_entries_bytes",
            "Unpublished entries of all replicas in memory.",
            sum(each.size_bytes for each in replicas),
        ),
        gauge(
            "holdfast_replica_entries_budget_bytes",
            "Those that other agents' leaders have sent: replica.entries_bytes_max limits them.",
            host.budget.used_bytes,
        ),
        gauge("holdfast_replica_messages_waiting", "Messages that wait.", sum(each.waiting for each in replicas)),
        counter("holdfast_replica_messages_total", "Messages of leaders and takeovers.", counters.messages),
        counter("holdfast_replica_fetches_total", "Reads of consumers answered by replicas.", counters.fetches),
        counter("holdfast_replica_waits_total", "Messages that waited for the WAL or for memory.", counters.waits),
        counter(
            "holdfast_replica_catch_up_bytes_total",
            "Bytes sent to replicas that were not members yet, as far as replica.catch_up_bytes_per_s limits them.",
            host.catch_up_rate.bytes_sent,
        ),
        counter("holdfast_replica_dropped_logs_total", "Logs dropped: nobody counts them.", counters.dropped_logs),
        MetricFamily(
            "holdfast_replica_refused_total",
            "counter",
            "Messages that were not answered, by reason.",
            [({"reason": reason}, float(count)) for reason, count in sorted(counters.refused.items())],
        ),
    )
