"""Writes the dashboards beside it, from one table: `python deploy/grafana/generate.py`. A test holds the files to it.

The one rule: a panel is a title, a unit and queries; everything else is the same everywhere. Every query is run by the tests.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
NODE = 'instance=~"$instance"'


class Panel(NamedTuple):
    """One graph. `queries`: PromQL by legend. `kind`: timeseries, stat or table."""

    title: str
    unit: str
    queries: Mapping[str, str]
    help: str = ""
    kind: str = "timeseries"


def quantiles(metric: str, by: str = "", where: str = "") -> dict[str, str]:
    """The median and the 99th percentile of a histogram."""
    labels = f"{NODE}, {where}" if where else NODE
    legend = "".join(f"{{{{{name}}}}} " for name in by.split(", ") if name)
    grouped = ", ".join(part for part in ("le", by) if part)
    return {
        f"{legend}{name}": f"histogram_quantile({q}, sum by ({grouped}) (rate({metric}_bucket{{{labels}}}[$__rate_interval])))"
        for name, q in (("p50", 0.5), ("p99", 0.99))
    }


def rate(metric: str, by: str = "", where: str = "") -> str:
    """A counter per second."""
    labels = f"{NODE}, {where}" if where else NODE
    return f"sum{f' by ({by})' if by else ''} (rate({metric}{{{labels}}}[$__rate_interval]))"


def total(metric: str, by: str = "", how: str = "sum") -> str:
    """A gauge, over nodes."""
    return f"{how}{f' by ({by})' if by else ''} ({metric}{{{NODE}}})"


def slots_rate(metric: str) -> str:
    """A counter of slots per second, by pipeline: every node shows the same ones."""
    once = f"max by (pipeline, generation, slot, worker) (rate({metric}{{{NODE}}}[$__rate_interval]))"
    return f"sum by (pipeline) ({once})"


DASHBOARDS: Mapping[str, tuple[str, Sequence[Panel]]] = {
    "overview": (
        "Holdfast: overview",
        [
            Panel("Live agents", "short", {"agents": total("holdfast_cluster_agents", how="max")}, kind="stat"),
            Panel("Topics", "short", {"topics": total("holdfast_cluster_topics", how="max")}, kind="stat"),
            Panel("Partitions", "short", {"partitions": total("holdfast_cluster_partitions", how="max")}, kind="stat"),
            Panel(
                "Partitions without a leader",
                "short",
                {"leaderless": total("holdfast_cluster_partitions_leaderless", how="max")},
                kind="stat",
            ),
            Panel("Records in", "cps", {"records": rate("holdfast_topic_appended_records_total")}),
            Panel(
                "Bytes in and out",
                "Bps",
                {"in": rate("holdfast_topic_appended_bytes_total"), "out": rate("holdfast_topic_read_bytes_total")},
            ),
            Panel("Produce", "s", quantiles("holdfast_kafka_request_seconds", where='api="Produce"')),
            Panel(
                "Fetch",
                "s",
                quantiles("holdfast_kafka_request_seconds", where='api="Fetch"'),
                "Without the time a Fetch waits for records.",
            ),
            Panel("Group commit", "s", quantiles("holdfast_wal_write_seconds"), "Write and fsync."),
            Panel("Event loop stalls", "s", quantiles("holdfast_loop_stall_seconds", by="instance")),
            Panel(
                "Lag of the groups most behind",
                "short",
                {"{{group}}": "topk(10, " + total("holdfast_group_lag_sum_records", "group", "max") + ")"},
            ),
            Panel(
                "Not in object storage yet",
                "bytes",
                {"{{instance}}": total("holdfast_log_unpublished_bytes", "instance")},
            ),
        ],
    ),
    "partitions": (
        "Holdfast: partitions and replication",
        [
            Panel("Partitions led", "short", {"{{instance}}": total("holdfast_agent_partitions_led", "instance")}),
            Panel("Leases", "short", {"{{agent}}": total("holdfast_cluster_leases", "agent", "max")}),
            Panel(
                "Changes of owner",
                "short",
                {"changes": f"max(delta(holdfast_cluster_lease_epochs{{{NODE}}}[$__rate_interval]))"},
                "Each raises an epoch.",
            ),
            Panel(
                "Partitions that fail to open",
                "short",
                {"{{instance}}": total("holdfast_agent_partitions_offline", "instance")},
            ),
            Panel(
                "Under-replicated",
                "short",
                {
                    "not all in sync": total("holdfast_replication_under_replicated"),
                    "below quorum": total("holdfast_replication_below_quorum"),
                },
            ),
            Panel(
                "Replication lag",
                "short",
                {"{{instance}}": total("holdfast_replication_lag_records", "instance", "max")},
                "Records of the replica most behind.",
            ),
            Panel("Round trips between agents", "s", quantiles("holdfast_peer_round_trip_seconds", by="peer")),
            Panel(
                "Records by topic",
                "cps",
                {"{{topic}}": "topk(10, " + rate("holdfast_topic_appended_records_total", "topic") + ")"},
            ),
            Panel(
                "Backlog by topic",
                "bytes",
                {"{{topic}}": "topk(10, " + total("holdfast_topic_unpublished_bytes", "topic") + ")"},
                "Bytes that object storage does not have yet.",
            ),
            Panel(
                "Oldest unpublished",
                "s",
                {"{{instance}}": total("holdfast_log_oldest_unpublished_seconds", "instance", "max")},
            ),
            Panel(
                "Epochs",
                "short",
                {
                    "{{topic}}:{{partition}}": "topk(20, "
                    + total("holdfast_partition_epoch", "topic, partition", "max")
                    + ")"
                },
                kind="table",
            ),
            Panel(
                "In-sync replicas",
                "short",
                {
                    "{{topic}}:{{partition}}": "bottomk(20, "
                    + total("holdfast_partition_in_sync_replicas", "topic, partition", "max")
                    + ")"
                },
                kind="table",
            ),
        ],
    ),
    "clients": (
        "Holdfast: clients and lag",
        [
            Panel("Kafka requests", "reqps", {"{{api}}": rate("holdfast_kafka_request_seconds_count", "api")}),
            Panel("Kafka latency by API", "s", quantiles("holdfast_kafka_request_seconds", by="api")),
            Panel(
                "HTTP requests",
                "reqps",
                {"{{method}} {{route}} {{status}}": rate("holdfast_http_requests_total", "method, route, status")},
            ),
            Panel("HTTP latency by route", "s", quantiles("holdfast_http_request_seconds", by="method, route")),
            Panel("Text latency by verb", "s", quantiles("holdfast_text_request_seconds", by="verb")),
            Panel(
                "Connections",
                "short",
                {
                    "Kafka {{instance}}": total("holdfast_kafka_connections", "instance"),
                    "HTTP {{instance}}": total("holdfast_http_connections", "instance"),
                },
            ),
            Panel("Lag by group", "short", {"{{group}}": total("holdfast_group_lag_sum_records", "group", "max")}),
            Panel(
                "Lag by partition",
                "short",
                {
                    "{{group}} {{topic}}:{{partition}}": "topk(20, "
                    + total("holdfast_group_lag_records", "group, topic, partition", "max")
                    + ")"
                },
                kind="table",
            ),
            Panel(
                "Rebalances",
                "cps",
                {
                    "rebalances": rate("holdfast_groups_rebalances_total"),
                    "members expired": rate("holdfast_groups_members_expired_total"),
                },
            ),
            Panel("Groups by state", "short", {"{{state}}": total("holdfast_groups", "state")}),
            Panel(
                "Refused and malformed",
                "cps",
                {
                    "Kafka, malformed": rate("holdfast_kafka_malformed_total"),
                    "Kafka, unsupported": rate("holdfast_kafka_unsupported_total"),
                    "HTTP, busy": rate("holdfast_http_turned_away_total"),
                },
            ),
            Panel("Fetch sessions", "short", {"{{instance}}": total("holdfast_kafka_fetch_sessions", "instance")}),
        ],
    ),
    "objects": (
        "Holdfast: object storage and cost",
        [
            Panel(
                "Requests by operation and cause",
                "reqps",
                {"{{operation}} {{cause}}": rate("holdfast_objects_requests_total", "operation, cause")},
            ),
            Panel("Latency", "s", quantiles("holdfast_objects_request_seconds", by="operation")),
            Panel(
                "Errors, throttling and retries",
                "cps",
                {
                    "errors": rate("holdfast_objects_errors_total"),
                    "throttled": rate("holdfast_objects_throttled_total"),
                    "retries": rate("holdfast_objects_retries_total"),
                },
            ),
            Panel(
                "Bytes",
                "Bps",
                {
                    "read": rate("holdfast_objects_read_bytes_total"),
                    "written": rate("holdfast_objects_written_bytes_total"),
                },
            ),
            Panel(
                "Estimated cost a day, by cause",
                "currencyUSD",
                {"{{cause}}": "86400 * " + rate("holdfast_objects_cost_usd_total", "cause")},
                "From list prices; the invoice may differ.",
            ),
            Panel(
                "Publications",
                "cps",
                {
                    "publications": rate("holdfast_agent_publications_total"),
                    "failed": rate("holdfast_agent_publish_failures_total"),
                },
            ),
            Panel("Bytes published", "Bps", {"{{instance}}": rate("holdfast_agent_bytes_published_total", "instance")}),
            Panel(
                "Cache hits",
                "percentunit",
                {
                    "hits": rate("holdfast_cache_hits_total")
                    + " / ("
                    + rate("holdfast_cache_hits_total")
                    + " + "
                    + rate("holdfast_cache_misses_total")
                    + ")"
                },
            ),
            Panel("Cache", "bytes", {"{{instance}}": total("holdfast_cache_ram_bytes", "instance")}),
        ],
    ),
    "pipelines": (
        "Holdfast: pipelines",
        [
            Panel(
                "States",
                "short",
                {"{{pipeline}} {{state}}": total("holdfast_pipeline_state", "pipeline, state", "max") + " == 1"},
                kind="table",
            ),
            Panel(
                "Rows",
                "cps",
                {"{{pipeline}}": slots_rate("holdfast_pipeline_rows_total")},
            ),
            Panel("Lag", "short", {"{{pipeline}}": total("holdfast_pipeline_lag_rows", "pipeline", "max")}),
            Panel(
                "Age of the oldest record",
                "s",
                {"{{pipeline}}": total("holdfast_pipeline_lag_seconds", "pipeline", "max")},
            ),
            Panel(
                "Slots",
                "short",
                {
                    "{{pipeline}} wanted": total("holdfast_pipeline_slots_wanted", "pipeline", "max"),
                    "{{pipeline}} running": total("holdfast_pipeline_slots_running", "pipeline", "max"),
                },
            ),
            Panel(
                "Dead letters",
                "cps",
                {"{{pipeline}}": slots_rate("holdfast_pipeline_dlq_rows_total")},
            ),
            Panel("Workers", "short", {"able: {{able}}": total("holdfast_workers", "able", "max")}),
            Panel(
                "State of streaming queries",
                "bytes",
                {"{{pipeline}}": total("holdfast_pipeline_stream_state_bytes", "pipeline", "max")},
            ),
        ],
    ),
    "host": (
        "Holdfast: host, disk and store",
        [
            Panel(
                "CPU",
                "percentunit",
                {"{{instance}}": rate("process_cpu_seconds_total", "instance")},
                "Cores of the server's process.",
            ),
            Panel("Memory", "bytes", {"{{instance}}": total("process_resident_memory_bytes", "instance")}),
            Panel("Open files", "short", {"{{instance}}": total("process_open_fds", "instance")}),
            Panel("Event loop stalls", "s", quantiles("holdfast_loop_stall_seconds", by="instance")),
            Panel("Group commit", "s", quantiles("holdfast_wal_write_seconds", by="instance")),
            Panel("Hand-over to the WAL's thread and back", "s", quantiles("holdfast_wal_handover_seconds", by="to")),
            Panel("WAL", "Bps", {"{{instance}}": rate("holdfast_wal_bytes_total", "instance")}),
            Panel("WAL on disk", "bytes", {"{{instance}}": total("holdfast_wal_live_bytes", "instance")}),
            Panel("fsync", "iops", {"{{instance}}": rate("holdfast_wal_fsyncs_total", "instance")}),
            Panel("Store calls", "s", quantiles("holdfast_store_request_seconds", by="operation")),
            Panel(
                "Store: errors and lost races",
                "cps",
                {"errors": rate("holdfast_store_errors_total"), "lost races": rate("holdfast_store_conflicts_total")},
            ),
            Panel(
                "Embedded etcd",
                "bytes",
                {
                    "{{instance}} used": total("holdfast_etcd_database_used_bytes", "instance"),
                    "{{instance}} quota": total("holdfast_etcd_quota_bytes", "instance"),
                },
            ),
            Panel("Traces", "cps", {"{{outcome}}": rate("holdfast_traces_spans_total", "outcome")}),
        ],
    ),
}


def dashboard(uid: str, title: str, panels: Sequence[Panel]) -> dict[str, Any]:
    """The JSON that Grafana imports."""
    return {
        "uid": f"holdfast-{uid}",
        "title": title,
        "tags": ["holdfast"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": list(_variables())},
        "links": [{"type": "dashboards", "tags": ["holdfast"], "title": "Holdfast", "asDropdown": True}],
        "panels": list(_panels(panels)),
    }


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    yield {
        "name": "instance",
        "type": "query",
        "label": "node",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": "label_values(holdfast_info, instance)",
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
    }


def _panels(panels: Sequence[Panel]) -> Iterator[dict[str, Any]]:
    x = y = row_height = 0
    for number, panel in enumerate(panels, 1):
        width, height = (6, 4) if panel.kind == "stat" else (12, 8)
        if x + width > 24:
            x, y = 0, y + row_height
        row_height = height
        yield {
            "id": number,
            "title": panel.title,
            "description": panel.help,
            "type": panel.kind,
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "gridPos": {"x": x, "y": y, "w": width, "h": height},
            "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
            "targets": [
                {
                    "refId": chr(ord("A") + at),
                    "expr": query,
                    "legendFormat": legend,
                    "instant": panel.kind == "table",
                    "format": "table" if panel.kind == "table" else "time_series",
                }
                for at, (legend, query) in enumerate(panel.queries.items())
            ],
        }
        x += width


def files() -> dict[str, str]:
    """The text of each file by its name."""
    return {
        f"{uid}.json": json.dumps(dashboard(uid, title, panels), indent=2) + "\n"
        for uid, (title, panels) in DASHBOARDS.items()
    }


if __name__ == "__main__":
    for name, text in files().items():
        (HERE / name).write_text(text)
