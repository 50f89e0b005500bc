"""The HTTP gateway of a node: its services, health checks and metrics.

Its address is bound with Kafka's before anything starts (`listeners`). Nothing is accepted before Kafka is; earlier connections
wait in the backlog.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.agent.administration import ClusterAdministration
from holdfast.agent.agent import Agent
from holdfast.agent.cluster import Cluster
from holdfast.app.addresses import Address
from holdfast.app.listeners import Listener
from holdfast.contracts.store import Store
from holdfast.cursors.service import CursorService
from holdfast.gateways.http.access_policy import AccessPolicy
from holdfast.gateways.http.backend import HttpBackend
from holdfast.gateways.http.health import HealthCheck, store_check
from holdfast.gateways.http.log.backend import LogBackend
from holdfast.gateways.http.metrics.agent import agent_metrics, cluster_metrics
from holdfast.gateways.http.metrics.etcd_member import EtcdMemberFigures, etcd_member_metrics
from holdfast.gateways.http.metrics.exposition import MetricSource
from holdfast.gateways.http.metrics.groups import group_metrics
from holdfast.gateways.http.metrics.kafka import kafka_metrics
from holdfast.gateways.http.metrics.objects import object_metrics
from holdfast.gateways.http.metrics.process import process_metrics
from holdfast.gateways.http.metrics.requests import RequestCounters
from holdfast.gateways.http.metrics.text import cursor_metrics, text_metrics
from holdfast.gateways.http.server import HttpServer, serving_http
from holdfast.gateways.http.settings import HttpSettings
from holdfast.gateways.kafka.server import KafkaServer
from holdfast.gateways.text.server import TextServer
from holdfast.groups.service import GroupService
from holdfast.log.service import LogService
from holdfast.objects.cache import CachingObjects
from holdfast.objects.counters import ObjectCounters
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.loop_stalls import LoopStalls
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import background_tasks

if TYPE_CHECKING:
    from holdfast.pipeline.service.service import PipelineService


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServices:
    """The services behind the gateway. `agent` is None on a node without the agent role."""

    store: Store
    objects: CachingObjects
    requests: ObjectCounters
    cluster: Cluster
    log: LogService
    administration: ClusterAdministration
    groups: GroupService
    agent: Agent | None
    kafka: KafkaServer
    cursors: CursorService
    text: TextServer | None = None
    bootstrap: str
    """The cluster's Kafka address."""
    log_refused: str = ""
    """Why topics and records are not served over HTTP, if they are not."""
    clickhouse: str = ""
    """The URL of the embedded ClickHouse, for sinks that name none."""
    etcd: EtcdMemberFigures | None = None
    """Of the embedded member, if there is one."""
    clock: Clock
    random: Random

    def open_pipelines(self) -> "PipelineService":
        """The service behind `/api/pipelines`."""
        from holdfast.pipeline.service.service import PipelineService  # it brings clients of Kafka and ClickHouse

        return PipelineService(
            self.store, clock=self.clock, random=self.random, bootstrap=self.bootstrap, embedded=self.clickhouse
        )

    def log_backend(self) -> LogBackend:
        """What the routes of the log stand on."""
        return LogBackend(
            log=self.log,
            cluster=self.cluster,
            administration=self.administration,
            bootstrap=self.bootstrap,
            clock=self.clock,
            random=self.random,
        )

    def checks(self) -> list[HealthCheck]:
        """The checks of `/ready`."""
        return [store_check(self.store), *([_agent_joined(self.agent)] if self.agent is not None else ())]

    def metrics(self, stalls: LoopStalls) -> list[MetricSource]:
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
            *([agent_metrics(self.agent)] if self.agent is not None else ()),
            group_metrics(self.groups),
            cursor_metrics(self.cursors),
            *([text_metrics(self.text)] if self.text is not None else ()),
            object_metrics(self.requests, self.objects),
            *([etcd_member_metrics(self.etcd)] if self.etcd is not None else ()),
        ]


def _agent_joined(agent: Agent) -> HealthCheck:
    async def ask() -> str:
        if agent.member is not None:
            return ""
        return "the agent lost its session and is rejoining the cluster"

    return HealthCheck("agent", ask)


class HttpGateway:
    """A bound listener, and the server on it once it serves."""

    def __init__(self, settings: HttpSettings, listener: Listener) -> None:
        self.address: Address = listener.address
        self._settings, self._listener = settings, listener
        self._server: HttpServer | None = None

    @asynccontextmanager
    async def serving(self, node: HttpServices) -> AsyncIterator[None]:
        """Serve for the body; leaving closes connections at once: call `close_gracefully` before."""
        counters, stalls = RequestCounters(), LoopStalls()
        backend = HttpBackend(
            access_policy=AccessPolicy.of(self._settings, loopback=not self._listener.exposed),
            checks=node.checks(),
            metrics=[*node.metrics(stalls), counters.families],
            open_pipelines=node.open_pipelines,
            clock=node.clock,
            random=node.random,
            log=None if node.log_refused else node.log_backend(),
            log_refused=node.log_refused,
            settings=self._settings,
            counters=counters,
        )
        async with (
            background_tasks(stalls.measure(node.clock)),
            serving_http(backend, self._listener.sockets) as server,
        ):
            self._server = server
            yield

    async def close_gracefully(self) -> None:
        """Stop accepting, finish requests in flight, then close."""
        if self._server is not None:
            await self._server.close_gracefully()
