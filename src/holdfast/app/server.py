"""One server: store, objects, agent and gateways, composed in the order of their dependencies and closed in reverse.

The order matters. Addresses are bound first, so that one in use leaves nothing behind, and because the agent joins with its
address. Nothing is accepted before it has joined: clients ask for leaders at once. On the way down requests in flight are finished,
then everything is published, then leases are released.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from holdfast import __version__
from holdfast.agent.access_control import watching_access_control
from holdfast.agent.administration import ClusterAdministration
from holdfast.agent.agent import Agent, running_agent
from holdfast.agent.cluster import Cluster
from holdfast.agent.peers.peers import PeerEndpoint
from holdfast.app.addresses import Address
from holdfast.app.advertised_urls import advertised_url
from holdfast.app.api_node import running_api_node
from holdfast.app.config import API, WORKER, ServeSettings
from holdfast.app.data_directory import DataDirectory, locked_data_directory, require_unlocked
from holdfast.app.embedded_clickhouse import ClickHouseEndpoint, clickhouse_endpoint
from holdfast.app.embedded_etcd.place import member_place, opened_store_url
from holdfast.app.http_gateway import HttpGateway, HttpServices
from holdfast.app.listeners import Listener, bound_listener
from holdfast.app.stop_progress import StopProgress
from holdfast.app.worker_role import WorkerRole, why_no_worker, worker_role
from holdfast.contracts.store import Store
from holdfast.cursors.service import CursorService
from holdfast.gateways.kafka.backend import Broker, KafkaBackend
from holdfast.gateways.kafka.login import ListenerSecurity
from holdfast.gateways.kafka.server import KafkaServer, serving_kafka
from holdfast.gateways.text.backend import TextBackend
from holdfast.gateways.text.server import TextServer, serving_text
from holdfast.groups.service import GroupService
from holdfast.kernel.cluster_identity import cluster_identity
from holdfast.kernel.cluster_move import ClusterMovedError
from holdfast.kernel.membership import node_id
from holdfast.kernel.objects_owner import ObjectsOwner, claim_objects
from holdfast.log.producer_ids import ProducerIds
from holdfast.log.service import LogService
from holdfast.objects.cache import CachingObjects, cached
from holdfast.objects.counters import ObjectCounters
from holdfast.objects.urls import counters_for, open_objects
from holdfast.stores.urls import is_embedded_etcd, open_store
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.installation import NotInstalledError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.redaction import redacted

if TYPE_CHECKING:
    from holdfast.app.embedded_etcd.member import EtcdMember

_log: Final = logging.getLogger(__name__)

_JOIN_WARNING_MS: Final = 2_000
_JOIN_POLL_MS: Final = 5  # the agent joins within a few of these
_KAFKA_REMEDY: Final = (
    "Let clients log in (--sasl SCRAM-SHA-512, or --kafka-client-ca for certificates), listen on 127.0.0.1"
)
_PLAIN_REMEDY: Final = (
    "With --sasl PLAIN, passwords need TLS: give --kafka-tls-cert and --kafka-tls-key, listen on 127.0.0.1"
)
_NO_HTTP_LOGINS: Final = "Kafka's clients have to log in or use TLS here, which HTTP does not offer yet"
_PEER_REMEDY: Final = "This is the port for other agents: if there are none on other machines, pass --peer 127.0.0.1:0"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A server that listens. `disabled`: what is off, each with the reason and the remedy.

    `failed` has a result once the WAL has failed: then nothing is acknowledged any more, and the process must end.
    `stopping`: what a graceful stop waits for. `further_agents`: where the others of this host listen for Kafka's clients.
    """

    kafka: Address
    http: Address | None = None
    text: Address | None = None
    clickhouse: Address | None = None
    advertised: Address
    node: int
    name: str
    cluster_id: str
    further_agents: tuple[str, ...] = ()
    disabled: dict[str, str] = field(default_factory=dict)
    failed: "asyncio.Future[HoldfastError] | None" = None
    stopping: StopProgress = field(default_factory=StopProgress)

    @property
    def addresses(self) -> dict[str, str]:
        """One address per gateway, as `--print-addresses` writes them."""
        others = {"http": self.http, "text": self.text, "clickhouse": self.clickhouse}
        agents = {"agents": ",".join((str(self.kafka), *self.further_agents))} if self.further_agents else {}
        return {"kafka": str(self.kafka), **{n: str(each) for n, each in others.items() if each is not None}, **agents}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Components:
    """What everything of a server is built on."""

    settings: ServeSettings
    directory: DataDirectory
    store: Store
    objects: CachingObjects
    requests: ObjectCounters
    kafka: Listener
    advertised: Address
    peers: PeerEndpoint | None
    http: HttpGateway | None
    text: Listener | None
    advertised_text: str
    clickhouse: ClickHouseEndpoint
    etcd: "EtcdMember | None"
    clock: Clock
    random: Random


class _Services(Protocol):
    """What the gateways call: an agent's services, or those of a node without one."""

    @property
    def cluster(self) -> Cluster: ...
    @property
    def service(self) -> LogService: ...
    @property
    def groups(self) -> GroupService: ...
    @property
    def cursors(self) -> CursorService: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """This process as a member of the cluster. `agent` is None without the agent role."""

    name: str
    number: int
    cluster_id: str
    services: _Services
    agent: Agent | None


@asynccontextmanager
async def running_server(settings: ServeSettings, *, clock: Clock, random: Random) -> AsyncIterator[RunningServer]:
    """A server for the body. Leaving the body finishes requests, publishes and releases leases; cancelling it does none of that."""
    async with AsyncExitStack() as stack:
        parts = await _open_components(stack, settings, clock=clock, random=random)
        served = await stack.enter_async_context(_running_node(parts))
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
        _log.info("stopping: finishing requests, publishing records, releasing leases")


async def _open_components(
    stack: AsyncExitStack, settings: ServeSettings, *, clock: Clock, random: Random
) -> _Components:
    # Before the addresses: a second server on the same directory is to hear about the directory, not about a port.
    await asyncio.to_thread(require_unlocked, settings.data)
    kafka = await stack.enter_async_context(
        bound_listener(
            "--kafka",
            settings.listen,
            insecure=settings.insecure,
            authenticates=settings.kafka.authenticates and not settings.kafka.sends_passwords,
            remedy=_KAFKA_REMEDY if not settings.kafka.sends_passwords else _PLAIN_REMEDY,
        )
    )
    peers = await _peer_endpoint(stack, settings) if settings.leads else None
    http: HttpGateway | None = None
    if settings.http_listen is not None:
        listener = bound_listener("--http", settings.http_listen, insecure=settings.insecure)
        http = HttpGateway(settings.http, await stack.enter_async_context(listener))
    text: Listener | None = None
    if settings.text_listen is not None:
        bound = bound_listener("--text", settings.text_listen, insecure=settings.insecure)
        text = await stack.enter_async_context(bound)
    directory = stack.enter_context(locked_data_directory(settings.data))
    clickhouse = await stack.enter_async_context(clickhouse_endpoint(settings, clock=clock, random=random))
    requests = counters_for(settings.objects)
    etcd = await _etcd_member(stack, settings, directory, clock=clock, random=random)
    store = await stack.enter_async_context(open_store(opened_store_url(settings), clock=clock, random=random))
    opened = await stack.enter_async_context(
        open_objects(settings.objects, clock=clock, random=random, counters=requests)
    )
    return _Components(
        settings=settings,
        directory=directory,
        store=store,
        objects=await stack.enter_async_context(cached(opened, settings=settings.cache)),
        requests=requests,
        kafka=kafka,
        advertised=settings.advertise.resolve(kafka.address, host_name=socket.gethostname()),
        peers=peers,
        http=http,
        text=text,
        advertised_text=(
            "" if text is None else str(settings.advertised_text(text.address, host_name=socket.gethostname()))
        ),
        clickhouse=clickhouse,
        etcd=etcd,
        clock=clock,
        random=random,
    )


async def _etcd_member(
    stack: AsyncExitStack, settings: ServeSettings, directory: DataDirectory, *, clock: Clock, random: Random
) -> "EtcdMember | None":
    """The member beside this server, if the store is `etcd:embedded`. It outlives everything that uses the store."""
    if not is_embedded_etcd(settings.store):
        return None
    try:
        from holdfast.app.embedded_etcd.member import running_member
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("holdfast"):
            raise
        raise NotInstalledError(f"store {redacted(settings.store)}", missing.name or "grpc", "etcd") from None
    name = settings.agent_id or await asyncio.to_thread(directory.agent_id, random)
    return await stack.enter_async_context(running_member(member_place(settings, name), clock=clock, random=random))


async def _peer_endpoint(stack: AsyncExitStack, settings: ServeSettings) -> PeerEndpoint:
    listener = await stack.enter_async_context(
        bound_listener("--peer", settings.peer_address, insecure=settings.insecure, remedy=_PEER_REMEDY)
    )
    advertised = settings.advertised_peer(listener.address, host_name=socket.gethostname())
    return PeerEndpoint(sockets=listener.sockets, address=str(advertised))


@asynccontextmanager
async def _running_node(parts: _Components) -> AsyncIterator[RunningServer]:
    """The node and its gateways, once everything below them is open."""
    stopping = StopProgress()
    async with AsyncExitStack() as stack:
        node = await _join(stack, parts)
        security = await stack.enter_async_context(_listener_security(parts))
        kafka = await stack.enter_async_context(_kafka_gateway(parts, node, security))
        text = await stack.enter_async_context(_text_gateway(parts, parts.text, node)) if parts.text else None
        if parts.http is not None:
            await stack.enter_async_context(parts.http.serving(_http_services(parts, node, kafka, text)))
        worker = await _start_worker(stack, parts, node)
        yield RunningServer(
            kafka=parts.kafka.address,
            http=parts.http.address if parts.http is not None else None,
            text=parts.text.address if parts.text is not None else None,
            clickhouse=parts.clickhouse.address,
            advertised=parts.advertised,
            node=node.number,
            name=node.name,
            cluster_id=node.cluster_id,
            disabled=_disabled(parts),
            failed=node.agent.wal.failed if node.agent is not None else None,
            stopping=stopping,
        )
        if worker is not None:
            stopping.stage("pipelines")
            await worker.stop()
        if node.agent is not None:  # clients are served meanwhile, and told who leads instead
            sessions = node.agent.sessions
            stopping.follow(lambda: sessions.waits_for)
            await sessions.hand_over()
        _log.info("closing the gateways")
        if parts.http is not None:
            stopping.stage("HTTP requests in flight")
            await parts.http.close_gracefully()
        stopping.stage("Kafka requests in flight")
        await kafka.close_gracefully()
        if text is not None:
            stopping.stage("text requests in flight")
            await text.close_gracefully()
        if node.agent is not None:
            stopping.follow(lambda: sessions.waits_for)


async def _join(stack: AsyncExitStack, parts: _Components) -> _Node:
    settings, store, clock, random = parts.settings, parts.store, parts.clock, parts.random
    try:
        cluster_id = await cluster_identity(store, clock=clock, random=random)
    except ClusterMovedError as moved:
        if parts.etcd is None or settings.roles != (API,):
            raise
        # Both commands need the members, and nothing else runs them.
        _log.warning("running the etcd member alone, for `holdfast migrate` and `holdfast objects adopt`: %s", moved)
        await asyncio.Event().wait()
        raise
    await asyncio.to_thread(parts.directory.bind_to_cluster, cluster_id)
    owner = await claim_objects(store, parts.objects, clock=clock, random=random, place=redacted(settings.objects))
    name = settings.agent_id or await asyncio.to_thread(parts.directory.agent_id, random)
    if settings.leads:
        agent = await stack.enter_async_context(_joined_agent(parts, owner, name))
        number = agent.member.node if agent.member is not None else 0
        return _Node(name=name, number=number, cluster_id=cluster_id, services=agent, agent=agent)
    services = await stack.enter_async_context(
        running_api_node(settings, store=store, objects=parts.objects, owner=owner, clock=clock, random=random)
    )
    number = await node_id(store, name, clock=clock, random=random)
    return _Node(name=name, number=number, cluster_id=cluster_id, services=services, agent=None)


@asynccontextmanager
async def _kafka_gateway(
    parts: _Components, node: _Node, security: ListenerSecurity | None
) -> AsyncIterator[KafkaServer]:
    settings, clock, random, advertised = parts.settings, parts.clock, parts.random, parts.advertised
    broker = Broker(node=node.number, host=advertised.host, port=advertised.port, rack=settings.zone or None)
    backend = KafkaBackend(
        cluster_id=node.cluster_id,
        cluster=node.services.cluster,
        log=node.services.service,
        groups=node.services.groups,
        producer_ids=ProducerIds(parts.store, clock=clock, random=random),
        administration=ClusterAdministration(parts.store, clock=clock, random=random),
        me=lambda: broker,
        clock=clock,
        random=random,
        settings=replace(settings.kafka, replication_factor=_replication_factor(settings)),
        topic_settings=settings.topics,
        store_url=advertised_url(opened_store_url(settings)),
        objects_url=advertised_url(settings.objects),
        security=security,
    )
    async with serving_kafka(backend, list(parts.kafka.sockets)) as kafka:
        yield kafka


@asynccontextmanager
async def _listener_security(parts: _Components) -> AsyncIterator[ListenerSecurity | None]:
    """How Kafka's clients log in, and what they may do; None: everybody may do everything."""
    settings, clock, random = parts.settings, parts.clock, parts.random
    if not settings.kafka.authenticates:
        yield None
        return
    principals = settings.security.principals
    async with watching_access_control(parts.store, super_users=principals, clock=clock, random=random) as control:
        yield ListenerSecurity(control, settings.kafka, clock=clock, random=random)


@asynccontextmanager
async def _text_gateway(parts: _Components, listener: Listener, node: _Node) -> AsyncIterator[TextServer]:
    backend = TextBackend(
        cluster_id=node.cluster_id,
        agent=node.name,
        node=node.number,
        cluster=node.services.cluster,
        log=node.services.service,
        cursors=node.services.cursors,
        store=parts.store,
        clock=parts.clock,
        random=parts.random,
        settings=parts.settings.text,
    )
    async with serving_text(backend, list(listener.sockets)) as text:
        yield text


def _replication_factor(settings: ServeSettings) -> str:
    if settings.kafka.replication_factor != "auto":
        return settings.kafka.replication_factor
    alone = settings.leads and settings.agents == 1 and settings.store.startswith(("sqlite:", "memory:"))
    return "cap" if alone else "refuse"


def _http_services(parts: _Components, node: _Node, kafka: KafkaServer, text: TextServer | None) -> HttpServices:
    return HttpServices(
        store=parts.store,
        objects=parts.objects,
        requests=parts.requests,
        cluster=node.services.cluster,
        log=node.services.service,
        administration=ClusterAdministration(parts.store, clock=parts.clock, random=parts.random),
        groups=node.services.groups,
        agent=node.agent,
        kafka=kafka,
        cursors=node.services.cursors,
        text=text,
        bootstrap=str(parts.advertised),
        log_refused=_NO_HTTP_LOGINS if parts.settings.kafka.is_secured else "",
        clickhouse=parts.clickhouse.url,
        etcd=parts.etcd.figures if parts.etcd is not None else None,
        clock=parts.clock,
        random=parts.random,
    )


async def _start_worker(stack: AsyncExitStack, parts: _Components, node: _Node) -> WorkerRole | None:
    if WORKER not in parts.settings.roles:
        return None
    return await stack.enter_async_context(
        worker_role(
            parts.settings,
            name=node.name,
            bootstrap=str(parts.advertised),
            clickhouse=parts.clickhouse.url,
            store=parts.store,
            clock=parts.clock,
            random=parts.random,
        )
    )


def _disabled(parts: _Components) -> dict[str, str]:
    reasons = {
        "http": "--http off" if parts.http is None else "",
        "pipelines": why_no_worker(parts.settings),
        "clickhouse": parts.clickhouse.disabled,
    }
    return {name: reason for name, reason in reasons.items() if reason}


@asynccontextmanager
async def _joined_agent(parts: _Components, owner: ObjectsOwner, name: str) -> AsyncIterator[Agent]:
    """The agent, once it has joined: then it has its node id and others know its address."""
    async with running_agent(
        parts.settings.as_agent(name, str(parts.advertised), parts.advertised_text),
        parts.directory.wal,
        store=parts.store,
        objects=parts.objects,
        owner=owner,
        peers=parts.peers,
        clock=parts.clock,
        random=parts.random,
    ) as agent:
        began_ms, warned = parts.clock.boot_ms(), False
        while agent.member is None:
            await parts.clock.sleep_ms(_JOIN_POLL_MS)
            if not warned and parts.clock.boot_ms() - began_ms > _JOIN_WARNING_MS:
                _log.warning("agent %s is waiting to join: its id is still registered by a live session", name)
                warned = True
        yield agent
