"""Nobody has all calls of a server: not who has not logged in, not who sends nothing, and not one caller."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.support.grpc_gateway import GrpcCluster, RunningGrpcGateway, grpc_cluster
from tests.support.waiting import WAIT_S, async_until

from holdfast.agent.access_control import AccessControl, watching_access_control
from holdfast.gateways.grpc.access import GrpcSecurity
from holdfast.gateways.grpc.request_reader import ParsingThread
from holdfast.security.acls import Acl, Operation, ResourcePattern, ResourceType
from holdfast.security.api_keys import DEFAULT_SCOPES
from holdfast.security.audit import AuditLog, AuditSettings
from holdfast.security.authenticator import Authenticator
from holdfast.security.principals import Principal
from holdfast.security.settings import SecuritySettings
from holdfast.v1 import topic_service_pb2
from holdfast.v1.topic_service_pb2_grpc import TopicServiceStub

CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
PRODUCE = "/holdfast.v1.ProduceService/Produce"
POP = "/holdfast.v1.HeapService/PopStream"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[GrpcCluster]:
    async with grpc_cluster(tmp_path) as made:
        yield made


async def code(call: Any) -> grpc.StatusCode:
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call
    return error.value.code()


def stream(channel: Any, rpc: str, **more: Any) -> Any:
    return channel.stream_stream(rpc, None, None)(**more)


def unsent(made: RunningGrpcGateway, **more: Any) -> Any:
    """A call with one request, which is never sent."""
    channel: Any = made.channel
    return channel.stream_unary(PRODUCE, None, None)(**more)


async def ask(made: RunningGrpcGateway, **more: Any) -> None:
    """Ask for the health and for topics, which must be answered."""
    status = await health_pb2_grpc.HealthStub(made.channel).Check(health_pb2.HealthCheckRequest(), timeout=WAIT_S)
    assert status.status == health_pb2.HealthCheckResponse.SERVING
    await TopicServiceStub(made.channel).ListTopics(topic_service_pb2.ListTopicsRequest(), timeout=WAIT_S, **more)


async def test_who_watches_the_health_leaves_calls_to_others(world: GrpcCluster) -> None:
    made = await world.gateway(calls_max=40)
    watches = [made.channel.unary_stream(WATCH, None, None)(b"") for _ in range(40)]
    ended = [asyncio.ensure_future(each.code()) for each in watches]
    await async_until(lambda: sum(each.done() for each in ended) == 30)  # a quarter of all calls
    assert {each.result() for each in ended if each.done()} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    await ask(made)
    for each in watches:
        each.cancel()
    again = made.channel.unary_stream(WATCH, None, None)(b"")
    await asyncio.gather(*ended)
    assert await again.read()
    again.cancel()


async def test_one_address_has_some_of_the_public_streams(world: GrpcCluster) -> None:
    made = await world.gateway(public_peer_max=2)
    held = [stream(made.channel, REFLECTION) for _ in range(2)]
    for each in held:
        await each.write(b"\x3a\x00")  # list_services
        assert await each.read()
    assert await code(stream(made.channel, REFLECTION).read()) is grpc.StatusCode.RESOURCE_EXHAUSTED
    await ask(made)
    await made.server.close_gracefully()
    assert await code(held[0].read()) is grpc.StatusCode.UNAVAILABLE


async def test_a_request_that_does_not_arrive_ends_its_call(world: GrpcCluster) -> None:
    made = await world.gateway(request_ms=50)
    call = unsent(made)
    assert await code(call) is grpc.StatusCode.DEADLINE_EXCEEDED
    assert ("holdfast-reason", "REQUEST_TIMEOUT") in tuple(await call.trailing_metadata())
    await ask(made)


class Logins:
    """Security, and keys of users."""

    def __init__(self, control: AccessControl, security: GrpcSecurity) -> None:
        self.control, self.security = control, security

    async def key(self, name: str, *operations: Operation) -> dict[str, Any]:
        """A user who may do this to every topic; what shows its key."""
        made, version = await self.control.key_store.create(
            name, Principal(name), frozenset(DEFAULT_SCOPES), expires_at_ms=0
        )
        await self.control.keys_seen(version)
        for each in operations:
            pattern = ResourcePattern(ResourceType.TOPIC, "*")
            acl = Acl(resource=pattern, principal=Principal(name), operation=each)
            await self.control.acls_seen(await self.control.store.create_acls([acl]))
        return {"metadata": [("authorization", f"Bearer {made.secret}")]}


@asynccontextmanager
async def making_logins(world: GrpcCluster, directory: Path) -> AsyncIterator[Logins]:
    store, clock, random = world.cluster.store, world.cluster.clock, world.cluster.random
    audit = AuditSettings(to=str(directory / "audit.jsonl"), bytes_max=1 << 20, refusals_per_s=100)
    async with watching_access_control(store, super_users=(), clock=clock, random=random) as control:
        authenticator = Authenticator(control, SecuritySettings(), session_key="k" * 40, clock=clock, random=random)
        with AuditLog(audit, clock=clock) as log:
            yield Logins(control, GrpcSecurity(authenticator=authenticator, audit=log))
        authenticator.close()


async def test_one_caller_has_half_of_the_calls(world: GrpcCluster, tmp_path: Path) -> None:
    async with making_logins(world, tmp_path) as logins:
        made = await world.gateway(security=logins.security, calls_max=20)
        ann, bob = await logins.key("ann", Operation.WRITE), await logins.key("bob")
        calls = [unsent(made, **ann) for _ in range(20)]
        ended = [asyncio.ensure_future(each.code()) for each in calls]
        await async_until(lambda: sum(each.done() for each in ended) == 10)
        assert {each.result() for each in ended if each.done()} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        await ask(made, **bob)
        for each in calls:
            each.cancel()
        await asyncio.gather(*ended)


async def test_who_may_write_to_no_topic_is_refused_unread(world: GrpcCluster, tmp_path: Path) -> None:
    async with making_logins(world, tmp_path) as logins:
        made = await world.gateway(security=logins.security)
        bob = await logins.key("bob", Operation.DESCRIBE)
        assert await code(unsent(made, **bob)) is grpc.StatusCode.PERMISSION_DENIED
        assert await code(stream(made.channel, POP, **bob).read()) is grpc.StatusCode.PERMISSION_DENIED
        await ask(made, **bob)


@pytest.mark.parametrize("raw", [b"\xff" * 100, b"\x0a" + b"\x80\x40" + b"a" * 8_192], ids=["malformed", "large"])
@pytest.mark.parametrize("rpc", [CHECK, WATCH, REFLECTION])
async def test_what_cannot_be_read_without_credentials_is_refused_and_not_logged(
    world: GrpcCluster, caplog: pytest.LogCaptureFixture, rpc: str, raw: bytes
) -> None:
    made = await world.gateway()
    with caplog.at_level(logging.INFO):
        call = stream(made.channel, rpc)
        await call.write(raw)
        await call.done_writing()
        assert await code(call.read()) is grpc.StatusCode.INVALID_ARGUMENT
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


async def test_the_health_of_each_service_and_of_none(world: GrpcCluster) -> None:
    made = await world.gateway()
    stub: Any = health_pb2_grpc.HealthStub(made.channel)
    listed = await stub.List(health_pb2.HealthListRequest())
    assert {"", "holdfast.v1.TopicService"} <= set(listed.statuses)
    asked = health_pb2.HealthCheckRequest(service="nothing")
    assert await code(stub.Check(asked)) is grpc.StatusCode.NOT_FOUND
    watch = stub.Watch(asked)
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    watch.cancel()


async def test_a_stream_of_credits_takes_small_requests_only(world: GrpcCluster) -> None:
    made = await world.gateway()
    call = stream(made.channel, POP)
    await call.write(b"\x0a\x00" * 10_000)
    assert await code(call.read()) is grpc.StatusCode.INVALID_ARGUMENT


async def test_callers_take_turns_at_large_requests() -> None:
    thread, order = ParsingThread(), list[str]()
    try:
        runs = [
            asyncio.ensure_future(thread.run(caller, partial(order.append, caller)))
            for caller in ("a1", "a2", "a3", "b1")
        ]
        await asyncio.gather(*runs)
        assert order == ["a1", "a2", "a3", "b1"]  # four callers: in the order in which they came
        order.clear()
        runs = [
            asyncio.ensure_future(thread.run(name[0], partial(order.append, name)))
            for name in ("a1", "a2", "a3", "a4", "b1", "c1")
        ]
        await asyncio.sleep(0)  # noqa: TID251 (they queue up)
        runs[1].cancel()
        await asyncio.gather(*runs, return_exceptions=True)
        assert order == ["a1", "b1", "c1", "a3", "a4"]
        await thread.run("d", partial(order.append, "d"))
        assert order[-1] == "d"
    finally:
        thread.close()
