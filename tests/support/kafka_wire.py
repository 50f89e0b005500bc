"""A client that sends exactly the given bytes, and a gateway on a real agent for it."""

import asyncio
import dataclasses
import io
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from tests.support.cluster import LocalCluster, Node
from tests.support.waiting import async_until

from holdfast.agent.access_control import watching_access_control
from holdfast.agent.administration import ClusterAdministration
from holdfast.agent.agent import Agent
from holdfast.agent.client_quotas import watching_client_quotas
from holdfast.app.node_security import node_login
from holdfast.client.broker_login import BrokerLogin
from holdfast.gateways.heap.calls import HeapBackend, HeapCalls
from holdfast.gateways.kafka.api_table import APIS
from holdfast.gateways.kafka.backend import Broker, KafkaBackend
from holdfast.gateways.kafka.leaders import broker
from holdfast.gateways.kafka.login import ListenerSecurity
from holdfast.gateways.kafka.placement_wait import PlacementWait
from holdfast.gateways.kafka.server import KafkaServer, serving_kafka
from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.groups.service import GroupService
from holdfast.heap.service import HeapService
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.wire import encode_string
from holdfast.log.producer_ids import ProducerIds
from holdfast.log.settings import TopicSettings
from holdfast.log.wal import WalSettings
from holdfast.security.audit import AuditLog, AuditSettings
from holdfast.security.authenticator import Authenticator
from holdfast.security.cluster_secret import cluster_secret
from holdfast.security.confirmations import Confirmations
from holdfast.security.principals import Principal
from holdfast.security.settings import SecuritySettings
from holdfast.vocabulary.settings import MIB
from holdfast.vocabulary.sockets import bind

# kio finds a class by its module's name, each time.
request_schema, response_schema = cache(load_request_schema), cache(load_response_schema)

PRODUCE, FETCH, METADATA, API_VERSIONS = ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.API_VERSIONS


def versions_of(key: int) -> list[int]:
    """Every version of an API that is implemented."""
    low, high = APIS[key].versions
    return list(range(low, high + 1))


def version_params(versions: Sequence[int]) -> list[Any]:
    """The versions as parameters of a test that starts an agent for each: `make test-quick` takes the oldest and the newest."""
    between = (pytest.param(version, marks=pytest.mark.slow) for version in versions[1:-1])
    return [versions[0], *between, *versions[1:][-1:]]


def build(kind: type, given: Mapping[str, Any]) -> Any:
    """A kio entity out of a mapping; what a version does not have is left out, what is missing has its default."""
    values = {}
    for field in dataclasses.fields(kind):
        if field.name in given:
            values[field.name] = _fitting(field.type, given[field.name])
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            values[field.name] = _zero(field)
    return kind(**values)


def _fitting(annotation: Any, value: Any) -> Any:
    nested = _entity(annotation)
    if nested is not None and isinstance(value, Mapping):
        return build(nested, value)
    if nested is not None and isinstance(value, (list, tuple)):
        return tuple(build(nested, each) for each in value)
    if isinstance(value, list):
        return tuple(value)
    return value


def _entity(annotation: Any) -> type | None:
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return annotation
    return next((found for each in get_args(annotation) if (found := _entity(each)) is not None), None)


def _zero(field: "dataclasses.Field[Any]") -> Any:
    kind = field.metadata.get("kafka_type", "")
    if "tuple" in str(field.type):
        return ()
    if "None" in str(field.type):
        return None
    return {"string": "", "bytes": b"", "bool": False, "timedelta_i32": timedelta(0)}.get(kind, 0)


def request_frame(key: int, version: int, given: Mapping[str, Any], *, correlation: int, client_id: str) -> bytes:
    """A whole request, without its length."""
    kind = request_schema(key, version)
    body = io.BytesIO()
    entity_writer(kind)(body, build(kind, given))
    head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + correlation.to_bytes(4, "big")
    head += encode_string(client_id, flexible=False)
    if APIS[key].is_flexible(version):
        head += b"\0"
    return head + body.getvalue()


class WireClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._correlation, self.client_id = 0, "tests"

    async def send(self, key: int, version: int, given: Mapping[str, Any]) -> int:
        """Send a request; its correlation id."""
        self._correlation += 1
        frame = request_frame(key, version, given, correlation=self._correlation, client_id=self.client_id)
        await self.send_bytes(len(frame).to_bytes(4, "big") + frame)
        return self._correlation

    async def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def receive(self) -> tuple[int, bytes]:
        """The next answer: correlation id, and everything after it."""
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        data = await self.reader.readexactly(size)
        return int.from_bytes(data[:4], "big"), data[4:]

    async def ask(self, key: int, version: int, given: Mapping[str, Any]) -> Any:
        """Send a request and read its answer, as kio understands it: to the last byte."""
        correlation = await self.send(key, version, given)
        return self.understood(key, version, correlation, await self.receive())

    def understood(self, key: int, version: int, correlation: int, answer: tuple[int, bytes]) -> Any:
        got, data = answer
        assert got == correlation
        if APIS[key].is_flexible(version) and key != API_VERSIONS:
            assert data[0] == 0  # no tags in the header
            data = data[1:]
        entity, size = entity_reader(response_schema(key, version))(data, 0)
        assert size == len(data)
        return entity

    async def hung_up(self) -> bool:
        """Whether the server closed the connection without another word."""
        return await self.reader.read() == b""

    def close(self) -> None:
        self.writer.close()


class KafkaGateway:
    """A Kafka gateway on an agent."""

    def __init__(
        self, cluster: LocalCluster, node: Node, backend: KafkaBackend, server: KafkaServer, port: int
    ) -> None:
        self.cluster, self.node, self.backend, self.server, self.port = cluster, node, backend, server, port
        self._clients: list[WireClient] = []

    async def client(self) -> WireClient:
        client = WireClient(*await asyncio.open_connection("127.0.0.1", self.port))
        self._clients.append(client)
        return client

    def hang_up(self) -> None:
        for client in self._clients:
            client.close()


@asynccontextmanager
async def gateway_of(
    cluster: LocalCluster,
    name: str,
    settings: KafkaSettings,
    *,
    topic_settings: TopicSettings | None = None,
    super_users: Collection[Principal] = (),
    **changes: object,
) -> AsyncIterator[KafkaGateway]:
    """A gateway on an agent of this name."""
    sockets = bind("127.0.0.1", 0)
    port = sockets[0].getsockname()[1]
    node = await cluster.node(name, address=f"127.0.0.1:{port}", wal=WalSettings(file_bytes=MIB), **changes)
    agent = node.agent

    def me() -> Broker | None:
        return broker(agent.member) if agent.member is not None else None

    async with (
        _security(cluster, settings, super_users) as security,
        watching_client_quotas(cluster.store, clock=cluster.clock, random=cluster.random) as quotas,
    ):
        backend = KafkaBackend(
            cluster_id="tests",
            cluster=agent.cluster,
            log=agent.service,
            groups=getattr(agent, "groups", None) or GroupService(store=cluster.store),
            producer_ids=ProducerIds(cluster.store, clock=cluster.clock, random=cluster.random),
            administration=ClusterAdministration(cluster.store, clock=cluster.clock, random=cluster.random),
            me=me,
            clock=cluster.clock,
            random=cluster.random,
            settings=settings,
            topic_settings=topic_settings or TopicSettings(),
            security=security,
            quotas=quotas,
            confirmations=Confirmations(cluster.store, clock=cluster.clock, random=cluster.random),
            heaps=_heap_calls(
                agent, cluster, node_login(settings, security.secret if security else None, cluster.random)
            ),
        )
        async with serving_kafka(backend, sockets) as server:
            gateway = KafkaGateway(cluster, node, backend, server, port)
            try:
                yield gateway
            finally:
                gateway.hang_up()


def _heap_calls(agent: Agent, cluster: LocalCluster, login: BrokerLogin | None) -> HeapCalls | None:
    heaps: HeapService | None = getattr(agent, "heaps", None)
    if heaps is None:
        return None
    return HeapCalls(
        HeapBackend(
            heaps=heaps,
            cluster=agent.cluster,
            agent=agent.settings.id,
            login=login,
            clock=cluster.clock,
            random=cluster.random,
        )
    )


@asynccontextmanager
async def _security(
    cluster: LocalCluster, settings: KafkaSettings, super_users: Collection[Principal]
) -> AsyncIterator[ListenerSecurity | None]:
    if not settings.authenticates:
        yield None
        return
    clock, random = cluster.clock, cluster.random
    async with watching_access_control(cluster.store, super_users=super_users, clock=clock, random=random) as control:
        secret = await cluster_secret(cluster.store, clock=clock, random=random)
        tuning = SecuritySettings(login_failures_max=1_000, login_address_failures_max=1_000)
        authenticator = Authenticator(control, tuning, session_key=secret.session_key, clock=clock, random=random)
        with AuditLog(AuditSettings(to="off"), clock=clock) as audit:
            yield ListenerSecurity(
                control,
                settings,
                authenticator=authenticator,
                secret=secret,
                audit=audit,
                clock=clock,
                random=random,
            )
        authenticator.close()


@asynccontextmanager
async def gateway_on(
    directory: Path,
    *,
    topics: Mapping[str, int] | None = None,
    config: Mapping[str, object] | None = None,
    super_users: Collection[Principal] = (),
    **settings: Any,
) -> AsyncIterator[KafkaGateway]:
    """A gateway with these topics, led and ready."""
    cluster = LocalCluster(directory)
    try:
        async with gateway_of(cluster, "ann", KafkaSettings(**settings), super_users=super_users) as gateway:
            agent = gateway.node.agent
            for name, partitions in (topics or {}).items():
                await agent.service.create_topic(name, partitions, config)
            # Led, and shown as such: the view of the cluster lags behind the store.
            placed = PlacementWait(gateway.backend, topics or {})
            await async_until(lambda: gateway.backend.cluster.members and gateway.backend.me() and placed.done())
            yield gateway
    finally:
        await cluster.end()


def produce_request(
    topic: str, records: Mapping[int, bytes | None], *, acks: int = -1, timeout_ms: int = 10_000, topic_id: Any = None
) -> dict[str, Any]:
    """A Produce request for one topic."""
    partitions = [{"index": number, "records": data} for number, data in records.items()]
    topic_data = {"name": topic, "topic_id": topic_id, "partition_data": partitions}
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": timedelta(milliseconds=timeout_ms),
        "topic_data": [topic_data],
    }


def fetch_request(
    topic: str,
    offsets: Mapping[int, int],
    *,
    wait_ms: int = 0,
    bytes_min: int = 1,
    bytes_max: int = 50_000_000,
    partition_bytes_max: int = 1_000_000,
    session: tuple[int, int] = (0, -1),
    forgotten: Sequence[int] = (),
    topic_id: Any = None,
    leader_epoch: int = -1,
    rack: str = "",
) -> dict[str, Any]:
    """A Fetch request for one topic."""
    partitions = [
        {
            "partition": number,
            "current_leader_epoch": leader_epoch,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": partition_bytes_max,
        }
        for number, offset in offsets.items()
    ]
    topics = [{"topic": topic, "topic_id": topic_id, "partitions": partitions}] if partitions else []
    left_out = [{"topic": topic, "topic_id": topic_id, "partitions": list(forgotten)}] if forgotten else []
    return {
        "replica_id": -1,
        "max_wait": timedelta(milliseconds=wait_ms),
        "min_bytes": bytes_min,
        "max_bytes": bytes_max,
        "isolation_level": 0,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": topics,
        "forgotten_topics_data": left_out,
        "rack_id": rack,
    }
