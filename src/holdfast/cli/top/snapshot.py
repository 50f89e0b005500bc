"""What `top` shows, made of two looks at each node. Pure: pages and the time between them go in, rows come out.

The one rule: a node that does not answer is a row that says so, and never an error. Figures that every node has of the whole
cluster are taken from whoever answered; counters of nodes are added up. A counter that went back belongs to a new process.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast.cli.top.exposition import MetricsPage

SORTS: Final = ("records", "bytes", "backlog", "name")
_P99: Final = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLook:
    """A node at one moment. `page` is None if it did not answer, for `reason`. `at_ns`: on a stopwatch."""

    url: str
    at_ns: int
    page: MetricsPage | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node. Durations are the 99th percentile since the look before; None: there was nothing."""

    node: str
    up: bool
    reason: str = ""
    partitions: int = 0
    requests_per_s: float = 0.0
    connections: int = 0
    cpu: float = 0.0
    memory_bytes: int = 0
    unpublished_bytes: int = 0
    fsync_p99_s: float | None = None
    stall_p99_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """A topic over all nodes that answered. `backlog_bytes`: what object storage does not have yet."""

    topic: str
    records_per_s: float = 0.0
    bytes_in_per_s: float = 0.0
    bytes_out_per_s: float = 0.0
    backlog_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A consumer group. `change_per_s`: how its lag grows; `worst`: the partition most behind."""

    group: str
    lag: int
    change_per_s: float = 0.0
    worst: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRow:
    """An agent and the leases it holds."""

    agent: str
    leases: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRow:
    """A pipeline. Lag is None while no worker reports it."""

    pipeline: str
    state: str
    rows_per_s: float = 0.0
    lag_rows: int | None = None
    lag_s: float | None = None
    slots: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything at one moment."""

    agents_live: int = 0
    partitions: int = 0
    leaderless: int = 0
    under_replicated: int = 0
    nodes: list[NodeRow] = field(default_factory=list)
    topics: list[TopicRow] = field(default_factory=list)
    groups: list[GroupRow] = field(default_factory=list)
    agents: list[AgentRow] = field(default_factory=list)
    pipelines: list[PipelineRow] = field(default_factory=list)


Looks = Sequence[tuple[NodeLook, NodeLook]]  # of each node: the one before, and now


def take_snapshot(looks: Looks, *, sort: str) -> Snapshot:
    """The rows of two looks at each node."""
    pages = [now.page for _, now in looks if now.page is not None]
    return Snapshot(
        agents_live=int(max((page.value("holdfast_cluster_agents") for page in pages), default=0)),
        partitions=int(max((page.value("holdfast_cluster_partitions") for page in pages), default=0)),
        leaderless=int(max((page.value("holdfast_cluster_partitions_leaderless") for page in pages), default=0)),
        under_replicated=int(sum(page.value("holdfast_replication_under_replicated") for page in pages)),
        nodes=[_node(before, now) for before, now in looks],
        topics=_topics(looks, sort),
        groups=_groups(looks),
        agents=_agents(pages),
        pipelines=_pipelines(looks),
    )


def _seconds(before: NodeLook, now: NodeLook) -> float:
    return max(1e-9, (now.at_ns - before.at_ns) / 1e9)


def _increase(before: float, now: float) -> float:
    return now - before if now >= before else now


def _rate(before: NodeLook, now: NodeLook, name: str) -> float:
    if before.page is None or now.page is None:
        return 0.0
    return _increase(before.page.value(name), now.page.value(name)) / _seconds(before, now)


def _node(before: NodeLook, now: NodeLook) -> NodeRow:
    page = now.page
    if page is None:
        return NodeRow(node=now.url, up=False, reason=now.reason)
    return NodeRow(
        node=now.url,
        up=True,
        partitions=int(page.value("holdfast_agent_partitions_led")),
        requests_per_s=_rate(before, now, "holdfast_kafka_requests_total"),
        connections=int(page.value("holdfast_kafka_connections")),
        cpu=_rate(before, now, "process_cpu_seconds_total"),
        memory_bytes=int(page.value("process_resident_memory_bytes")),
        unpublished_bytes=int(page.value("holdfast_log_unpublished_bytes")),
        fsync_p99_s=_quantile(before.page, page, "holdfast_wal_write_seconds"),
        stall_p99_s=_quantile(before.page, page, "holdfast_loop_stall_seconds"),
    )


def _quantile(before: MetricsPage | None, now: MetricsPage, name: str) -> float | None:
    """The bound below which 99 of 100 observations since the look before lie."""
    old = before.by(f"{name}_bucket", "le") if before is not None else {}
    counts = {
        float(le.replace("+Inf", "inf")): _increase(old.get(le, 0.0), count)
        for le, count in now.by(f"{name}_bucket", "le").items()
    }
    total = max(counts.values(), default=0.0)
    if not total:
        return None
    return min(bound for bound, count in counts.items() if count >= _P99 * total)


def _topics(looks: Looks, sort: str) -> list[TopicRow]:
    names = {
        topic for _, now in looks if now.page for topic in now.page.by("holdfast_topic_unpublished_bytes", "topic")
    }
    records = _rates_by(looks, "holdfast_topic_appended_records_total", "topic")
    bytes_in = _rates_by(looks, "holdfast_topic_appended_bytes_total", "topic")
    bytes_out = _rates_by(looks, "holdfast_topic_read_bytes_total", "topic")
    backlog = _sums_by(looks, "holdfast_topic_unpublished_bytes", "topic")
    rows = [
        TopicRow(
            topic=name,
            records_per_s=records.get(name, 0.0),
            bytes_in_per_s=bytes_in.get(name, 0.0),
            bytes_out_per_s=bytes_out.get(name, 0.0),
            backlog_bytes=int(backlog.get(name, 0)),
        )
        for name in sorted(names)
    ]
    keys = {
        "records": lambda row: -row.records_per_s,
        "bytes": lambda row: -row.bytes_in_per_s - row.bytes_out_per_s,
        "backlog": lambda row: -row.backlog_bytes,
        "name": lambda row: row.topic,
    }
    return sorted(rows, key=keys[sort])


def _rates_by(looks: Looks, name: str, label: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for before, now in looks:
        if before.page is None or now.page is None:
            continue
        old = before.page.by(name, label)
        for key, value in now.page.by(name, label).items():
            found[key] = found.get(key, 0.0) + _increase(old.get(key, 0.0), value) / _seconds(before, now)
    return found


def _sums_by(looks: Looks, name: str, label: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for _, now in looks:
        for key, value in (now.page.by(name, label) if now.page is not None else {}).items():
            found[key] = found.get(key, 0.0) + value
    return found


def _groups(looks: Looks) -> list[GroupRow]:
    rows = []
    for before, now in looks:
        if now.page is None:
            continue
        old = before.page.by("holdfast_group_lag_sum_records", "group") if before.page is not None else {}
        worst: dict[str, tuple[float, str]] = {}
        for labels, lag in now.page.samples("holdfast_group_lag_records"):
            where = f"{labels.get('topic', '')}:{labels.get('partition', '')}"
            worst[labels["group"]] = max(worst.get(labels["group"], (-1.0, "")), (lag, where))
        rows += [
            GroupRow(
                group=group,
                lag=int(lag),
                change_per_s=(lag - old.get(group, lag)) / _seconds(before, now),
                worst=worst.get(group, (0, ""))[1],
            )
            for group, lag in now.page.by("holdfast_group_lag_sum_records", "group").items()
        ]
    return sorted(rows, key=lambda row: (-row.lag, row.group))


def _agents(pages: Iterable[MetricsPage]) -> list[AgentRow]:
    found: dict[str, float] = {}
    for page in pages:
        found = {**found, **page.by("holdfast_cluster_leases", "agent")}
    return [AgentRow(agent=agent, leases=int(leases)) for agent, leases in sorted(found.items())]


def _pipelines(looks: Looks) -> list[PipelineRow]:
    """Every node has them all: of the first that answered."""
    before, now = next(((old, new) for old, new in looks if new.page is not None), (None, None))
    if before is None or now is None or now.page is None:
        return []
    page = now.page
    states = {
        labels["pipeline"]: labels["state"] for labels, value in page.samples("holdfast_pipeline_state") if value == 1
    }
    rates = _rates_by([(before, now)], "holdfast_pipeline_rows_total", "pipeline")
    lag_rows, lag_s = (
        page.by("holdfast_pipeline_lag_rows", "pipeline"),
        page.by("holdfast_pipeline_lag_seconds", "pipeline"),
    )
    wanted, running = _slots(page, "wanted"), _slots(page, "running")
    return [
        PipelineRow(
            pipeline=name,
            state=state,
            rows_per_s=rates.get(name, 0.0),
            lag_rows=int(lag_rows[name]) if name in lag_rows else None,
            lag_s=lag_s.get(name),
            slots=f"{int(running.get(name, 0))}/{int(wanted.get(name, 0))}",
        )
        for name, state in sorted(states.items())
    ]


def _slots(page: MetricsPage, kind: str) -> Mapping[str, float]:
    return page.by(f"holdfast_pipeline_slots_{kind}", "pipeline")
