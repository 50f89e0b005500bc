"""Ranges that are begun, on every engine: one at a time, by the owner alone, finished as they were begun."""

import asyncio

import msgspec
import pytest
from tests.support.registry import RegistryWorld

from holdfast.contracts.store import Put
from holdfast.registry import PartitionState, RegistryStore, keys
from holdfast.registry.intents import canonical_intent, intent_offsets
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.errors import CorruptError, InvalidError
from holdfast.vocabulary.types import OffsetRange

RANGE = '{"end":20,"recipe":1,"start":10}'
OTHER = '{"end":30,"recipe":1,"start":10}'


async def state(registry: RegistryStore, number: int) -> PartitionState:
    found = await registry.partition(number)
    assert found is not None
    return found


async def test_a_range_is_begun_by_the_owner_and_finished_by_its_checkpoint(registry: RegistryStore) -> None:
    await registry.claim(3, "A", 0)
    assert await registry.begin_range(3, "A", 1, RANGE)
    assert await state(registry, 3) == PartitionState(id=3, owner="A", epoch=1, intent=RANGE)
    assert await registry.update_checkpoint(3, "A", 20, 1)
    assert await state(registry, 3) == PartitionState(id=3, owner="A", epoch=1, checkpoint=20)


async def test_a_range_is_not_begun_by_another_consumer_or_under_another_epoch(registry: RegistryStore) -> None:
    await registry.claim(3, "A", 0)
    assert not await registry.begin_range(3, "B", 1, RANGE)
    assert not await registry.begin_range(3, "A", 0, RANGE)
    assert not await registry.begin_range(3, "A", 2, RANGE)
    assert not await registry.begin_range(4, "A", 0, RANGE)
    assert (await state(registry, 3)).intent is None


async def test_a_range_that_is_begun_is_replaced_by_no_other(registry: RegistryStore) -> None:
    await registry.claim(3, "A", 0)
    await registry.begin_range(3, "A", 1, RANGE)
    assert not await registry.begin_range(3, "A", 1, OTHER)
    assert (await state(registry, 3)).intent == RANGE


async def test_to_begin_the_same_range_again_changes_nothing(world: RegistryWorld, registry: RegistryStore) -> None:
    await registry.claim(3, "A", 0)
    await registry.begin_range(3, "A", 1, RANGE)
    before = await world.store.get(keys.partition_key("pxrs", 3))
    assert await registry.begin_range(3, "A", 1, ' {"start": 10, "recipe": 1, "end": 20} ')
    assert await world.store.get(keys.partition_key("pxrs", 3)) == before


async def test_what_is_found_out_before_the_first_effect_is_added_once(registry: RegistryStore) -> None:
    await registry.claim(3, "A", 0)
    begun = OffsetRange(start=10, end=20)
    assert not await registry.amend_range(3, "A", 1, begun, {"rows": 5})
    await registry.begin_range(3, "A", 1, '{"end":20,"recipe":1,"rows":null,"start":10}')
    assert not await registry.amend_range(3, "B", 1, begun, {"rows": 5})
    assert not await registry.amend_range(3, "A", 2, begun, {"rows": 5})
    assert not await registry.amend_range(3, "A", 1, OffsetRange(start=10, end=30), {"rows": 5})
    assert not await registry.amend_range(3, "A", 1, begun, {"recipe": 2})
    assert await registry.amend_range(3, "A", 1, begun, {"rows": 5, "more": {"hash": "x"}})
    assert await registry.amend_range(3, "A", 1, begun, {"rows": 5})
    assert not await registry.amend_range(3, "A", 1, begun, {"rows": 6})
    amended = '{"end":20,"more":{"hash":"x"},"recipe":1,"rows":5,"start":10}'
    assert (await state(registry, 3)).intent == amended
    await registry.release(3, "A", 1)
    await registry.claim(3, "B", 2)
    assert (await state(registry, 3)).intent == amended
    assert await registry.update_checkpoint(3, "B", 20, 3)
    assert (await state(registry, 3)).intent is None


async def test_a_range_survives_release_and_a_new_claim(registry: RegistryStore) -> None:
    await registry.claim(3, "A", 0)
    await registry.update_checkpoint(3, "A", 10, 1)
    await registry.begin_range(3, "A", 1, RANGE)
    await registry.release(3, "A")
    assert await state(registry, 3) == PartitionState(id=3, epoch=2, checkpoint=10, intent=RANGE)
    await registry.claim(3, "B", 2)
    assert await state(registry, 3) == PartitionState(id=3, owner="B", epoch=3, checkpoint=10, intent=RANGE)
    assert not await registry.begin_range(3, "B", 3, OTHER)
    assert await registry.begin_range(3, "B", 3, RANGE)
    assert not await registry.update_checkpoint(3, "A", 20, 1)
    assert (await state(registry, 3)).intent == RANGE
    assert await registry.update_checkpoint(3, "B", 20, 3)
    assert await state(registry, 3) == PartitionState(id=3, owner="B", epoch=3, checkpoint=20)


async def test_while_a_range_is_begun_the_checkpoint_moves_to_its_end_and_nowhere_else(registry: RegistryStore) -> None:
    await registry.claim(3, "A", 0)
    await registry.update_checkpoint(3, "A", 5, 1)
    await registry.begin_range(3, "A", 1, RANGE)
    for offset in (19, 21, 10, 6):
        with pytest.raises(InvalidError, match="20, the end of the range begun"):
            await registry.update_checkpoint(3, "A", offset, 1)
    assert await registry.update_checkpoint(3, "A", 5, 1)  # at or below: nothing changes, as always
    assert await state(registry, 3) == PartitionState(id=3, owner="A", epoch=1, checkpoint=5, intent=RANGE)


async def test_a_range_below_the_checkpoint_is_refused(registry: RegistryStore) -> None:
    await registry.claim(3, "A", 0)
    await registry.update_checkpoint(3, "A", 11, 1)
    with pytest.raises(InvalidError, match="at least 11"):
        await registry.begin_range(3, "A", 1, RANGE)
    assert (await state(registry, 3)).intent is None


async def test_what_is_remembered_of_a_partition_never_decides_against_a_range(
    world: RegistryWorld, registry: RegistryStore
) -> None:
    """Another process of the same owner finished the range; the first remembers it as begun."""
    await registry.claim(3, "A", 0)
    assert await registry.begin_range(3, "A", 1, RANGE)
    elsewhere = world.registry()
    assert await elsewhere.update_checkpoint(3, "A", 20, 1)
    assert await registry.update_checkpoint(3, "A", 25, 1)
    assert await elsewhere.begin_range(3, "A", 1, '{"start":25,"end":30}')
    assert await elsewhere.update_checkpoint(3, "A", 30, 1)
    assert await registry.begin_range(3, "A", 1, '{"start":30,"end":40}')
    assert (await state(registry, 3)).checkpoint == 30


async def test_of_two_racing_ranges_one_is_begun(world: RegistryWorld, registry: RegistryStore) -> None:
    async with world.harness.client() as other:
        second = world.registry(other)
        for number in range(8):
            await registry.claim(number, "A", 0)
            begun = await asyncio.gather(
                registry.begin_range(number, "A", 1, RANGE), second.begin_range(number, "A", 1, OTHER)
            )
            assert sorted(begun) == [False, True]
            assert (await state(registry, number)).intent == (RANGE if begun[0] else OTHER)


async def test_a_range_whose_answer_was_lost_is_begun_once(world: RegistryWorld, registry: RegistryStore) -> None:
    await registry.claim(3, "A", 0)
    losing = FaultyStore(world.store, random=world.random)
    losing.lose_answer_to("partitions/00003")
    assert await world.registry(losing).begin_range(3, "A", 1, RANGE)
    losing.lose_request("partitions/00004")
    await registry.claim(4, "A", 0)
    assert await world.registry(losing).begin_range(4, "A", 1, RANGE)
    assert [(await state(registry, number)).intent for number in (3, 4)] == [RANGE, RANGE]


async def test_a_record_from_before_there_were_ranges_is_read_and_claimed(
    world: RegistryWorld, registry: RegistryStore
) -> None:
    key = keys.partition_key("pxrs", 3)
    await world.store.commit(apply=[Put(key, b'{"owner":null,"checkpoint":7,"epoch":4}')])
    assert await state(registry, 3) == PartitionState(id=3, epoch=4, checkpoint=7)
    assert await registry.claim(3, "A", 4)
    assert await registry.begin_range(3, "A", 5, RANGE)
    entry = await world.store.get(key)
    assert entry is not None
    assert msgspec.json.decode(entry.value)["intent"] == {"start": 10, "end": 20, "recipe": 1}


async def test_a_stored_range_nobody_could_have_begun_is_corrupt(world: RegistryWorld, registry: RegistryStore) -> None:
    value = b'{"owner":"A","checkpoint":0,"epoch":1,"intent":{"start":9,"end":9}}'
    await world.store.commit(apply=[Put(keys.partition_key("pxrs", 3), value)])
    with pytest.raises(CorruptError, match="partitions/00003"):
        await registry.partition(3)


@pytest.mark.parametrize(
    "wrong",
    ["", "null", "[]", "7", '{"start":1}', '{"start":-1,"end":2}', '{"start":2,"end":2}', '{"start":"1","end":2}'],
)
async def test_what_is_no_range_is_refused(registry: RegistryStore, wrong: str) -> None:
    await registry.claim(3, "A", 0)
    with pytest.raises(InvalidError, match="0 <= start < end"):
        await registry.begin_range(3, "A", 1, wrong)
    assert (await state(registry, 3)).intent is None


def test_an_intent_keeps_what_is_its_writers() -> None:
    assert canonical_intent('{"start": 1, "rows": null, "end": 5}') == '{"end":5,"rows":null,"start":1}'
    assert (intent_offsets('{"start":1,"end":5,"more":[1]}').start, intent_offsets('{"start":1,"end":5}').end) == (1, 5)
