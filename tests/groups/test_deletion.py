"""Deleting groups: while it is not durable, and whoever has stopped waiting for it."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.support.group import refused_with
from tests.support.group_coordinators import Coordinator, CoordinatorWorld, held_back
from tests.support.waiting import async_until

from holdfast.contracts.store import Store
from holdfast.groups.errors import GroupRefusal, NotCoordinatorError
from holdfast.groups.model import GroupState, JoinResult, LeaveRequest
from holdfast.vocabulary.errors import UnavailableError


@pytest_asyncio.fixture
async def world(store: Store) -> AsyncIterator[CoordinatorWorld]:
    made = CoordinatorWorld(store)
    yield made
    await made.end()


async def being_written(ann: Coordinator, group_id: str) -> None:
    """Return once a commit of this group is in flight or queued."""
    await async_until(lambda: any(group_id in shard.writer.changing() for shard in ann.handler.shards()))


async def deleting(ann: Coordinator, group_id: str) -> "asyncio.Task[None]":
    """A deletion that waits for the store."""
    task = asyncio.ensure_future(ann.service.delete(group_id))
    await being_written(ann, group_id)
    return task


async def flush(ann: Coordinator) -> None:
    for shard in ann.handler.shards():
        await shard.writer.flush()


async def emptied(ann: Coordinator, group_id: str) -> JoinResult:
    """A group that had a member and committed offsets."""
    member = await ann.member(group_id)
    await ann.commit(group_id, {("orders", 0): 1}, member)
    await ann.service.leave(group_id, [LeaveRequest(member.member_id)])
    await flush(ann)
    return member


async def test_a_deletion_includes_offsets_whose_commit_is_in_flight(world: CoordinatorWorld) -> None:
    ann = await world.coordinator("ann")
    member = await ann.member("g")
    await ann.commit("g", {("orders", 0): 1}, member)
    with held_back(ann.store) as go:
        committing = asyncio.ensure_future(ann.commit("g", {("orders", 0): 5, ("bills", 3): 77}, member))
        await async_until(lambda: any(shard.writer.writing for shard in ann.handler.shards()))
        await world.clock.sleep_ms(1)  # the writer has taken it
        await ann.service.leave("g", [LeaveRequest(member.member_id)])
        removing = asyncio.ensure_future(ann.service.delete("g"))
        await world.clock.sleep_ms(1)
        go.set()
        await asyncio.gather(committing, removing)
    assert await ann.service.list() == []
    assert await ann.committed("g") == {}
    bob = await world.coordinator("bob")
    assert await bob.service.list() == []


async def test_a_second_deletion_waits_for_the_first(world: CoordinatorWorld) -> None:
    ann = await world.coordinator()
    await emptied(ann, "g")
    with held_back(ann.store) as go:
        first, second = await deleting(ann, "g"), await deleting(ann, "g")
        await world.clock.sleep_ms(1)
        assert not first.done()
        assert not second.done()
        go.set()
        await asyncio.gather(first, second)
    with refused_with(GroupRefusal.NOT_FOUND):
        await ann.service.delete("g")


async def test_a_group_is_listed_and_described_until_its_deletion_is_durable(world: CoordinatorWorld) -> None:
    ann = await world.coordinator()
    await emptied(ann, "g")
    with held_back(ann.store) as go:
        removing = await deleting(ann, "g")
        assert [each.id for each in await ann.service.list()] == ["g"]
        assert (await ann.service.describe("g")).generation == 2
        go.set()
        await removing
    assert await ann.service.list() == []


async def test_a_group_that_a_sweep_deletes_is_listed_until_that_is_durable(world: CoordinatorWorld) -> None:
    ann = await world.coordinator()
    await ann.commit("g", {("orders", 0): 1})
    del world.topics["orders"]
    with held_back(ann.store) as go:
        for shard in ann.handler.shards():
            await shard.sweep(1 << 60)
        await being_written(ann, "g")
        assert [each.id for each in await ann.service.list()] == ["g"]
        go.set()
        await flush(ann)
    assert await ann.service.list() == []


async def test_a_deletion_whose_caller_is_gone_leaves_no_group(world: CoordinatorWorld) -> None:
    ann = await world.coordinator()
    await ann.commit("g", {("orders", 0): 1})
    with held_back(ann.store) as go:
        removing = await deleting(ann, "g")
        removing.cancel()
        await asyncio.gather(removing, return_exceptions=True)
        go.set()
        await flush(ann)
    assert await ann.service.list() == []


async def test_a_group_that_could_not_be_deleted_is_as_it_was(
    world: CoordinatorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def impatient(store: Store, lease: object, **commit: object) -> object:
        return await store.commit(require=(lease.fence(), *commit["require"]), apply=commit["apply"])  # type: ignore

    ann = await world.coordinator()
    await emptied(ann, "g")
    before = await ann.service.describe("g")
    (group,) = (shard.groups["g"] for shard in ann.handler.shards() if "g" in shard.groups)
    empty_since_ms = group.empty_since_ms
    monkeypatch.setattr("holdfast.groups.writer.commit_fenced", impatient)
    ann.store.reachable = False
    with pytest.raises(UnavailableError):
        await ann.service.delete("g")
    ann.store.reachable = True
    assert await ann.service.describe("g") == before
    assert empty_since_ms is not None
    assert [shard.groups["g"].empty_since_ms for shard in ann.handler.shards() if "g" in shard.groups] == [
        empty_since_ms
    ]
    assert (await ann.join("g")).generation == 3


async def test_a_join_waits_for_a_deletion_and_creates_a_new_group(world: CoordinatorWorld) -> None:
    ann = await world.coordinator()
    await emptied(ann, "g")
    with held_back(ann.store) as go:
        removing = await deleting(ann, "g")
        joining = asyncio.ensure_future(ann.join("g"))
        await world.clock.sleep_ms(1)
        assert (await ann.service.describe("g")).state is GroupState.EMPTY
        go.set()
        await removing
    assert (await joining).generation == 1


async def test_a_join_that_waits_for_a_deletion_fails_when_the_shard_is_closed(world: CoordinatorWorld) -> None:
    ann = await world.coordinator()
    await emptied(ann, "g")
    with held_back(ann.store):
        removing = await deleting(ann, "g")
        joining = asyncio.ensure_future(ann.join("g"))
        await world.clock.sleep_ms(1)
        for lease in ann.leases:
            await ann.handler.close(lease)
        with pytest.raises(NotCoordinatorError):
            await removing
        with pytest.raises(NotCoordinatorError):
            await joining


async def test_offsets_committed_during_a_deletion_are_those_of_a_new_group(world: CoordinatorWorld) -> None:
    ann = await world.coordinator()
    await emptied(ann, "g")
    with held_back(ann.store) as go:
        removing = await deleting(ann, "g")
        committing = asyncio.ensure_future(ann.commit("g", {("bills", 0): 7}))
        await world.clock.sleep_ms(1)
        go.set()
        await asyncio.gather(removing, committing)
    assert await ann.committed("g") == {("bills", 0): 7}
    assert (await ann.service.describe("g")).generation == 0


async def test_a_commit_whose_caller_is_gone_creates_a_group_that_can_be_deleted(world: CoordinatorWorld) -> None:
    ann = await world.coordinator()
    with held_back(ann.store) as go:
        committing = asyncio.ensure_future(ann.commit("g", {("orders", 0): 7}))
        await being_written(ann, "g")
        committing.cancel()
        await asyncio.gather(committing, return_exceptions=True)
        go.set()
        await flush(ann)
    assert [each.id for each in await ann.service.list()] == ["g"]
    await ann.service.delete("g")
    assert await ann.committed("g") == {}
