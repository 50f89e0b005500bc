"""The server itself: readiness, certificates, credentials, and calls that are cancelled or have to wait."""

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.support.certificates import certificate
from tests.support.grpc_gateway import GrpcCluster, RunningGrpcGateway, grpc_cluster
from tests.support.waiting import WAIT_S, async_until

from holdfast.agent.access_control import AccessControl, watching_access_control
from holdfast.gateways.grpc.access import GrpcSecurity
from holdfast.gateways.grpc.request_reader import RequestReader
from holdfast.gateways.grpc.services.produce import ProduceService
from holdfast.gateways.http.health import HealthCheck
from holdfast.security.acls import Acl, Operation, ResourcePattern, ResourceType
from holdfast.security.api_keys import DEFAULT_SCOPES
from holdfast.security.audit import AuditLog, AuditSettings
from holdfast.security.authenticator import Authenticator
from holdfast.security.principals import Principal
from holdfast.security.settings import SecuritySettings
from holdfast.v1 import fetch_service_pb2, produce_service_pb2, topic_service_pb2
from holdfast.v1.fetch_service_pb2_grpc import FetchServiceStub
from holdfast.v1.produce_service_pb2_grpc import ProduceServiceStub
from holdfast.v1.record_pb2 import NewRecord
from holdfast.v1.topic_service_pb2_grpc import TopicServiceStub


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[GrpcCluster]:
    async with grpc_cluster(tmp_path) as made:
        yield made


async def code(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value.code()


async def topic(world: GrpcCluster, name: str) -> str:
    await world.node.service.create_topic(name, 1, {})
    await async_until(lambda: world.node.service.is_serving(name, 0))
    return name


def produced(topic: str) -> produce_service_pb2.ProduceRequest:
    return produce_service_pb2.ProduceRequest(topic=topic, records=[NewRecord(value=b"x")])


async def test_health_follows_readiness(world: GrpcCluster) -> None:
    wrong = ""

    async def ask() -> str:
        return wrong

    made = await world.gateway(checks=(HealthCheck("store", ask),), health_ms=5)
    watch = health_pb2_grpc.HealthStub(made.channel).Watch(health_pb2.HealthCheckRequest(), timeout=WAIT_S)
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    wrong = "it does not answer"
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
    wrong = ""
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    await made.server.close_gracefully()  # although somebody watches


class Held:
    """Appends that wait for a test."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def prepare(self, *given: object, **more: object) -> None:
        return None

    async def finish(self, prepared: None) -> Any:
        await self.go.wait()
        raise AssertionError("not reached")


async def test_a_stream_is_read_no_further_than_what_may_be_unacknowledged(world: GrpcCluster) -> None:
    made = await world.gateway(produce_requests_max=3)
    service = ProduceService(made.server.backend, Held())  # type: ignore[arg-type]
    taken = 0

    async def requests() -> AsyncIterator[produce_service_pb2.ProduceStreamRequest]:
        nonlocal taken
        while True:
            taken += 1
            yield produce_service_pb2.ProduceStreamRequest(request_id=taken, topic="t", records=[NewRecord()])

    class Anybody:
        def require(self, *asked: object) -> None: ...

    stream = service.produce_stream(requests(), Anybody())  # type: ignore[arg-type]
    reading = asyncio.ensure_future(anext(stream))
    await async_until(lambda: taken == 4)  # the fourth waits for room
    for _ in range(20):
        await world.cluster.clock.sleep_ms(0)
    assert taken == 4
    reading.cancel()


async def test_a_cancelled_call_is_counted_and_frees_its_place(world: GrpcCluster) -> None:
    name = await topic(world, "cancelled")
    made = await world.gateway(fetches_max=1)
    stub, counters = FetchServiceStub(made.channel), made.server.backend.counters
    call = stub.Fetch(fetch_service_pb2.FetchRequest(topic=name, heartbeat_ms=5), timeout=WAIT_S)
    await call.read()
    call.cancel()
    await async_until(lambda: counters.open_streams == 0)
    await async_until(lambda: counters.calls["FetchService/Fetch", "CANCELLED"] == 1)
    again = stub.Fetch(fetch_service_pb2.FetchRequest(topic=name, heartbeat_ms=5), timeout=WAIT_S)
    await again.read()
    await made.server.close_gracefully()
    assert await code(again.read()) is grpc.StatusCode.UNAVAILABLE


async def test_certificates_are_read_again_when_they_change(world: GrpcCluster, tmp_path: Path) -> None:
    pairs = [certificate(tmp_path, name) for name in ("first", "second")]
    used, key = tmp_path / "used.pem", tmp_path / "used.key"

    def install(pair: tuple[Path, Path]) -> None:
        used.write_bytes(pair[0].read_bytes())
        key.write_bytes(pair[1].read_bytes())

    name = await topic(world, "tls")
    install(pairs[0])
    made = await world.gateway(tls_cert=str(used), tls_key=str(key))

    async def produce_trusting(pair: tuple[Path, Path]) -> None:
        trusted = grpc.ssl_channel_credentials(pair[0].read_bytes())
        async with grpc.aio.secure_channel(made.address, trusted) as channel:
            await ProduceServiceStub(channel).Produce(produced(name), timeout=WAIT_S)

    await produce_trusting(pairs[0])
    assert await code(ProduceServiceStub(made.channel).Produce(produced(name))) is grpc.StatusCode.UNAVAILABLE  # no TLS
    install(pairs[1])
    await produce_trusting(pairs[1])
    key.write_bytes(b"no key")
    await produce_trusting(pairs[1])  # what cannot be used changes nothing


class Logins:
    """A gateway with security, over users and keys that a test makes."""

    def __init__(self, made: RunningGrpcGateway, control: AccessControl) -> None:
        self.made, self.control = made, control

    async def key(self, name: str) -> tuple[str, str]:
        """A new key of a user: its prefix, and the metadata that shows it."""
        made, version = await self.control.key_store.create(
            name, Principal(name), frozenset(DEFAULT_SCOPES), expires_at_ms=0
        )
        await self.control.keys_seen(version)
        return made.key.prefix, f"Bearer {made.secret}"

    async def allow(self, name: str, operation: Operation, topic: str) -> None:
        acl = Acl(resource=ResourcePattern(ResourceType.TOPIC, topic), principal=Principal(name), operation=operation)
        await self.control.acls_seen(await self.control.store.create_acls([acl]))


@pytest.fixture
async def logins(world: GrpcCluster, tmp_path: Path) -> AsyncIterator[Logins]:
    store, clock, random = world.cluster.store, world.cluster.clock, world.cluster.random
    audit = AuditSettings(to=str(tmp_path / "audit.jsonl"), bytes_max=1 << 20, refusals_per_s=100)
    async with watching_access_control(store, super_users=(), clock=clock, random=random) as control:
        authenticator = Authenticator(control, SecuritySettings(), session_key="k" * 40, clock=clock, random=random)
        with AuditLog(audit, clock=clock) as log:
            yield Logins(await world.gateway(security=GrpcSecurity(authenticator=authenticator, audit=log)), control)
        authenticator.close()


async def test_without_credentials_only_health_and_reflection_are_answered(logins: Logins, tmp_path: Path) -> None:
    stub = TopicServiceStub(logins.made.channel)
    listed = topic_service_pb2.ListTopicsRequest()
    assert await code(stub.ListTopics(listed)) is grpc.StatusCode.UNAUTHENTICATED
    basic = base64.b64encode(b"ann:wrong").decode()
    for given in ("Bearer hf_0123456789ab_" + "0" * 40, "Bearer", f"Basic {basic}", "Basic %", "Digest x"):
        refused = stub.ListTopics(listed, metadata=[("authorization", given)])
        assert await code(refused) is grpc.StatusCode.UNAUTHENTICATED
    health = health_pb2_grpc.HealthStub(logins.made.channel)
    assert (await health.Check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING
    await async_until(lambda: "TopicService/ListTopics" in (tmp_path / "audit.jsonl").read_text())


async def test_no_request_is_read_before_its_caller_is_known(logins: Logins, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RequestReader, "parse", pytest.fail)
    batch = logins.made.channel.unary_unary("/holdfast.v1.HeapService/EnqueueBatch", None, None)
    assert await code(batch(b"\x0a\x00" * 2_000_000)) is grpc.StatusCode.UNAUTHENTICATED
    assert await code(batch(b"malformed")) is grpc.StatusCode.UNAUTHENTICATED


async def test_a_caller_does_and_sees_what_the_acls_allow(logins: Logins, world: GrpcCluster) -> None:
    for name in ("open", "shut"):
        await topic(world, name)
    _, shown = await logins.key("ann")
    await logins.allow("ann", Operation.WRITE, "open")
    me = [("authorization", shown)]
    topics, producing = TopicServiceStub(logins.made.channel), ProduceServiceStub(logins.made.channel)
    seen = (await topics.ListTopics(topic_service_pb2.ListTopicsRequest(), metadata=me)).topics
    assert [each.name for each in seen] == ["open"]
    await producing.Produce(produced("open"), metadata=me, timeout=WAIT_S)
    assert await code(producing.Produce(produced("shut"), metadata=me)) is grpc.StatusCode.PERMISSION_DENIED
    delete = topic_service_pb2.DeleteTopicRequest(name="open")
    assert await code(topics.DeleteTopic(delete, metadata=me)) is grpc.StatusCode.PERMISSION_DENIED
    create = topic_service_pb2.CreateTopicRequest(name="new")
    assert await code(topics.CreateTopic(create, metadata=me)) is grpc.StatusCode.PERMISSION_DENIED
    stream = producing.ProduceStream(metadata=me)
    for name in ("shut", "open"):
        await stream.write(produce_service_pb2.ProduceStreamRequest(topic=name, records=[NewRecord(value=b"1")]))
    answers = [await stream.read(), await stream.read()]
    assert sorted(each.error.reason for each in answers) == ["", "FORBIDDEN"]
    stream.cancel()


async def test_a_key_that_is_revoked_ends_its_streams(logins: Logins, world: GrpcCluster) -> None:
    name = await topic(world, "followed")
    prefix, shown = await logins.key("ann")
    await logins.allow("ann", Operation.READ, name)
    request = fetch_service_pb2.FetchRequest(topic=name, heartbeat_ms=60_000)
    fetch = FetchServiceStub(logins.made.channel).Fetch(request, metadata=[("authorization", shown)], timeout=WAIT_S)
    reading = asyncio.ensure_future(fetch.read())
    await async_until(lambda: logins.made.server.backend.counters.open_streams == 1)
    await logins.control.keys_seen(await logins.control.key_store.revoke(prefix))
    assert await code(reading) is grpc.StatusCode.UNAUTHENTICATED
