"""One server: store, objects, agent and faces, put together in the order in which they need each other, and taken apart backwards.

The order matters. The address is bound before the agent joins, because it joins with the address; nothing is accepted before it
has joined, because the first client asks who leads. On the way down clients are answered first, then everything is published,
then the leases are given back.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from holdfast import __version__
from holdfast.agent.agent import Agent, running_agent
from holdfast.agent.cluster import Cluster
from holdfast.app.addresses import Address, bound_address, check_exposure
from holdfast.app.advertised_urls import advertised_url
from holdfast.app.api_node import running_api_node
from holdfast.app.cluster_identity import cluster_identity
from holdfast.app.config import WORKER, ServeSettings, redacted
from holdfast.app.data_directory import DataDirectory, locked_data_directory
from holdfast.app.embedded_clickhouse import ClickHouseEndpoint, clickhouse_endpoint
from holdfast.app.http_gateway import HttpGateway, HttpServices, bound_http_gateway
from holdfast.app.worker_role import WorkerRole, worker_role
from holdfast.contracts.store import Store
from holdfast.gateways.kafka.backend import Broker, KafkaBackend
from holdfast.gateways.kafka.server import KafkaServer, serving_kafka
from holdfast.groups.service import GroupService
from holdfast.kernel.membership import node_id
from holdfast.log.producer_ids import ProducerIds
from holdfast.log.service import LogService
from holdfast.objects.cache import CachingObjects, cached
from holdfast.objects.counters import ObjectCounters
from holdfast.objects.urls import counters_for, open_objects
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.sockets import bind

_log: Final = logging.getLogger(__name__)

_JOIN_WARNING_MS: Final = 2_000
_JOIN_POLL_MS: Final = 5  # between looks whether the agent has joined; it takes a few of them


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A server that listens."""

    kafka: Address
    http: Address | None = None
    clickhouse: Address | None = None
    advertised: Address
    node: int
    name: str
    cluster_id: str

    @property
    def addresses(self) -> dict[str, str]:
        """One address per face, as `--print-addresses` writes them."""
        others = {"http": self.http, "clickhouse": self.clickhouse}
        return {"kafka": str(self.kafka)} | {name: str(each) for name, each in others.items() if each is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Components:
    """What everything of a server stands on."""

    settings: ServeSettings
    directory: DataDirectory
    store: Store
    objects: CachingObjects
    requests: ObjectCounters
    http: HttpGateway | None
    clickhouse: ClickHouseEndpoint
    clock: Clock
    random: Random


class _Services(Protocol):
    """What the faces call: an agent's, or those of a node without one."""

    @property
    def cluster(self) -> Cluster: ...
    @property
    def service(self) -> LogService: ...
    @property
    def groups(self) -> GroupService: ...


@asynccontextmanager
async def running_server(settings: ServeSettings, *, clock: Clock, random: Random) -> AsyncIterator[RunningServer]:
    """A server for the body. Leaving the body answers, publishes and gives back; cancelling it does not wait for any of that."""
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(locked_data_directory(settings.data))
        sockets = await asyncio.to_thread(bind, settings.listen.host, settings.listen.port)
        for each in sockets:
            stack.callback(each.close)
        bound = bound_address(sockets)
        if check_exposure(settings.listen, sockets, insecure=settings.insecure):
            _log.warning(
                "LISTENING BEYOND THIS MACHINE WITHOUT PROTECTION: anybody who reaches %s may do anything", bound
            )
        advertised = settings.advertise.resolve(bound, host_name=socket.gethostname())
        http = await stack.enter_async_context(bound_http_gateway(settings))
        clickhouse = await stack.enter_async_context(clickhouse_endpoint(settings, clock=clock, random=random))
        requests = counters_for(settings.objects)
        store = await stack.enter_async_context(open_store(settings.store, clock=clock, random=random))
        opened = await stack.enter_async_context(
            open_objects(settings.objects, clock=clock, random=random, counters=requests)
        )
        objects = await stack.enter_async_context(cached(opened, settings=settings.cache))
        parts = _Components(
            settings=settings,
            directory=directory,
            store=store,
            objects=objects,
            requests=requests,
            http=http,
            clickhouse=clickhouse,
            clock=clock,
            random=random,
        )
        served = await stack.enter_async_context(_running_node(parts, bound, advertised, sockets))
        _log.info(
            "serving",
            extra={
                **served.addresses,
                "advertised": served.advertised,
                "node": served.node,
                "agent": served.name,
                "store": redacted(settings.store),
                "objects": redacted(settings.objects),
                "version": __version__,
            },
        )
        yield served
        _log.info("stopping: clients are answered, records published, leases given back")


@asynccontextmanager
async def _running_node(
    parts: _Components, bound: Address, advertised: Address, sockets: list[socket.socket]
) -> AsyncIterator[RunningServer]:
    """The node itself, once everything under it is open."""
    settings, store, clock, random = parts.settings, parts.store, parts.clock, parts.random
    cluster_id = await cluster_identity(store, clock=clock, random=random)
    await asyncio.to_thread(parts.directory.bind_to_cluster, cluster_id)
    name = settings.agent_id or await asyncio.to_thread(parts.directory.agent_id, random)
    async with AsyncExitStack() as stack:
        services: _Services
        agent: Agent | None = None
        if settings.leads:
            services = agent = await stack.enter_async_context(_joined_agent(parts, name, advertised))
            node = agent.member.node if agent.member is not None else 0
        else:
            services = await stack.enter_async_context(
                running_api_node(settings, store=store, objects=parts.objects, clock=clock, random=random)
            )
            node = await node_id(store, name, clock=clock, random=random)
        broker = Broker(node=node, host=advertised.host, port=advertised.port, rack=settings.zone or None)
        backend = KafkaBackend(
            cluster_id=cluster_id,
            cluster=services.cluster,
            log=services.service,
            groups=services.groups,
            producer_ids=ProducerIds(store, clock=clock, random=random),
            me=lambda: broker,
            clock=clock,
            random=random,
            settings=settings.kafka,
            store_url=advertised_url(settings.store),
            objects_url=advertised_url(settings.objects),
        )
        kafka: KafkaServer = await stack.enter_async_context(serving_kafka(backend, sockets))
        if parts.http is not None:
            behind = HttpServices(
                store=store,
                objects=parts.objects,
                requests=parts.requests,
                cluster=services.cluster,
                groups=services.groups,
                agent=agent,
                kafka=kafka,
                bootstrap=str(advertised),
                clickhouse=parts.clickhouse.url,
                clock=clock,
                random=random,
            )
            await stack.enter_async_context(parts.http.serving(behind))
        worker: WorkerRole | None = None
        if WORKER in settings.roles:
            worker = await stack.enter_async_context(
                worker_role(
                    settings,
                    name=name,
                    bootstrap=str(advertised),
                    clickhouse=parts.clickhouse.url,
                    store=store,
                    clock=clock,
                    random=random,
                )
            )
        yield RunningServer(
            kafka=bound,
            http=parts.http.address if parts.http is not None else None,
            clickhouse=parts.clickhouse.address,
            advertised=advertised,
            node=node,
            name=name,
            cluster_id=cluster_id,
        )
        if worker is not None:
            await worker.stop()
        if parts.http is not None:
            await parts.http.close_gracefully()
        await kafka.close_gracefully()


@asynccontextmanager
async def _joined_agent(parts: _Components, name: str, advertised: Address) -> AsyncIterator[Agent]:
    """The agent, once it has joined: then it has its number, and others know where it is."""
    async with running_agent(
        parts.settings.as_agent(name, str(advertised)),
        parts.directory.wal,
        store=parts.store,
        objects=parts.objects,
        clock=parts.clock,
        random=parts.random,
    ) as agent:
        began_ms, said = parts.clock.boot_ms(), False
        while agent.member is None:
            await parts.clock.sleep_ms(_JOIN_POLL_MS)
            if not said and parts.clock.boot_ms() - began_ms > _JOIN_WARNING_MS:
                _log.warning("agent %s cannot join yet: is another process alive that has its name?", name)
                said = True
        yield agent
