"""Heaps that grow on real agents: nothing is lost or enqueued twice, order holds, and pops wait without an error."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.heap_batches import QUICK, key_of, leader, nothing_undecided, prepare_of, views
from tests.support.heaps import HeapWorld, enqueue, pop
from tests.support.waiting import async_until

from holdfast.heap.batch.model import Resolved
from holdfast.heap.errors import BatchAbortedError, PartitionsGrownError
from holdfast.heap.growth.growing_partition import GrowingPartition
from holdfast.heap.growth.look_up import LookUp
from holdfast.heap.model import NewMessage, PoppedMessage
from holdfast.heap.records import ProducerSequence
from holdfast.heap.routing import partition_of_key
from holdfast.heap.service import HeapService
from holdfast.heap.settings import HeapSettings
from holdfast.log.topics import PartitionCountError

SCRAMBLED = [(number * 37) % 101 for number in range(40)]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[HeapWorld]:
    made = HeapWorld(tmp_path)
    made.cluster.streams = True
    yield made
    await made.end()


async def heap_of(world: HeapWorld, partitions: int, **config: int) -> HeapService:
    node = await world.node(heaps=QUICK)
    await node.agent.heaps.administration.create("jobs", partitions, config)
    await world.served(node, partitions=partitions)
    return node.agent.heaps


async def grow(world: HeapWorld, heaps: HeapService, partitions: int) -> list[GrowingPartition]:
    """The partitions of the heap that has so many now, once each of them knows."""
    await heaps.administration.update("jobs", {}, partitions=partitions)
    found = [each for each in await views(world, partitions) if isinstance(each, GrowingPartition)]
    await async_until(lambda: all(view.state.partitions == partitions for view in found))
    return found


async def pop_all(heaps: HeapService, count: int) -> list[PoppedMessage]:
    found: list[PoppedMessage] = []
    while len(found) < count:
        found += await pop(heaps, 7)
    return found


def moved_key(before: int, after: int) -> str:
    """A key that growth moves."""
    return next(key for key in map(str, range(1_000)) if partition_of_key(key, before) != partition_of_key(key, after))


def keyed(key: str, sequence: int = 0, priority: int = 0) -> NewMessage:
    return NewMessage(
        payload=b"x", priority=priority, partition_key=key, producer=ProducerSequence("orders", 0, sequence)
    )


async def test_a_heap_that_grew_is_one_heap_in_perfect_order(world: HeapWorld) -> None:
    heaps = await heap_of(world, 2)
    await enqueue(heaps, *SCRAMBLED[:20])
    first = await pop_all(heaps, 5)
    await grow(world, heaps, 5)
    await enqueue(heaps, *SCRAMBLED[20:])
    left = sorted(set(SCRAMBLED) - {each.priority for each in first})
    popped = await pop_all(heaps, len(left))
    assert [each.priority for each in popped] == left
    assert {each.partition for each in popped} == {0, 1, 2, 3, 4}
    assert {each.rank_bound for each in popped} == {1}
    assert await heaps.ack("jobs", [each.lease_token for each in first + popped]) == [None] * len(SCRAMBLED)
    assert len(await heaps.stats("jobs")) == 5


async def test_a_pop_that_waits_at_the_only_partition_gets_what_is_enqueued_in_a_new_one(world: HeapWorld) -> None:
    heaps = await heap_of(world, 1)
    waiting = asyncio.create_task(pop(heaps))
    whole = asyncio.create_task(heaps.pop("jobs", consumer="other", wait_ms=10_000, partition=0, whole=True))
    assert await heaps.pop("jobs", consumer="c") == []  # the others wait by now
    await grow(world, heaps, 3)
    await heaps.enqueue("jobs", keyed(key_of(2, 3), 0, priority=7))
    await heaps.enqueue("jobs", keyed(key_of(1, 3), 1, priority=8))
    found = await waiting + await whole
    assert sorted((each.partition, each.priority) for each in found) == [(1, 8), (2, 7)]
    assert {each.rank_bound for each in found} == {1}


async def test_a_repeated_enqueue_is_found_where_its_key_belonged_before(world: HeapWorld) -> None:
    heaps = await heap_of(world, 2)
    key = moved_key(2, 6)
    first = await heaps.enqueue("jobs", keyed(key))
    plain = NewMessage(payload=b"y", producer=ProducerSequence("plain", 0, 9))
    numbered = [plain, *(NewMessage(payload=b"z", producer=ProducerSequence("plain", 0, at)) for at in range(20))]
    before = [await heaps.enqueue("jobs", each) for each in numbered]
    await grow(world, heaps, 6)
    again = await heaps.enqueue("jobs", keyed(key))
    assert (again.message_id, again.duplicate, again.partition) == (first.message_id, True, first.partition)
    after = [await heaps.enqueue("jobs", each) for each in numbered]
    assert [each.message_id for each in after] == [each.message_id for each in before]
    assert all(each.duplicate for each in after)
    new = await heaps.enqueue("jobs", keyed(key, 1))
    assert (new.duplicate, new.partition) == (False, partition_of_key(key, 6))
    assert (await heaps.enqueue("jobs", keyed(key, 1))).message_id == new.message_id
    batch = await heaps.enqueue_batch("jobs", [keyed(key), keyed(key, 1), keyed(key, 2), plain])
    assert [each.message_id for each in batch[:2]] == [first.message_id, new.message_id]
    assert [each.duplicate for each in batch] == [True, True, False, True]
    await nothing_undecided(world, 6)
    assert sum(each.enqueued for each in await heaps.stats("jobs")) == 1 + 20 + 2


async def test_a_repeated_enqueue_is_found_after_two_growths_and_a_restart(world: HeapWorld) -> None:
    heaps = await heap_of(world, 1)
    keys = [str(number) for number in range(40)]
    sent = [keyed(key, at) for at, key in enumerate(keys)]
    first = [await heaps.enqueue("jobs", each) for each in sent[:20]]
    await grow(world, heaps, 3)
    first += [await heaps.enqueue("jobs", each) for each in sent[20:]]
    await grow(world, heaps, 7)
    await world.cluster.nodes[-1].drop()
    heaps = (await world.node(heaps=QUICK)).agent.heaps
    await views(world, 7)
    again = [await heaps.enqueue("jobs", each) for each in sent]
    assert [each.message_id for each in again] == [each.message_id for each in first]
    assert all(each.duplicate for each in again)


async def test_who_routes_by_the_smaller_set_is_refused_once_the_partition_knows(world: HeapWorld) -> None:
    heaps = await heap_of(world, 2)
    key = moved_key(2, 6)
    old = partition_of_key(key, 2)
    first = await heaps.enqueue("jobs", keyed(key), partition=old)
    await grow(world, heaps, 6)
    again = await heaps.enqueue("jobs", keyed(key), partition=old)
    assert (again.message_id, again.duplicate) == (first.message_id, True)
    with pytest.raises(PartitionsGrownError) as raised:
        await heaps.enqueue("jobs", keyed(key, 1), partition=old)
    assert raised.value.partitions == 6
    with pytest.raises(PartitionsGrownError):
        await heaps.enqueue_batch("jobs", [keyed(key, 1), keyed(key_of(1 - old, 6), 2)], places=[old, 1 - old])
    await nothing_undecided(world, 6)
    assert sum(each.enqueued for each in await heaps.stats("jobs")) == 1
    stays = NewMessage(payload=b"x", partition_key=key, producer=ProducerSequence("client", 0, 1), pinned=True)
    assert (await heaps.enqueue("jobs", stays, partition=old)).partition == old
    assert (await heaps.enqueue("jobs", stays, partition=old)).duplicate


async def test_a_leader_that_is_asked_before_it_knows_of_the_growth_takes_nothing_for_the_smaller_set_afterwards(
    world: HeapWorld,
) -> None:
    heaps = await heap_of(world, 2)
    key = moved_key(2, 6)
    old = partition_of_key(key, 2)
    (view,) = [each for each in await views(world, 2) if each.number == old]
    assert isinstance(view, GrowingPartition)
    found = await view.look_up(LookUp(6, [ProducerSequence("orders", 0, 0)]))
    assert found.enqueued == [None]
    assert found.highest == [("orders", 0, -1)]
    with pytest.raises(PartitionsGrownError):
        await heaps.enqueue("jobs", keyed(key))


async def test_a_number_in_an_undecided_batch_of_the_smaller_set_is_found_when_it_is_decided(world: HeapWorld) -> None:
    still = HeapSettings(batch_resolve_ms=600_000, reopen_ms=20, tell_spine_ms=20)
    heaps = await world.heap(await world.node(heaps=still), partitions=2)
    key = moved_key(2, 6)
    old = partition_of_key(key, 2)
    found = await views(world, 2)
    promised = await found[old].prepare(prepare_of("b", found[0], 2, keyed(key)))
    await grow(world, heaps, 6)
    with pytest.raises(BatchAbortedError):
        await heaps.enqueue("jobs", keyed(key))
    with pytest.raises(BatchAbortedError):  # a higher one is known, and does not hide it
        await heaps.enqueue_batch("jobs", [keyed(key, 5), keyed(key)])
    assert not (await heaps.enqueue("jobs", keyed(key, 5))).duplicate
    with pytest.raises(BatchAbortedError):
        await heaps.enqueue("jobs", keyed(key))
    await found[old].resolve(Resolved("b", committed=True))
    again = await heaps.enqueue("jobs", keyed(key))
    assert (again.message_id, again.duplicate) == (promised.enqueued[0].message_id, True)


async def test_fewer_partitions_are_refused_and_as_many_are_no_change(world: HeapWorld) -> None:
    heaps = await heap_of(world, 3)
    with pytest.raises(PartitionCountError, match="currently has 3 partition"):
        await heaps.administration.update("jobs", {"max_retries": 9}, partitions=2)
    same = await heaps.administration.update("jobs", {"max_retries": 5}, partitions=3)
    assert (same.partitions, same.config.max_retries) == (3, 5)
    asked = [heaps.administration.update("jobs", {}, partitions=count) for count in (4, 6, 6)]
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(each, PartitionCountError) or each.partitions in (4, 6) for each in found)  # type: ignore[union-attr]
    described = await heaps.administration.describe("jobs")
    assert (described.partitions, described.config.max_retries) == (6, 5)
    await grow(world, heaps, 6)
    await enqueue(heaps, 3, 1, 2)
    assert [each.priority for each in await pop_all(heaps, 3)] == [1, 2, 3]


async def test_dead_letters_that_are_moved_again_after_their_heap_grew_are_known_there(world: HeapWorld) -> None:
    heaps = await heap_of(world, 2, max_retries=0)
    await grow(world, heaps, 5)
    made = await heaps.enqueue("jobs", keyed(key_of(4, 5)))
    (popped,) = await pop(heaps)
    await heaps.nack("jobs", [popped.lease_token], backoff_ms=0)

    def letters() -> int:
        found = [leader(world, number, "jobs.dlq") for number in range(2)]
        return sum(each[1].state.counters.enqueued for each in found if each is not None)

    await async_until(lambda: letters() == 1)
    await heaps.administration.update("jobs.dlq", {}, partitions=6)
    await async_until(lambda: all(leader(world, number, "jobs.dlq") is not None for number in range(6)))
    origin = ProducerSequence(f"~move/{(await heaps.heap('jobs')).id}/4", 0, 10_000)
    before = NewMessage(payload=b"x", producer=origin)
    sent = [await heaps.deliver("jobs.dlq", 4, [before]) for _ in range(2)]
    assert [each[0].duplicate for each in sent] == [False, True]
    assert sent[0][0].partition == 4 % 2
    assert (await heaps.dead_letters.replay("jobs")).changed == 1
    (again,) = await pop(heaps)
    assert (again.payload, again.message_id == made.message_id) == (b"x", False)
