"""Pops over several partitions on real agents: in order, while leaders and spines come and go."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.cluster import Node
from tests.support.heaps import HeapWorld, enqueue, pop
from tests.support.waiting import async_until

from holdfast.heap.model import NewMessage, PoppedMessage
from holdfast.heap.records import ProducerSequence
from holdfast.heap.service import HeapService
from holdfast.log.errors import NotLeaderError
from holdfast.log.topics import Topic, UnknownTopicError
from holdfast.vocabulary.errors import OutcomeUnknownError, UnavailableError

pytestmark = pytest.mark.slow

SCRAMBLED = [(number * 37) % 101 for number in range(60)]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[HeapWorld]:
    made = HeapWorld(tmp_path)
    made.cluster.streams = True
    yield made
    await made.end()


async def pop_all(heaps: HeapService, count: int) -> list[PoppedMessage]:
    found: list[PoppedMessage] = []
    while len(found) < count:
        found += await pop(heaps, 7)
    return found


async def test_a_bound_of_1_is_perfect_order_over_all_partitions(world: HeapWorld) -> None:
    heaps = await world.heap(await world.node(), partitions=4, top_k_bound=1)
    await enqueue(heaps, *SCRAMBLED)
    popped = await pop_all(heaps, len(SCRAMBLED))
    assert [each.priority for each in popped] == sorted(SCRAMBLED)
    assert {each.partition for each in popped} == {0, 1, 2, 3}
    assert {each.rank_bound for each in popped} == {1}
    assert await heaps.ack("jobs", [each.lease_token for each in popped]) == [None] * len(popped)


async def test_what_is_enqueued_between_pops_is_in_order_too(world: HeapWorld) -> None:
    heaps = await world.heap(await world.node(), partitions=3, top_k_bound=1)
    await enqueue(heaps, 50, 60, 70)
    assert [each.priority for each in await pop(heaps)] == [50]
    for priority in (5, 65, 4, 3):
        await enqueue(heaps, priority)
    assert [each.priority for each in await pop_all(heaps, 6)] == [3, 4, 5, 60, 65, 70]


async def test_a_pop_waits_for_the_first_message_of_any_partition(world: HeapWorld) -> None:
    heaps = await world.heap(await world.node(), partitions=3, top_k_bound=10)
    waiting = asyncio.create_task(pop(heaps))
    assert await heaps.pop("jobs", consumer="other", wait_ms=20) == []
    await enqueue(heaps, 7)
    assert [each.priority for each in await waiting] == [7]


async def waiting_pop(world: HeapWorld) -> "tuple[Node, asyncio.Task[list[PoppedMessage]]]":
    """A pop of a heap of several partitions that waits at its spine."""
    node = await world.node()
    heaps = await world.heap(node, partitions=3)
    topic = node.agent.topic("jobs")
    assert topic is not None
    spines = heaps.spines
    assert spines is not None
    await async_until(lambda: spines.driver(topic) is not None)
    driver = spines.driver(topic)
    assert driver is not None
    popping = asyncio.create_task(pop(heaps))
    await async_until(lambda: bool(driver._demands))
    return node, popping


async def test_a_pop_that_waits_ends_with_its_heap(world: HeapWorld) -> None:
    node, popping = await waiting_pop(world)
    await node.agent.heaps.administration.delete("jobs")
    with pytest.raises(UnknownTopicError):
        await popping


@pytest.mark.parametrize("partitions", [3, 1])
async def test_a_pop_that_waits_gets_a_message_of_a_heap_that_was_made_anew(
    world: HeapWorld, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, popping = await waiting_pop(world)
    heaps, made = node.agent.heaps, asyncio.Event()
    look_up = heaps._heap

    async def look_up_once_made(name: str, partition: int | None = None) -> Topic:
        await made.wait()
        return await look_up(name, partition)

    monkeypatch.setattr(heaps, "_heap", look_up_once_made)
    await heaps.administration.delete("jobs")
    await heaps.administration.create("jobs", partitions)
    made.set()
    await async_until(lambda: all(heaps.serves("jobs", number) for number in range(partitions)))
    await enqueue(heaps, 7)
    assert [each.priority for each in await popping] == [7]


async def test_every_message_is_within_its_bound(world: HeapWorld) -> None:
    heaps = await world.heap(await world.node(), partitions=4, top_k_bound=10)
    await enqueue(heaps, *SCRAMBLED)
    left = sorted(SCRAMBLED)
    for each in await pop_all(heaps, len(SCRAMBLED)):
        assert left.index(each.priority) + 1 <= each.rank_bound <= 10
        left.remove(each.priority)


async def two_agents(world: HeapWorld) -> tuple[Node, Node]:
    """Two agents that share the four partitions of a heap."""
    ann, bob = await world.node("ann"), await world.node("bob")
    await ann.agent.heaps.administration.create("jobs", 4, {"top_k_bound": 1})
    await async_until(lambda: shared(ann, bob))
    return ann, bob


def numbers_of(node: Node) -> set[int]:
    return {which.number for which in node.agent.local_heaps.open if which.topic == "jobs"}


def shared(*nodes: Node) -> bool:
    return all(map(numbers_of, nodes)) and set.union(*map(numbers_of, nodes)) == {0, 1, 2, 3}


async def enqueue_anywhere(world: HeapWorld, *priorities: int) -> None:
    """A message each, to the partitions in turn."""
    for number, priority in enumerate(priorities):
        await enqueue_once(world, number, priority, partition=number % 4)


async def enqueue_once(world: HeapWorld, number: int, priority: int, *, partition: int) -> None:
    """A message, tried again, as a client would, at whoever leads the partition."""
    message = NewMessage(payload=b"", priority=priority, producer=ProducerSequence("test", 1, number))
    while True:
        for node in [each for each in world.cluster.nodes if not each.task.done() and partition in numbers_of(each)]:
            with suppress(NotLeaderError, OutcomeUnknownError, UnavailableError):
                await node.agent.heaps.enqueue("jobs", message, partition=partition)
                return
        await world.clock.sleep_ms(10)


async def test_partitions_of_several_agents_are_one_heap_for_a_consumer_of_any_of_them(world: HeapWorld) -> None:
    ann, bob = await two_agents(world)
    await enqueue_anywhere(world, *SCRAMBLED)
    first = await pop_all(ann.agent.heaps, len(SCRAMBLED) // 2)
    second = await pop_all(bob.agent.heaps, len(SCRAMBLED) - len(first))
    assert [each.priority for each in first + second] == sorted(SCRAMBLED)


async def test_order_holds_when_the_spine_moves_to_another_agent_with_pops_and_enqueues_that_wait(
    world: HeapWorld,
) -> None:
    nodes = await two_agents(world)
    await enqueue_anywhere(world, *SCRAMBLED)
    first = await pop_all(nodes[0].agent.heaps, 20)
    topic = nodes[0].agent.topic("jobs")
    assert topic is not None

    def has_spine(node: Node) -> bool:
        return node.agent.heaps.spines is not None and node.agent.heaps.spines.driver(topic) is not None

    owner, other = sorted(nodes, key=has_spine, reverse=True)
    assert [has_spine(owner), has_spine(other)] == [True, False]
    waiting = asyncio.create_task(enqueue_once(world, 1_000, -1, partition=min(numbers_of(other))))
    await owner.drop()
    popping = asyncio.create_task(pop_all(other.agent.heaps, len(SCRAMBLED) + 1 - len(first)))
    again = await world.node(owner.name)  # its partitions open where their WAL is
    await async_until(lambda: shared(again, other))
    await waiting
    popped = await popping
    assert sorted(each.priority for each in popped) == sorted([-1, *sorted(SCRAMBLED)[len(first) :]])
    assert [each.priority for each in popped if each.priority != -1] == sorted(SCRAMBLED)[len(first) :]


async def test_order_holds_across_the_death_of_the_agent_that_has_spine_and_partitions(world: HeapWorld) -> None:
    node = await world.node("ann")
    heaps = await world.heap(node, partitions=3, top_k_bound=1)
    await enqueue(heaps, *SCRAMBLED)
    first = await pop_all(heaps, 20)
    assert await heaps.ack("jobs", [each.lease_token for each in first]) == [None] * len(first)
    await node.drop()
    again = await world.node("ann")
    await world.served(again, partitions=3)
    heaps = again.agent.heaps
    await enqueue(heaps, -1)
    second = await pop_all(heaps, len(SCRAMBLED) + 1 - len(first))
    assert [each.priority for each in second] == sorted([-1, *sorted(SCRAMBLED)[len(first) :]])
