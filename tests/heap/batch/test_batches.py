"""Batches over several partitions on real agents: all or none, once, whoever fails at whatever step."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.cluster import Node
from tests.support.failpoints import FailpointError
from tests.support.heap_batches import (
    QUICK,
    batch_over,
    decisions,
    enqueue_until_done,
    known,
    leader,
    nothing_undecided,
    prepare_of,
    views,
)
from tests.support.heaps import HeapWorld, enqueue, pop
from tests.support.waiting import async_until

from holdfast.contracts.store import Put
from holdfast.heap.batch.model import Resolved, decision_key
from holdfast.heap.errors import BatchAbortedError, ProducerFencedError, ResourceExhaustedError
from holdfast.heap.model import NewMessage, PoppedMessage
from holdfast.heap.records import ProducerSequence
from holdfast.heap.service import HeapService
from holdfast.heap.settings import HeapSettings
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import InvalidError, OutcomeUnknownError, UnavailableError

pytestmark = pytest.mark.slow

STEPS = ("begun", "prepared", "decided", "resolved", "key-deleted")
COMMITTED = ("decided", "resolved", "key-deleted")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[HeapWorld]:
    made = HeapWorld(tmp_path)
    made.cluster.streams = True
    yield made
    await made.end()


async def one_agent(world: HeapWorld, partitions: int = 3, top_k_bound: int = 1) -> HeapService:
    return await world.heap(await world.node(heaps=QUICK), partitions=partitions, top_k_bound=top_k_bound)


async def two_agents(world: HeapWorld) -> tuple[Node, Node]:
    """The leader of partition 0, and the other one, which leads something as well."""
    nodes = [await world.node(name, heaps=QUICK) for name in ("ann", "bob")]
    await nodes[0].agent.heaps.administration.create("jobs", 4, {})
    # Each has its half of the partitions, those of dead letters too: none moves any more.
    await async_until(lambda: [len(node.agent.local_heaps.open) for node in nodes] == [4, 4])
    await async_until(lambda: len({found[0].name for number in range(4) if (found := leader(world, number))}) == 2)
    found = leader(world, 0)
    assert found is not None
    return found[0], next(node for node in nodes if node is not found[0])


async def pop_all(heaps: HeapService, count: int) -> list[PoppedMessage]:
    found: list[PoppedMessage] = []
    while len(found) < count:
        found += await pop(heaps, count)
    return found


def fail_once(name: str) -> failpoints.Handler:
    """Raises at a failpoint, the first time."""
    reached: list[str] = []

    def handler(at: str) -> None:
        if at == name and at not in reached:
            reached.append(at)
            raise FailpointError(name)

    return handler


async def test_a_batch_is_in_all_partitions_when_it_is_answered_and_leaves_nothing_behind(world: HeapWorld) -> None:
    heaps = await one_agent(world)
    enqueued = await heaps.enqueue_batch("jobs", batch_over(3))
    assert [each.partition for each in enqueued] == [0, 1, 2]
    assert [each.ready for each in await heaps.stats("jobs")] == [1, 1, 1]
    popped = await pop_all(heaps, 3)
    assert {each.message_id for each in popped} == {each.message_id for each in enqueued}
    assert sorted(each.payload for each in popped) == [b"0/0", b"0/1", b"0/2"]
    await nothing_undecided(world, 3)
    assert await decisions(world) == []


async def test_a_batch_again_is_a_duplicate_of_every_message_also_after_a_restart(world: HeapWorld) -> None:
    heaps = await one_agent(world)
    first = await heaps.enqueue_batch("jobs", batch_over(3))
    for _ in range(2):
        again = await enqueue_until_done(world, batch_over(3))
        assert [(each.message_id, each.duplicate) for each in again] == [(each.message_id, True) for each in first]
        await nothing_undecided(world, 3)
        await world.cluster.nodes[-1].drop()
        await world.served(await world.node(heaps=QUICK), partitions=3)
    assert [each.state.counters.enqueued for each in await views(world, 3)] == [1, 1, 1]


async def test_what_is_new_is_enqueued_beside_what_is_known(world: HeapWorld) -> None:
    heaps = await one_agent(world)
    alone, *rest = batch_over(3)
    first = await heaps.enqueue("jobs", alone)
    enqueued = await heaps.enqueue_batch("jobs", [alone, *rest, rest[0]])
    assert [each.duplicate for each in enqueued] == [True, False, False, True]
    assert (enqueued[0].message_id, enqueued[3].message_id) == (first.message_id, enqueued[1].message_id)
    assert [each.ready for each in await heaps.stats("jobs")] == [1, 1, 1]
    await nothing_undecided(world, 3)
    assert await decisions(world) == []


async def test_partitions_of_two_agents_take_a_batch_together(world: HeapWorld) -> None:
    coordinator, other = await two_agents(world)
    enqueued = await coordinator.agent.heaps.enqueue_batch("jobs", batch_over(4))
    assert [each.partition for each in enqueued] == [0, 1, 2, 3]
    found = await nothing_undecided(world, 4)
    assert [len(view.state.ready) for view in found] == [1, 1, 1, 1]
    elsewhere = [number for number in range(4) if (led := leader(world, number)) is not None and led[0] is other]
    again = await other.agent.heaps.enqueue("jobs", batch_over(4)[elsewhere[0]])
    assert again.duplicate


async def test_a_number_that_an_undecided_batch_has_aborts_others_and_is_free_after_its_abort(world: HeapWorld) -> None:
    still = HeapSettings(batch_resolve_ms=600_000)
    heaps = await world.heap(await world.node(heaps=still), partitions=3)
    found = await views(world, 3)
    messages = batch_over(3)
    await found[1].prepare(prepare_of("other", found[0], 3, messages[1]))
    blocked = found[1].state.reserved
    assert [len(found[1].state), len(blocked.messages)] == [0, 1]
    with pytest.raises(BatchAbortedError):
        await heaps.enqueue_batch("jobs", messages)
    with pytest.raises(BatchAbortedError):
        await heaps.enqueue("jobs", messages[1])
    await found[1].resolve(Resolved("other", committed=False))
    assert [each.duplicate for each in await heaps.enqueue_batch("jobs", messages)] == [False] * 3
    assert [each.state.counters.enqueued for each in found] == [1, 1, 1]


async def test_a_batch_that_nobody_coordinates_is_looked_up_and_dropped(world: HeapWorld) -> None:
    await one_agent(world)
    found = await views(world, 3)
    await found[1].prepare(prepare_of("orphan", found[0], 3, batch_over(3)[1]))
    await nothing_undecided(world, 3)
    assert not found[1].state.reserved.messages
    assert not known(found[1])


async def test_a_refusal_of_one_partition_is_that_of_the_batch(world: HeapWorld) -> None:
    heaps = await one_agent(world)
    first, second, third = batch_over(3)
    newer = NewMessage(payload=b"", partition_key=third.partition_key, producer=ProducerSequence("p", 5, 1))
    await heaps.enqueue("jobs", newer)
    with pytest.raises(ProducerFencedError):
        await heaps.enqueue_batch("jobs", [first, second, third])
    await nothing_undecided(world, 3)
    assert [each.ready for each in await heaps.stats("jobs")] == [0, 0, 1]
    with pytest.raises(InvalidError):
        await heaps.enqueue_batch("jobs", [first, second], places=[0])


@pytest.mark.parametrize("partitions", [1, 2])
async def test_an_older_epoch_is_refused_behind_a_newer_one_of_the_same_request(
    world: HeapWorld, partitions: int
) -> None:
    heaps = await world.heap(await world.node(), partitions=partitions)
    spread = [NewMessage(payload=b"", partition_key=each.partition_key) for each in batch_over(partitions)]
    home = spread[-1].partition_key
    epochs = [NewMessage(payload=b"", partition_key=home, producer=ProducerSequence("p", at, 1)) for at in (2, 1)]
    with pytest.raises(ProducerFencedError):
        await heaps.enqueue_batch("jobs", [*spread, *epochs])
    await nothing_undecided(world, partitions)
    assert sum(each.ready for each in await heaps.stats("jobs")) == 0
    await heaps.enqueue_batch("jobs", [*spread, *reversed(epochs)])
    again = await heaps.enqueue_batch("jobs", epochs)
    assert [each.duplicate for each in again] == [True, True]


async def test_limits_of_what_is_undecided_are_kept(world: HeapWorld) -> None:
    few = HeapSettings(batch_resolve_ms=600_000, reserved_messages_max=1)
    heaps = await world.heap(await world.node(heaps=few), partitions=2)
    found = await views(world, 2)
    await found[1].prepare(prepare_of("other", found[0], 2, batch_over(2, 7)[1]))
    with pytest.raises(ResourceExhaustedError):
        await heaps.enqueue_batch("jobs", batch_over(2))
    assert [each.ready for each in await heaps.stats("jobs")] == [0, 0]
    assert [each.reserved for each in await heaps.stats("jobs")] == [0, 1]


async def test_batches_and_messages_come_out_in_perfect_order_with_a_bound_of_1(world: HeapWorld) -> None:
    heaps = await one_agent(world, top_k_bound=1)
    await enqueue(heaps, 50, 10, 30)
    assert [each.priority for each in await pop(heaps)] == [10]  # the spine knows the partitions from here on
    for number, priority in enumerate((40, 20, 5)):
        await heaps.enqueue_batch("jobs", batch_over(3, number, priority=priority))
    assert [each.priority for each in await pop_all(heaps, 11)] == [5] * 3 + [20] * 3 + [30] + [40] * 3 + [50]


async def test_a_delay_of_a_batch_is_kept(world: HeapWorld) -> None:
    heaps = await one_agent(world, 2)
    later = [
        NewMessage(payload=b"later", partition_key=each.partition_key, delay_ms=3_600_000) for each in batch_over(2)
    ]
    await heaps.enqueue_batch("jobs", later)
    assert [(each.ready, each.delayed) for each in await heaps.stats("jobs")] == [(0, 1), (0, 1)]


@pytest.mark.parametrize("step", STEPS)
async def test_a_coordinator_that_fails_at_a_step_leaves_all_or_none(world: HeapWorld, step: str) -> None:
    heaps = await one_agent(world)
    answered = None
    with failpoints.installed(fail_once(f"heap.batch-{step}")):
        try:
            answered = await heaps.enqueue_batch("jobs", batch_over(3))
        except (OutcomeUnknownError, UnavailableError):
            answered = None
        found = await nothing_undecided(world, 3)
    expected = step in COMMITTED
    assert [known(view) for view in found] == [expected] * 3
    assert (answered is not None) == (step == "key-deleted")
    assert await decisions(world) == []
    again = await enqueue_until_done(world, batch_over(3))
    assert {each.duplicate for each in again} == {expected}
    assert [view.state.counters.enqueued for view in found] == [1, 1, 1]


@pytest.mark.parametrize("step", STEPS)
async def test_an_agent_that_dies_as_coordinator_leaves_all_or_none(world: HeapWorld, step: str) -> None:
    coordinator, other = await two_agents(world)
    dying: list[asyncio.Task[None]] = []

    def die(name: str) -> None:
        if name == f"heap.batch-{step}" and not dying:
            dying.append(asyncio.ensure_future(coordinator.drop()))
            raise FailpointError(name)

    with failpoints.installed(die):
        with suppress(OutcomeUnknownError, UnavailableError):
            await coordinator.agent.heaps.enqueue_batch("jobs", batch_over(4))
        await async_until(lambda: bool(dying))
        await dying[0]
    if step == "prepared":  # the others do without it: its partition's lease is another one's by now, or nobody's
        here = [each[1] for number in range(4) if (each := leader(world, number)) is not None]
        await async_until(lambda: not any(view.state.reserved.messages for view in here))
    await world.node(coordinator.name, heaps=QUICK)
    found = await nothing_undecided(world, 4)
    assert [known(view) for view in found] == [step in COMMITTED] * 4
    await async_until(lambda: not other.agent.local_heaps.batches._coordinating)  # type: ignore[union-attr]
    assert await decisions(world) == []
    assert {each.duplicate for each in await enqueue_until_done(world, batch_over(4))} == {step in COMMITTED}


@pytest.mark.parametrize("step", ["begun", "prepared", "decided", "resolved"])
async def test_an_agent_that_dies_as_participant_leaves_all_or_none(world: HeapWorld, step: str) -> None:
    _, other = await two_agents(world)
    dying: list[asyncio.Task[None]] = []

    def die(name: str) -> None:
        if name == f"heap.batch-{step}" and not dying:
            dying.append(asyncio.ensure_future(other.drop()))

    with failpoints.installed(die):
        first = asyncio.create_task(enqueue_until_done(world, batch_over(4)))
        await async_until(lambda: bool(dying))
        await dying[0]
    await world.node(other.name, heaps=QUICK)
    enqueued = await first
    assert len({each.message_id for each in enqueued}) == 4
    found = await nothing_undecided(world, 4)
    assert [known(view) for view in found] == [True] * 4
    assert [view.state.counters.enqueued for view in found] == [1] * 4
    assert await decisions(world) == []


@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("with_snapshot", [True, False])
async def test_a_new_leader_ends_what_it_finds_prepared(
    world: HeapWorld, is_committed: bool, with_snapshot: bool
) -> None:
    still = HeapSettings(batch_resolve_ms=600_000)
    node = await world.node(heaps=still)
    heaps = await world.heap(node, partitions=2)
    found = await views(world, 2)
    messages = batch_over(2)
    for view, message in zip(found, messages, strict=True):
        await view.prepare(prepare_of("b", found[0], 2, message))
    if is_committed:
        key = decision_key(found[0].log.partition_id.topic_id, 0, "b")
        await world.cluster.store.commit(apply=[Put(key, b'{"partitions":[0,1]}')])
    if with_snapshot:
        for number in range(2):
            await node.service.flush("jobs", number)
        await heaps.snapshot("jobs")
        await heaps.enqueue("jobs", NewMessage(payload=b"more", partition_key=messages[0].partition_key))
    await node.drop()
    await world.served(await world.node(heaps=QUICK), partitions=2)
    found = await nothing_undecided(world, 2)
    assert [known(view) for view in found] == [is_committed] * 2
    assert not any(view.state.reserved.messages for view in found)
    assert await decisions(world) == []
    if is_committed:
        popped = await pop_all(world.cluster.nodes[-1].agent.heaps, 2 + with_snapshot)
        assert {b"0/0", b"0/1"} <= {each.payload for each in popped}


async def test_a_store_that_loses_the_answer_to_a_decision_is_asked_what_became_of_it(world: HeapWorld) -> None:
    node = await world.node(heaps=QUICK)
    heaps = await world.heap(node, partitions=2)
    node.store.lose_answer_to("/batch/")
    enqueued = await heaps.enqueue_batch("jobs", batch_over(2))
    assert [each.duplicate for each in enqueued] == [False, False]
    assert [each.ready for each in await heaps.stats("jobs")] == [1, 1]


async def test_many_batches_at_once_with_deaths_are_each_all_or_none_and_once(world: HeapWorld) -> None:
    coordinator, other = await two_agents(world)
    batches = [batch_over(4, number) for number in range(30)]
    sent = [asyncio.create_task(enqueue_until_done(world, batch)) for batch in batches for _ in range(2)]
    await async_until(lambda: sum(task.done() for task in sent) >= 5)
    await other.drop()
    await world.node(other.name, heaps=QUICK)
    await async_until(lambda: sum(task.done() for task in sent) >= 20)
    await coordinator.drop()
    await world.node(coordinator.name, heaps=QUICK)
    answers = await asyncio.gather(*sent)
    found = await nothing_undecided(world, 4)
    assert [view.state.counters.enqueued for view in found] == [30] * 4
    for first, second in zip(answers[::2], answers[1::2], strict=True):
        assert [each.message_id for each in first] == [each.message_id for each in second]
    assert await decisions(world) == []
