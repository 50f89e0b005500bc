"""The HTTP face of a node: its address before anything else is open, the services behind it once they are.

The address is bound with Kafka's, so that one that is taken is found out before anything starts. Nothing is answered before Kafka
listens; who connects earlier waits.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.agent.agent import Agent
from holdfast.agent.cluster import Cluster
from holdfast.app.addresses import Address, bound_address, check_exposure
from holdfast.app.config import ServeSettings
from holdfast.contracts.store import Store
from holdfast.gateways.http.access_policy import AccessPolicy
from holdfast.gateways.http.backend import HttpBackend
from holdfast.gateways.http.health import HealthCheck, store_check
from holdfast.gateways.http.metrics.agent import agent_metrics, cluster_metrics
from holdfast.gateways.http.metrics.exposition import MetricSource
from holdfast.gateways.http.metrics.groups import group_metrics
from holdfast.gateways.http.metrics.kafka import kafka_metrics
from holdfast.gateways.http.metrics.objects import object_metrics
from holdfast.gateways.http.metrics.process import process_metrics
from holdfast.gateways.http.metrics.requests import RequestCounters
from holdfast.gateways.http.server import HttpServer, serving_http
from holdfast.gateways.http.settings import HttpSettings
from holdfast.gateways.kafka.server import KafkaServer
from holdfast.groups.service import GroupService
from holdfast.objects.cache import CachingObjects
from holdfast.objects.counters import ObjectCounters
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.sockets import bind

if TYPE_CHECKING:
    from holdfast.pipeline.service.service import PipelineService

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServices:
    """What there is behind the face. `agent` is None on a node that leads nothing."""

    store: Store
    objects: CachingObjects
    requests: ObjectCounters
    cluster: Cluster
    groups: GroupService
    agent: Agent | None
    kafka: KafkaServer
    bootstrap: str
    """Where this cluster speaks Kafka."""
    clickhouse: str = ""
    """The URL of the embedded ClickHouse, for sinks that name none."""
    clock: Clock
    random: Random

    def open_pipelines(self) -> "PipelineService":
        """What answers about pipelines."""
        from holdfast.pipeline.service.service import PipelineService  # it brings clients of Kafka and ClickHouse

        return PipelineService(
            self.store, clock=self.clock, random=self.random, bootstrap=self.bootstrap, embedded=self.clickhouse
        )

    def checks(self) -> list[HealthCheck]:
        """What `/ready` asks."""
        return [store_check(self.store), *([_agent_joined(self.agent)] if self.agent is not None else ())]

    def metrics(self) -> list[MetricSource]:
        """What `/metrics` shows of the node."""
        return [
            process_metrics(self.clock),
            kafka_metrics(self.kafka),
            cluster_metrics(self.cluster),
            *([agent_metrics(self.agent)] if self.agent is not None else ()),
            group_metrics(self.groups),
            object_metrics(self.requests, self.objects),
        ]


def _agent_joined(agent: Agent) -> HealthCheck:
    async def ask() -> str:
        if agent.member is not None:
            return ""
        return "the agent is no member of the cluster now: it has lost its session, and tries to join again"

    return HealthCheck("agent", ask)


class HttpGateway:
    """An address that is bound, and the server on it once there is one. Made by `bound_http_gateway`."""

    def __init__(self, settings: HttpSettings, sockets: Sequence[socket.socket], *, loopback: bool) -> None:
        self.address: Address = bound_address(sockets)
        self._settings, self._sockets, self._loopback = settings, sockets, loopback
        self._server: HttpServer | None = None

    @asynccontextmanager
    async def serving(self, node: HttpServices) -> AsyncIterator[None]:
        """Answer for the body; leaving hangs up at once: call `close_gracefully` before."""
        counters = RequestCounters()
        backend = HttpBackend(
            access_policy=AccessPolicy.of(self._settings, loopback=self._loopback),
            checks=node.checks(),
            metrics=[*node.metrics(), counters.families],
            open_pipelines=node.open_pipelines,
            clock=node.clock,
            random=node.random,
            settings=self._settings,
            counters=counters,
        )
        async with serving_http(backend, self._sockets) as server:
            self._server = server
            yield

    async def close_gracefully(self) -> None:
        """Accept nothing more, answer what is under way, then hang up."""
        if self._server is not None:
            await self._server.close_gracefully()


@asynccontextmanager
async def bound_http_gateway(settings: ServeSettings) -> AsyncIterator[HttpGateway | None]:
    """The face's address, for the body; None if HTTP is switched off."""
    if settings.http_listen is None:
        yield None
        return
    with ExitStack() as stack:
        sockets = await asyncio.to_thread(bind, settings.http_listen.host, settings.http_listen.port)
        for each in sockets:
            stack.callback(each.close)
        beyond = check_exposure(settings.http_listen, sockets, insecure=settings.insecure)
        face = HttpGateway(settings.http, sockets, loopback=not beyond)
        if beyond:
            _log.warning(
                "LISTENING BEYOND THIS MACHINE WITHOUT PROTECTION: anybody who reaches %s may do anything", face.address
            )
        yield face
