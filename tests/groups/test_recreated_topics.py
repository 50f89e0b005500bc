"""Offsets of topics that are deleted and created again: they belong to a topic's id, and what is acknowledged stays."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.support.group_coordinators import CoordinatorWorld, held_back

from holdfast.contracts.store import Store
from holdfast.groups.model import CommittedOffset
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.types import TopicPartition


@pytest_asyncio.fixture
async def world(store: Store) -> AsyncIterator[CoordinatorWorld]:
    made = CoordinatorWorld(store)
    yield made
    await made.end()


async def test_a_commit_to_a_new_topic_stays_though_the_clock_is_behind(store: Store) -> None:
    clock = FakeClock()
    world = CoordinatorWorld(store, clock=clock)
    ann = await world.coordinator()
    await ann.commit("g", {("orders", 0): 5})
    clock.step_wall_ms(-60_000)
    world.topics["orders"] = "created again"
    await ann.commit("g", {("orders", 1): 1})
    assert await ann.committed("g") == {("orders", 1): 1}
    await world.end()


async def test_the_last_of_many_commits_counts_for_a_new_topic(world: CoordinatorWorld) -> None:
    ann = await world.coordinator()
    with held_back(ann.store) as go:
        first = asyncio.ensure_future(ann.commit("other", {("orders", 0): 1}))
        await world.clock.sleep_ms(1)  # it is in flight: what follows goes into the next commit
        old = [asyncio.ensure_future(ann.commit("g", {("orders", number): 5})) for number in (0, 1)]
        await world.clock.sleep_ms(1)
        world.topics["orders"] = "created again"
        new = asyncio.ensure_future(ann.commit("g", {("orders", 0): 2}))
        await world.clock.sleep_ms(1)
        go.set()
    await new
    await asyncio.gather(first, *old, return_exceptions=True)
    assert await ann.committed("g") == {("orders", 0): 2}


async def test_a_commit_during_which_the_topic_is_created_again_is_to_be_tried_again(world: CoordinatorWorld) -> None:
    ann = await world.coordinator()
    with held_back(ann.store) as go:
        committing = asyncio.ensure_future(ann.commit("g", {("orders", 0): 5, ("bills", 0): 6}))
        await world.clock.sleep_ms(1)
        world.topics["orders"] = "created again"
        go.set()
    with pytest.raises(UnavailableError):
        await committing
    await ann.commit("g", {("orders", 0): 5})
    assert await ann.committed("g") == {("orders", 0): 5, ("bills", 0): 6}


async def test_a_commit_to_another_topic_than_the_one_that_has_the_name_is_to_be_tried_again(
    world: CoordinatorWorld,
) -> None:
    ann = await world.coordinator()
    orders = TopicPartition("orders", 0)
    results = await ann.service.commit_offsets("g", {orders: CommittedOffset(offset=5, topic_id="deleted")})
    assert isinstance(results[orders], UnavailableError)
    results = await ann.service.commit_offsets("g", {orders: CommittedOffset(offset=5, topic_id="id-1")})
    assert results[orders] is None
    assert await ann.committed("g") == {("orders", 0): 5}
