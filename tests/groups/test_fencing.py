"""A coordinator that was succeeded cannot change anything any more; and what died between writing and answering is found.

On every engine: this is where groups rely on it.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio
from tests.support.group_coordinators import Coordinator, CoordinatorWorld, held_back
from tests.support.store_engines import STORE_ENGINES
from tests.support.waiting import async_until

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import Committed, Conflict, Operation, Requirement, Store
from holdfast.groups.keys import shard_of
from holdfast.groups.model import GroupState
from holdfast.kernel.lease import Lease
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import FencedError, HoldfastError
from holdfast.vocabulary.random import Random


@pytest.fixture(params=STORE_ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest_asyncio.fixture
async def world(store: Store) -> AsyncIterator[CoordinatorWorld]:
    made = CoordinatorWorld(store)
    yield made
    await made.end()


async def takeover_with_a_late_commit(world: CoordinatorWorld) -> tuple[Coordinator, Exception | None]:
    """Ann has offset 5 committed, is succeeded by Bob, who commits 7, and then writes the 6 she had accepted before."""
    ann = await world.coordinator("ann")
    await ann.commit("g", {("orders", 0): 5})
    late: Exception | None = None
    with held_back(ann.store) as go:
        committing = asyncio.ensure_future(ann.commit("g", {("orders", 0): 6}))
        await async_until(lambda: any(shard.writer.writing for shard in ann.handler.shards()))
        bob = await world.coordinator("bob")
        await bob.commit("g", {("orders", 0): 7})
        go.set()
        try:
            await committing
        except HoldfastError as error:
            late = error
    return await world.coordinator("cid"), late


async def test_a_fenced_coordinator_cannot_commit_an_offset(world: CoordinatorWorld) -> None:
    successor, late = await takeover_with_a_late_commit(world)
    assert isinstance(late, FencedError)
    assert await successor.committed("g") == {("orders", 0): 7}


async def test_without_the_fence_an_acknowledged_offset_would_be_lost(
    world: CoordinatorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above notices a fence that is left out: this is what it would see."""

    async def unfenced(
        store: Store,
        _: Lease,
        *,
        clock: Clock,
        random: Random,
        require: Sequence[Requirement],
        apply: Sequence[Operation],
    ) -> Committed | Conflict:
        return await commit_resolved(store, clock=clock, random=random, require=require, apply=apply)

    monkeypatch.setattr("holdfast.groups.writer.commit_fenced", unfenced)
    successor, late = await takeover_with_a_late_commit(world)
    assert late is None
    assert await successor.committed("g") == {("orders", 0): 6}  # Bob had acknowledged 7


async def test_a_fenced_coordinator_cannot_change_a_group(world: CoordinatorWorld) -> None:
    ann = await world.coordinator("ann")
    joined = await ann.join("g")
    bob = await world.coordinator("bob")
    others = await bob.member("g", client_id="other")
    with pytest.raises(HoldfastError):
        await ann.sync("g", joined, {joined.member_id: b"late"})
    cid = await world.coordinator("cid")
    assert [each.id for each in (await cid.service.describe("g")).members] == [others.member_id]


async def test_a_coordinator_that_dies_between_saving_and_replying_leaves_a_working_group(
    world: CoordinatorWorld,
) -> None:
    ann = await world.coordinator("ann")
    joined = await ann.join("g")
    shard = ann.handler.shard(shard_of("g", 2))
    assert shard is not None
    told = asyncio.Event()
    shard.writer._on_settled = lambda group: told.set()  # the answer never leaves the process
    syncing = asyncio.ensure_future(ann.sync("g", joined, {joined.member_id: b"mine"}))
    await told.wait()
    assert not syncing.done()
    syncing.cancel()
    await ann.stop()
    bob = await world.coordinator("bob")
    assert (await bob.sync("g", joined)).assignment == b"mine"  # as a client does that asks again
    assert (await bob.service.describe("g")).state is GroupState.STABLE


async def test_a_coordinator_that_dies_before_saving_has_replied_to_no_member(world: CoordinatorWorld) -> None:
    ann = await world.coordinator("ann")
    joined = await ann.join("g")
    with held_back(ann.store):
        syncing = asyncio.ensure_future(ann.sync("g", joined, {joined.member_id: b"mine"}))
        await async_until(lambda: any(shard.writer.writing for shard in ann.handler.shards()))
        assert not syncing.done()
        syncing.cancel()
        for shard in ann.handler.shards():
            await shard.close()
        await ann.stop()
    bob = await world.coordinator("bob")
    assert await bob.service.list() == []
    assert (await bob.join("g")).generation == 1
