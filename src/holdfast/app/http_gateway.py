"""The HTTP gateway of a node: its services, health checks and metrics.

Its address is bound with Kafka's before anything starts (`listeners`). Nothing is accepted before Kafka is; earlier connections
wait in the backlog.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from holdfast.agent.administration import ClusterAdministration
from holdfast.agent.agent import Agent
from holdfast.agent.cluster import Cluster
from holdfast.app.addresses import Address
from holdfast.app.listeners import Listener
from holdfast.client.broker_login import BrokerLogin
from holdfast.client.brokers import BrokerClient
from holdfast.contracts.measured_store import StoreCounters
from holdfast.contracts.store import Store
from holdfast.cursors.service import CursorService
from holdfast.gateways.heap.calls import HeapCalls
from holdfast.gateways.http.access_policy import HostPolicy
from holdfast.gateways.http.backend import HttpBackend
from holdfast.gateways.http.health import HealthCheck, store_check
from holdfast.gateways.http.metrics.agent import agent_metrics, cluster_metrics
from holdfast.gateways.http.metrics.etcd_member import EtcdMemberFigures, etcd_member_metrics
from holdfast.gateways.http.metrics.exposition import MetricSource
from holdfast.gateways.http.metrics.groups import group_metrics
from holdfast.gateways.http.metrics.grpc import GrpcFigures, grpc_metrics
from holdfast.gateways.http.metrics.heaps import heap_metrics
from holdfast.gateways.http.metrics.kafka import kafka_metrics
from holdfast.gateways.http.metrics.objects import object_metrics
from holdfast.gateways.http.metrics.partitions import partition_metrics
from holdfast.gateways.http.metrics.process import process_metrics
from holdfast.gateways.http.metrics.requests import RequestCounters
from holdfast.gateways.http.metrics.settings import MetricsSettings
from holdfast.gateways.http.metrics.store import store_metrics
from holdfast.gateways.http.metrics.text import cursor_metrics, text_metrics
from holdfast.gateways.http.metrics.traces import QueuedSpans, trace_metrics
from holdfast.gateways.http.security import HttpSecurity
from holdfast.gateways.http.server import HttpServer, serving_http
from holdfast.gateways.http.settings import HttpSettings
from holdfast.gateways.kafka.server import KafkaServer
from holdfast.gateways.log_access.backend import LogBackend
from holdfast.gateways.text.server import TextServer
from holdfast.groups.lags import GroupLags
from holdfast.groups.service import GroupService
from holdfast.kafka.special_offsets import LATEST
from holdfast.log.service import LogService
from holdfast.objects.cache import CachingObjects
from holdfast.objects.counters import ObjectCounters
from holdfast.pipeline.model.secret_references import SecretReferences
from holdfast.security.confirmations import Confirmations
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.loop_stalls import LoopStalls
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import background_tasks
from holdfast.vocabulary.tracing import Tracer
from holdfast.vocabulary.types import TopicPartition

if TYPE_CHECKING:
    from holdfast.pipeline.service.service import PipelineService

_ENDS_MS: Final = 2_000  # how long other agents may take to say where their partitions end


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServices:
    """The services behind the gateway. `agent` is None on a node without the agent role."""

    store: Store
    pipelines: Store
    """The store as pipelines see it: their secrets are sealed in it."""
    objects: CachingObjects
    requests: ObjectCounters
    store_calls: StoreCounters
    metrics_settings: MetricsSettings
    cluster: Cluster
    log: LogService
    administration: ClusterAdministration
    groups: GroupService
    heaps: HeapCalls
    agent: Agent | None
    kafka: KafkaServer
    cursors: CursorService
    text: TextServer | None = None
    grpc: GrpcFigures | None = None
    bootstrap: str
    """The cluster's Kafka address."""
    confirmations: Confirmations
    security: HttpSecurity | None = None
    """None: everybody may do everything."""
    login: BrokerLogin | None = None
    """How this node logs in to the cluster's Kafka address."""
    secrets: SecretReferences = field(default_factory=SecretReferences)
    """What pipelines may refer to."""
    clickhouse: str = ""
    """The URL of the embedded ClickHouse, for sinks that name none."""
    etcd: EtcdMemberFigures | None = None
    """Of the embedded member, if there is one."""
    tracer: Tracer | None = None
    spans: QueuedSpans | None = None
    """None: traces are off."""
    clock: Clock
    random: Random

    def open_pipelines(self) -> "PipelineService":
        """The service behind `/api/pipelines`."""
        from holdfast.pipeline.service.service import PipelineService  # it brings clients of Kafka and ClickHouse

        return PipelineService(
            self.pipelines,
            clock=self.clock,
            random=self.random,
            bootstrap=self.bootstrap,
            embedded=self.clickhouse,
            login=self.login,
            secrets=self.secrets,
        )

    def log_backend(self) -> LogBackend:
        """What the routes of the log stand on."""
        return LogBackend(
            log=self.log,
            cluster=self.cluster,
            administration=self.administration,
            bootstrap=self.bootstrap,
            login=self.login,
            clock=self.clock,
            random=self.random,
        )

    def checks(self) -> list[HealthCheck]:
        """The checks of `/ready`."""
        return [store_check(self.store), *([_agent_joined(self.agent)] if self.agent is not None else ())]

    def end_here(self, partition: TopicPartition) -> int | None:
        """The high watermark of a partition led here."""
        led = self.agent.log.leading.get(partition) if self.agent is not None else None
        return None if led is None else led.high_watermark

    def metrics(self, stalls: LoopStalls, lags: GroupLags) -> list[MetricSource]:
        """The node's families of `/metrics`."""
        return [
            process_metrics(self.clock, stalls),
            kafka_metrics(
                self.kafka,
                self.kafka.backend.fetch_sessions,
                self.kafka.backend.responses,
                self.kafka.backend.remote_reads,
            ),
            cluster_metrics(self.cluster),
            *self._agent_metrics(),
            store_metrics(self.store_calls),
            group_metrics(self.groups, lags, self.metrics_settings),
            cursor_metrics(self.cursors),
            *([text_metrics(self.text)] if self.text is not None else ()),
            *([grpc_metrics(self.grpc)] if self.grpc is not None else ()),
            object_metrics(self.requests, self.objects),
            *([trace_metrics(self.spans)] if self.spans is not None else ()),
            *([etcd_member_metrics(self.etcd)] if self.etcd is not None else ()),
        ]

    def _agent_metrics(self) -> list[MetricSource]:
        if self.agent is None:
            return []
        return [
            agent_metrics(self.agent),
            partition_metrics(self.agent, self.metrics_settings, self.clock),
            heap_metrics(self.agent, self.metrics_settings),
        ]


def _agent_joined(agent: Agent) -> HealthCheck:
    async def ask() -> str:
        if agent.member is not None:
            return ""
        return "the agent lost its session and is rejoining the cluster"

    return HealthCheck("agent", ask)


class HttpGateway:
    """A bound listener, and the server on it once it serves."""

    def __init__(self, settings: HttpSettings, listener: Listener, own_names: Sequence[str] = ()) -> None:
        self.address: Address = listener.address
        self._settings, self._listener, self._own_names = settings, listener, own_names
        self._server: HttpServer | None = None

    @asynccontextmanager
    async def serving(self, node: HttpServices) -> AsyncIterator[None]:
        """Serve for the body; leaving closes connections at once: call `close_gracefully` before."""
        counters, stalls = RequestCounters(), LoopStalls()
        brokers = BrokerClient(node.bootstrap, clock=node.clock, timeout_ms=_ENDS_MS, login=node.login)

        async def ends_elsewhere(topic: str, numbers: list[int]) -> dict[int, int]:
            return await brokers.available_offsets(topic, dict.fromkeys(numbers, LATEST), wait_ms=_ENDS_MS)

        lags = GroupLags(node.groups, node.end_here, ends_elsewhere, clock=node.clock)
        backend = HttpBackend(
            access_policy=HostPolicy.of(self._settings, loopback=self._listener.loopback, own=self._own_names),
            checks=node.checks(),
            metrics=[*node.metrics(stalls, lags), counters.families],
            open_pipelines=node.open_pipelines,
            confirmations=node.confirmations,
            clock=node.clock,
            random=node.random,
            log=node.log_backend(),
            heaps=node.heaps,
            security=node.security,
            settings=self._settings,
            counters=counters,
            tracer=node.tracer,
        )
        looking = lags.keep_looking(node.metrics_settings.lag_interval_ms)
        try:
            async with (
                background_tasks(stalls.measure(node.clock), looking),
                serving_http(backend, self._listener.sockets) as server,
            ):
                self._server = server
                yield
        finally:
            await brokers.close()

    async def close_gracefully(self) -> None:
        """Stop accepting, finish requests in flight, then close."""
        if self._server is not None:
            await self._server.close_gracefully()
