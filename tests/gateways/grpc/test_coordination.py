"""Sessions, leases, keys and watches over gRPC: the kernel's own, at any node, whatever becomes of a connection."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.support.grpc_gateway import GrpcCluster, grpc_cluster
from tests.support.waiting import WAIT_S, async_until

from holdfast.kernel import lease as kernel
from holdfast.v1 import coordination_service_pb2 as pb
from holdfast.v1.coordination_service_pb2_grpc import CoordinationServiceStub


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[GrpcCluster]:
    async with grpc_cluster(tmp_path) as made:
        yield made


@pytest.fixture
async def stub(world: GrpcCluster) -> Any:
    return CoordinationServiceStub((await world.gateway()).channel)


async def session(stub: Any, name: str = "ann", ttl_ms: int = 20_000) -> str:
    opened = await stub.OpenSession(pb.OpenSessionRequest(name=name, ttl_ms=ttl_ms), timeout=WAIT_S)
    return str(opened.session_id)


async def acquire(stub: Any, session_id: str, resource: str = "job", wait_ms: int = 0) -> pb.AcquireLeaseResponse:
    request = pb.AcquireLeaseRequest(session_id=session_id, resource=resource, wait_ms=wait_ms)
    found: pb.AcquireLeaseResponse = await stub.AcquireLease(request, timeout=WAIT_S)
    return found


def put(key: str, value: bytes = b"1", session_id: str = "") -> pb.Operation:
    return pb.Operation(put=pb.PutOperation(key=key, value=value, session_id=session_id))


async def reason(call: Any) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    trailing: Any = error.value.trailing_metadata()
    return str(dict(trailing)["holdfast-reason"])


async def test_a_lease_has_one_holder_and_the_next_epoch_fences_the_last(stub: Any) -> None:
    ann, bob = await session(stub), await session(stub, "bob")
    first = (await acquire(stub, ann)).lease
    held = (await acquire(stub, bob)).held
    assert (held.holder, held.epoch) == ("ann", first.epoch)
    assert (await acquire(stub, ann)).lease == first  # a lost answer is asked for again
    assert (await stub.Commit(pb.CommitRequest(lease=first, apply=[put("a")]))).committed.version > first.version
    assert (await stub.ReleaseLease(pb.ReleaseLeaseRequest(lease=first))).released
    assert await reason(stub.Commit(pb.CommitRequest(lease=first, apply=[put("a")]))) == "EXPIRED"
    second = (await acquire(stub, bob)).lease
    assert second.epoch == first.epoch + 1
    assert await reason(stub.Commit(pb.CommitRequest(lease=first, apply=[put("a", b"2")]))) == "FENCED"
    assert (await stub.GetKey(pb.GetKeyRequest(key="a"))).entry.value == b"1"
    assert not (await stub.ReleaseLease(pb.ReleaseLeaseRequest(lease=first))).released


async def test_a_lease_is_the_kernels_own(stub: Any, world: GrpcCluster) -> None:
    ann = await session(stub)
    await acquire(stub, ann, "shared")
    store, clock, random = world.cluster.store, world.cluster.clock, world.cluster.random
    mine = await store.open_session(20_000)
    found = await kernel.acquire(store, "user/shared", holder="sdk", session=mine.id, clock=clock, random=random)
    assert isinstance(found, kernel.Held)
    assert found.holder == "ann"


async def test_who_waits_gets_the_lease_when_its_session_ends(stub: Any, world: GrpcCluster) -> None:
    ann, bob = await session(stub), await session(stub, "bob")
    first = (await acquire(stub, ann)).lease
    assert (await acquire(stub, bob, wait_ms=10)).held.holder == "ann"
    request = pb.AcquireLeaseRequest(session_id=bob, resource="job", wait_ms=60_000)
    waiting = stub.AcquireLease(request, timeout=WAIT_S)
    await stub.CloseSession(pb.CloseSessionRequest(session_id=ann))
    assert (await waiting).lease.epoch == first.epoch + 1


async def test_a_session_outlives_its_connection_and_its_node(world: GrpcCluster) -> None:
    first, second = await world.gateway(), await world.gateway()
    one = CoordinationServiceStub(first.channel)
    ann = await session(one)
    keeping = one.KeepAlive()
    await keeping.write(pb.KeepAliveRequest(session_id=ann))
    assert (await keeping.read()).session_id == ann
    lease = (await acquire(one, ann)).lease
    await first.channel.close(None)
    await first.server.close_gracefully()
    other = CoordinationServiceStub(second.channel)
    await other.RenewSession(pb.RenewSessionRequest(session_id=ann))
    assert (await other.Commit(pb.CommitRequest(lease=lease, apply=[put("k")]))).committed.version


async def test_a_session_that_is_not_renewed_ends_and_takes_its_keys_along(stub: Any) -> None:
    ann = await session(stub, ttl_ms=2_000)  # longer than a busy machine takes for the commit
    version = (await stub.Commit(pb.CommitRequest(apply=[put("mine", b"1", ann), put("stays")]))).committed.version
    changes = stub.Watch(pb.WatchRequest(from_version=version), timeout=WAIT_S)
    change = await changes.read()
    assert [(each.key, each.HasField("entry")) for each in change.changes] == [("mine", False)]
    changes.cancel()
    assert await reason(stub.RenewSession(pb.RenewSessionRequest(session_id=ann))) == "EXPIRED"
    assert await reason(stub.Commit(pb.CommitRequest(apply=[put("x", b"1", ann)]))) == "EXPIRED"
    await stub.CloseSession(pb.CloseSessionRequest(session_id=ann))
    assert [each.key for each in (await stub.ScanKeys(pb.ScanKeysRequest())).entries] == ["stays"]


async def test_sessions_of_the_cluster_are_nobody_elses(stub: Any, world: GrpcCluster) -> None:
    await async_until(lambda: world.node.agent.sessions.session is not None)
    agents = world.node.agent.sessions.session
    assert agents is not None
    for request, call in (
        (pb.RenewSessionRequest(session_id=agents.id), stub.RenewSession),
        (pb.AcquireLeaseRequest(session_id=agents.id, resource="x"), stub.AcquireLease),
        (pb.CommitRequest(apply=[put("x", b"1", agents.id)]), stub.Commit),
    ):
        assert await reason(call(request)) == "EXPIRED"
    await stub.CloseSession(pb.CloseSessionRequest(session_id=agents.id))
    assert await world.cluster.store.keep_alive(agents.id)


async def test_keys_of_the_cluster_are_out_of_reach(stub: Any, world: GrpcCluster) -> None:
    assert not (await stub.ScanKeys(pb.ScanKeysRequest())).entries  # although the agent has written many
    assert not (await stub.GetKey(pb.GetKeyRequest(key="../member/agent/ann"))).HasField("entry")
    await stub.Commit(pb.CommitRequest(apply=[put("member/agent/ann")]))
    assert await world.cluster.store.get("user/member/agent/ann") is not None
    assert b"session" in (await world.cluster.store.get("member/agent/ann")).value  # type: ignore[union-attr]


async def test_a_lost_race_is_an_answer(stub: Any) -> None:
    first = (await stub.Commit(pb.CommitRequest(apply=[put("k")]))).committed.version
    for version in (0, first + 1):
        found = await stub.Commit(
            pb.CommitRequest(require=[pb.Requirement(key="k", version=version)], apply=[put("k", b"2")])
        )
        assert [(each.key, each.value, each.version) for each in found.conflict.found] == [("k", b"1", first)]
    swapped = pb.CommitRequest(require=[pb.Requirement(key="k", version=first)], apply=[put("k", b"3")])
    assert (await stub.Commit(swapped)).HasField("committed")
    for wrong in (pb.CommitRequest(apply=[pb.Operation()]), pb.CommitRequest(apply=[put("k", b"no json")])):
        assert await reason(stub.Commit(wrong)) == "INVALID"


async def test_a_scan_goes_on_where_it_was_and_a_watch_from_there(stub: Any) -> None:
    await stub.Commit(pb.CommitRequest(apply=[put(f"a/{at}") for at in range(5)]))
    page = await stub.ScanKeys(pb.ScanKeysRequest(prefix="a/", limit=3))
    rest = await stub.ScanKeys(pb.ScanKeysRequest(prefix="a/", after=page.entries[-1].key))
    assert [each.key for each in (*page.entries, *rest.entries)] == [f"a/{at}" for at in range(5)]
    assert (page.more, rest.more) == (True, False)
    watch = stub.Watch(pb.WatchRequest(prefix="a/", from_version=rest.version), timeout=WAIT_S)
    await stub.Commit(pb.CommitRequest(apply=[put("b")]))
    last = (await stub.Commit(pb.CommitRequest(apply=[put("a/9", b"7")]))).committed.version
    seen = await watch.read()
    assert (seen.version, [(each.key, each.entry.value) for each in seen.changes]) == (last, [("a/9", b"7")])
    watch.cancel()
