"""Dead letters while their leader changes, their heap is made anew, or many are named: no more is done than was asked for."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Any

import pytest
from tests.gateways.kafka.test_large_requests import LONGEST_STEP_MS, longest_step
from tests.support.cluster import Node
from tests.support.heaps import HeapWorld
from tests.support.waiting import async_until

from holdfast.gateways.heap import calls as heap_calls
from holdfast.gateways.heap.calls import HeapBackend, HeapCalls
from holdfast.heap import dead_letters
from holdfast.heap.dead_letters import DeadLetterProgress, DeadLetterReport, DeadLetters
from holdfast.heap.errors import MessageNotFoundError
from holdfast.heap.message_id import message_id, parse_message_id
from holdfast.heap.model import NewMessage
from holdfast.heap.partition import HeapPartition
from holdfast.heap.wire import DeadLettersRequest, DeleteRequest, HeapRequest
from holdfast.log.errors import NotLeaderError
from holdfast.log.topics import UnknownTopicError
from holdfast.vocabulary.errors import InvalidError, OutcomeUnknownError, UnavailableError

pytestmark = pytest.mark.slow

DLQ = "jobs.dlq"
ACTIONS = {"delete": "cancel", "replay": "move"}
"""What is done with dead letters, and which method of their partition does it."""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[HeapWorld]:
    made = HeapWorld(tmp_path)
    yield made
    await made.end()


def calls_of(world: HeapWorld, node: Node, request_ms: int = 30_000) -> HeapCalls:
    agent, cluster = node.agent, world.cluster
    backend = HeapBackend(
        heaps=agent.heaps,
        cluster=agent.cluster,
        clock=cluster.clock,
        random=cluster.random,
        agent=node.name,
        request_ms=request_ms,
    )
    return HeapCalls(backend)


async def dead(world: HeapWorld, node: Node, count: int, partitions: int = 1) -> None:
    """A heap with so many dead letters in each partition."""
    heaps = await world.heap(node, partitions=partitions)
    for number in range(partitions):
        messages = [NewMessage(payload=b"%d" % at) for at in range(count)]
        for each in await heaps.enqueue_batch("jobs", messages, partition=number):
            await heaps.move_to_dead_letters("jobs", each.message_id)
    await async_until(lambda: waiting(world, node, partitions) == [count] * partitions)


def waiting(world: HeapWorld, node: Node, partitions: int = 1) -> list[int]:
    """How many dead letters wait in each partition; -1: it is not open."""
    views = {which.number: view for which, view in node.agent.local_heaps.open.items() if which.topic == DLQ}
    return [len(views[number].state.ready) if number in views else -1 for number in range(partitions)]


def after_the_first(monkeypatch: pytest.MonkeyPatch, action: str, then: Callable[[HeapPartition], object]) -> None:
    """Have something happen once a partition has changed the first dead letters."""
    method = ACTIONS[action]
    change = getattr(HeapPartition, method)

    async def changed(view: HeapPartition, *args: Any, **more: Any) -> Any:
        found = await change(view, *args, **more)
        if args[0] and view.rules.topic == DLQ:
            monkeypatch.setattr(HeapPartition, method, change)
            then(view)
        return found

    monkeypatch.setattr(HeapPartition, method, changed)


def moving(view: HeapPartition) -> Any:
    """A partition takes nothing: it is about to move."""
    log: Any = view.log
    log._led.stop_accepting()
    return log._led


@pytest.mark.parametrize("action", ACTIONS)
async def test_a_limit_holds_while_a_partition_is_about_to_move(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    node = await world.node()
    await dead(world, node, 450)
    calls = calls_of(world, node)
    loop = asyncio.get_running_loop()
    after_the_first(monkeypatch, action, lambda view: loop.call_later(0.3, moving(view).resume_accepting))
    report = await calls.call(DeadLettersRequest(topic="jobs", action=action, limit=200, force=True))
    assert (report, waiting(world, node)) == (DeadLetterReport(200, 200), [250])
    calls.close()


@pytest.mark.parametrize("action", ACTIONS)
async def test_a_step_that_ends_half_way_is_gone_on_with(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """A step may have several pages, where few letters match."""
    node = await world.node()
    await dead(world, node, 250)
    calls = calls_of(world, node)
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(dead_letters, "_TOGETHER", 40)
    after_the_first(monkeypatch, action, lambda view: loop.call_later(0.3, moving(view).resume_accepting))
    report = await calls.call(DeadLettersRequest(topic="jobs", action=action, limit=150, force=True))
    assert (report, waiting(world, node)) == (DeadLetterReport(150, 150), [100])
    calls.close()


@pytest.mark.parametrize("action", ACTIONS)
async def test_what_cannot_go_on_says_how_much_was_done(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    node = await world.node()
    await dead(world, node, 450)
    calls = calls_of(world, node, request_ms=400)
    after_the_first(monkeypatch, action, moving)
    with pytest.raises(OutcomeUnknownError, match="after 100 were changed"):
        await calls.call(DeadLettersRequest(topic="jobs", action=action, limit=200, force=True))
    assert waiting(world, node) == [350]
    moving(world.view(node, DLQ)).resume_accepting()
    calls.close()


@pytest.mark.parametrize("action", ACTIONS)
async def test_a_partition_that_fails_after_another_was_changed_leaves_no_failure_without_effect(
    world: HeapWorld, action: str
) -> None:
    node = await world.node()
    await dead(world, node, 5, partitions=2)
    calls = calls_of(world, node, request_ms=400)
    second = moving(world.view(node, DLQ, 1))
    with pytest.raises(OutcomeUnknownError, match="after 5 were changed"):
        await calls.call(DeadLettersRequest(topic="jobs", action=action, force=True))
    first = moving(world.view(node, DLQ, 0))
    with pytest.raises((NotLeaderError, UnavailableError)):
        await calls.call(DeadLettersRequest(topic="jobs", action=action, force=True))
    first.resume_accepting()
    second.resume_accepting()
    await async_until(lambda: waiting(world, node, 2) == [0, 5])  # one may be opened again meanwhile
    calls.close()


async def test_a_replay_at_a_rate_ends_when_its_heap_is_made_anew(world: HeapWorld) -> None:
    node = await world.node()
    await dead(world, node, 40)
    calls = calls_of(world, node)
    replay = asyncio.ensure_future(calls.call(DeadLettersRequest(topic="jobs", action="replay", rate_per_s=20)))
    await async_until(lambda: waiting(world, node)[0] < 40)
    await calls.call(DeleteRequest(topic="jobs"))
    await async_until(lambda: all(each.topic != DLQ for each in node.agent.local_heaps.open))
    await dead(world, node, 40)
    async with asyncio.timeout(10):
        with pytest.raises((UnknownTopicError, OutcomeUnknownError)):
            await replay
    assert waiting(world, node) == [40], "those of the new heap stay"
    calls.close()


async def test_a_step_for_another_heap_of_this_name_is_refused_at_its_leader(world: HeapWorld) -> None:
    node = await world.node()
    await dead(world, node, 3)
    calls = calls_of(world, node)
    asked = DeadLettersRequest(
        topic="jobs", action="delete", partition=0, forwarded=True, force=True, topic_id="0" * 32
    )
    with pytest.raises(UnknownTopicError):
        await calls.call(asked)
    assert waiting(world, node) == [3]
    calls.close()


async def test_one_that_names_a_partition_is_answered_with_its_end_and_one_that_does_not_without(
    world: HeapWorld,
) -> None:
    node = await world.node()
    await dead(world, node, 5)
    calls = calls_of(world, node)
    some = DeadLettersRequest(topic="jobs", action="delete", partition=0, limit=2, force=True)
    first = await calls.call(some)
    assert isinstance(first, DeadLetterProgress)
    assert first[:2] == (2, 2)
    rest = DeadLettersRequest(topic="jobs", action="delete", forwarded=True, force=True)
    assert await calls.call(rest) == DeadLetterReport(3, 3)
    with pytest.raises(InvalidError, match="action"):
        await calls.call(DeadLettersRequest(topic="jobs", action="eat"))
    calls.close()


async def test_a_replay_at_a_rate_ends_where_a_step_gets_no_further(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition has fewer offsets than it had."""
    node = await world.node()
    await dead(world, node, 3)
    calls = calls_of(world, node)
    asked = 0

    async def replay(*args: Any, **more: Any) -> DeadLetterProgress:
        nonlocal asked
        asked += 1
        return DeadLetterProgress(0, 0, 50 if asked == 1 else 2)

    monkeypatch.setattr(DeadLetters, "replay", replay)
    async with asyncio.timeout(5):
        await calls.call(DeadLettersRequest(topic="jobs", action="replay", rate_per_s=20))
    assert asked <= 3
    calls.close()


async def named(world: HeapWorld, node: Node, count: int) -> list[str]:
    """So many ids of dead letters, those that are there first."""
    letters = await node.agent.heaps.dead_letters.list("jobs", limit=1_000)
    topic_id = bytes.fromhex(world.view(node, DLQ).log.partition_id.topic_id)
    place = parse_message_id(topic_id, letters[-1].message_id)
    gone = (message_id(topic_id, 0, place.offset + 1 + at, place.enqueued_ms) for at in range(count - len(letters)))
    return [*(each.message_id for each in letters), *gone]


async def test_each_id_is_parsed_once_and_sent_with_its_step_alone(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await world.node()
    await dead(world, node, 300)
    calls, ids = calls_of(world, node), await named(world, node, 5_000)
    parsed, sent = 0, list[Collection[str] | None]()
    once = calls._once

    def parse(topic_id: bytes, text: str) -> Any:
        nonlocal parsed
        parsed += 1
        return parse_message_id(topic_id, text)

    async def noted(request: HeapRequest) -> Any:
        if isinstance(request, DeadLettersRequest):
            sent.append(request.message_ids)
        return await once(request)

    monkeypatch.setattr(dead_letters, "parse_message_id", parse)
    monkeypatch.setattr(heap_calls, "parse_message_id", parse)
    monkeypatch.setattr(calls, "_once", noted)
    # Backwards, and some of them twice: their order is nobody's business.
    asked = DeadLettersRequest(
        topic="jobs", action="replay", message_ids=[*reversed(ids), *ids[:500], "none"], rate_per_s=10_000
    )
    assert await calls.call(asked) == DeadLetterReport(300, 300)
    assert max(len(each or ()) for each in sent) <= 1_000
    assert sum(len(each or ()) for each in sent) <= 2 * len(ids)
    assert parsed <= 3 * len(ids), "once as they come, once at their leader, and once for the letters themselves"
    calls.close()


async def test_however_many_ids_are_named_the_loop_goes_on(world: HeapWorld) -> None:
    node = await world.node()
    await dead(world, node, 300)
    calls, ids = calls_of(world, node), await named(world, node, 20_000)
    for request in (
        DeadLettersRequest(topic="jobs", action="list", message_ids=ids),
        DeadLettersRequest(topic="jobs", action="replay", message_ids=ids, dry_run=True),
        DeadLettersRequest(topic="jobs", action="replay", partition=0, forwarded=True, message_ids=ids, dry_run=True),
        DeadLettersRequest(topic="jobs", action="delete", message_ids=ids, force=True),
    ):
        async with longest_step() as steps:
            found = await calls.call(request)
        assert steps.longest_ms < LONGEST_STEP_MS, request.action
        assert (len(found) if request.action == "list" else found.matched) in (100, 300)
    assert waiting(world, node) == [0]
    with pytest.raises(MessageNotFoundError):
        await node.agent.heaps.cancel(DLQ, ids[0])
    calls.close()
