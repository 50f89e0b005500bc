"""Dead letters that are replayed and deleted while others pop them, and while there are many."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.heaps import HeapWorld, pop
from tests.support.waiting import async_until

from holdfast.heap.dead_letters import DeadLetterFilter, DeadLetterProgress, named_letters
from holdfast.heap.message_id import message_id, parse_message_id
from holdfast.heap.model import NewMessage, PeekedMessage
from holdfast.heap.partition import HeapPartition
from holdfast.heap.service import HeapService
from holdfast.heap.settings import HeapSettings
from holdfast.log.errors import NotLeaderError
from holdfast.vocabulary.errors import OutcomeUnknownError

pytestmark = pytest.mark.slow

Change = Callable[[HeapService], Coroutine[Any, Any, tuple[int, int, int]]]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[HeapWorld]:
    made = HeapWorld(tmp_path)
    yield made
    await made.end()


async def dead(world: HeapWorld, count: int) -> HeapService:
    """A heap with so many dead letters."""
    node = await world.node()
    heaps = await world.heap(node)
    messages = [NewMessage(payload=b"%d" % at) for at in range(count)]
    for each in await heaps.enqueue_batch("jobs", messages, partition=0):
        await heaps.move_to_dead_letters("jobs", each.message_id)
    await async_until(lambda: len(world.view(node, "jobs.dlq").state.ready) == count)
    return heaps


@pytest.mark.parametrize(
    "change",
    [
        lambda heaps: heaps.dead_letters.replay("jobs"),
        lambda heaps: heaps.dead_letters.delete("jobs", DeadLetterFilter()),
    ],
    ids=["replay", "delete"],
)
async def test_what_was_leased_meanwhile_stays_with_its_consumer(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    heaps, find = await dead(world, 5), HeapPartition.find_first
    leased: list[bytes] = []

    async def found(view: HeapPartition, offsets: Sequence[int], bytes_max: int) -> tuple[list[PeekedMessage], int]:
        result = await find(view, offsets, bytes_max)
        if not leased:
            leased.extend(each.lease_token for each in await heaps.pop("jobs.dlq", consumer="c", max_messages=3))
        return result

    monkeypatch.setattr(HeapPartition, "find_first", found)
    matched, changed, _ = await change(heaps)
    assert (matched, changed, len(leased)) == (5, 2, 3)
    assert await heaps.ack("jobs.dlq", leased) == [None] * 3


async def test_to_look_for_some_among_many_lets_others_get_on(world: HeapWorld) -> None:
    heaps, turns = await dead(world, 450), 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)  # noqa: TID251 (it is a turn)
            turns += 1

    running = asyncio.ensure_future(others())
    try:
        for look in (
            lambda: heaps.dead_letters.list("jobs", DeadLetterFilter(reason_contains="not there")),
            lambda: heaps.dead_letters.replay("jobs", dry_run=True),
        ):
            turns = 0
            await look()
            assert turns >= 450 // 100
    finally:
        running.cancel()


async def test_letters_are_found_by_their_ids_and_oldest_first(world: HeapWorld) -> None:
    heaps = await dead(world, 250)
    letters = await heaps.dead_letters.list("jobs", limit=250)
    assert [each.payload for each in letters] == [b"%d" % at for at in range(250)]
    chosen = DeadLetterFilter(message_ids=frozenset([letters[240].message_id, letters[7].message_id, "no id"]))
    assert [each.payload for each in await heaps.dead_letters.list("jobs", chosen)] == [b"7", b"240"]
    first = await heaps.dead_letters.replay("jobs", DeadLetterFilter(limit=3))
    rest = DeadLetterFilter(from_offset=first.end_offset, before_offset=first.end_offset + 5)
    assert [each.payload for each in await heaps.dead_letters.list("jobs", rest)] == [b"%d" % at for at in range(3, 8)]


@pytest.mark.parametrize("action", ["replay", "delete"])
@pytest.mark.parametrize("rate_per_s", [None, 1_000_000.0], ids=["together", "at a rate"])
async def test_what_was_changed_before_a_failure_is_reported_and_the_rest_is_left(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch, action: str, rate_per_s: float | None
) -> None:
    heaps, method = await dead(world, 250), "cancel" if action == "delete" else "move"
    done, change = 0, getattr(HeapPartition, method)

    async def few(view: HeapPartition, *args: Any, **more: Any) -> Any:
        nonlocal done
        if view.rules.topic == "jobs.dlq" and args[0]:
            if done == 1:
                raise NotLeaderError("jobs.dlq", 0)
            done += 1
        return await change(view, *args, **more)

    letters, chosen = heaps.dead_letters, DeadLetterFilter(limit=200)

    def asked(chosen: DeadLetterFilter) -> Coroutine[Any, Any, DeadLetterProgress]:
        if action == "delete":
            return letters.delete("jobs", chosen)
        return letters.replay("jobs", chosen, rate_per_s=rate_per_s)

    first = await letters.list("jobs", limit=250)
    with monkeypatch.context() as patched:
        patched.setattr(HeapPartition, method, few)
        report = await asked(chosen)
        with pytest.raises(NotLeaderError):
            await asked(chosen)
    count = 1 if rate_per_s and action == "replay" else 100
    assert report[:2] == (count, count)
    rest = await letters.list("jobs", DeadLetterFilter(from_offset=report.end_offset), limit=250)
    assert [each.message_id for each in rest] == [each.message_id for each in first[count:]]
    chosen = DeadLetterFilter(limit=200 - count, from_offset=report.end_offset)
    assert (await asked(chosen))[:2] == (200 - count, 200 - count)


async def test_a_failure_of_unknown_outcome_says_what_was_changed_before(
    world: HeapWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    heaps, done, cancel = await dead(world, 150), 0, HeapPartition.cancel

    async def lost(view: HeapPartition, *args: Any, **more: Any) -> Any:
        nonlocal done
        done += 1
        found = await cancel(view, *args, **more)
        if done == 2:
            raise OutcomeUnknownError("operation", "leadership was lost")
        return found

    monkeypatch.setattr(HeapPartition, "cancel", lost)
    with pytest.raises(OutcomeUnknownError, match=r"after 100 were changed.*leadership was lost"):
        await heaps.dead_letters.delete("jobs", DeadLetterFilter())


async def test_what_is_withdrawn_leaves_the_memory_though_its_caller_has_gone(world: HeapWorld) -> None:
    node = await world.node(heaps=HeapSettings(payload_cache_bytes_max=0))
    heaps = await world.heap(node)
    for first in range(0, 300, 20):
        messages = [NewMessage(payload=b"x", priority=at) for at in range(first, first + 20)]
        await heaps.enqueue_batch("jobs", messages)
    view = world.view(node)
    await heaps.ack("jobs", [each.lease_token for each in await pop(heaps, 40)])
    ahead = view._reader.ahead
    await async_until(lambda: len(ahead) > 0)
    for offset in [*view.state.ready.from_offset(0)]:
        cancelling = asyncio.ensure_future(view.cancel([offset]))
        await asyncio.sleep(0)  # noqa: TID251 (it begins)
        cancelling.cancel()
        await asyncio.gather(cancelling, return_exceptions=True)
    await view.durable()
    await async_until(lambda: (len(view.state), len(ahead), ahead._budget.bytes) == (0, 0, 0), within_s=5)


@pytest.mark.parametrize("count", [1, 1_200], ids=["once", "often"])
async def test_ids_of_one_offset_with_other_times_name_no_letter_twice(world: HeapWorld, count: int) -> None:
    heaps = await dead(world, 5)
    letters = await heaps.dead_letters.list("jobs")
    topic_id = (await heaps.heap("jobs.dlq")).id
    places = [parse_message_id(bytes.fromhex(topic_id), each.message_id) for each in letters]
    ids = [each.message_id for each in letters]
    for place in places:
        ids += [message_id(bytes.fromhex(topic_id), 0, place.offset, place.enqueued_ms - at - 1) for at in range(count)]
    named = (await named_letters(topic_id, ids, heaps.turns))[0]
    at, end, asked = 0, places[-1].offset + 1, list[str]()
    for _ in range(20):
        some, before = named.some(at, end, 100)
        asked += [each for each in some if parse_message_id(bytes.fromhex(topic_id), each).offset < before]
        at = before
    assert sorted(asked) == sorted(ids)
    assert (await heaps.dead_letters.replay("jobs", DeadLetterFilter(message_ids=frozenset(ids))))[:2] == (5, 5)
