"""Partitions added to a namespace: by whom and however often, they begin at their beginning."""

import asyncio

import pytest
from tests.support.registry import RegistryWorld

from holdfast.registry import PartitionState, RegistrySettings, RegistryStore
from holdfast.registry.growth import ensure_partitions
from holdfast.registry.queries import fix_start, fixed_starts, partition_count
from holdfast.vocabulary.errors import InvalidError

NAMESPACE = RegistrySettings().namespace


async def grow(world: RegistryWorld, count: int) -> int:
    return await ensure_partitions(world.store, NAMESPACE, count, clock=world.clock, random=world.random)


async def test_added_partitions_begin_at_offset_0_whatever_is_asked_later(
    world: RegistryWorld, registry: RegistryStore
) -> None:
    assert await registry.claim(3, "A", 0)
    assert await grow(world, 70) == 70
    assert await partition_count(world.store, NAMESPACE) == 70
    states = await registry.partitions()
    assert states[3] == PartitionState(id=3, owner="A", epoch=1)
    assert [state.id for state in states] == list(range(70))
    assert await fixed_starts(world.store, NAMESPACE) == dict.fromkeys(range(8, 70), 0)
    for number, start in ((7, 500), (8, 0)):
        fixed = await fix_start(world.store, NAMESPACE, number, 500, clock=world.clock, random=world.random)
        assert fixed == start


async def test_a_registry_that_was_opened_before_claims_what_was_added(
    world: RegistryWorld, registry: RegistryStore
) -> None:
    await grow(world, 9)
    assert await registry.claim(8, "A", 0)
    with pytest.raises(InvalidError):
        await registry.claim(9, "A", 0)


async def test_a_namespace_that_is_not_there_is_made_and_one_that_is_larger_is_left(world: RegistryWorld) -> None:
    assert await grow(world, 2) == 2
    assert await fixed_starts(world.store, NAMESPACE) == {}, "its source decides where these begin"
    assert await grow(world, 4) == await grow(world, 3) == 4
    assert await fixed_starts(world.store, NAMESPACE) == {2: 0, 3: 0}


async def test_racing_growth_ends_in_the_larger_count(world: RegistryWorld, registry: RegistryStore) -> None:
    await asyncio.gather(grow(world, 40), grow(world, 12), grow(world, 40))
    assert len(await registry.partitions()) == 40
    assert await fixed_starts(world.store, NAMESPACE) == dict.fromkeys(range(8, 40), 0)
