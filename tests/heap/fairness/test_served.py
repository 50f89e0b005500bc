"""Fairness and rates of heaps on real agents: as settings, across restarts, to the dead letters and back, over partitions."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.cluster import Node
from tests.support.heaps import HeapWorld, payloads, pop
from tests.support.waiting import async_until

from holdfast.heap.canonical_state import encode_state
from holdfast.heap.errors import MessageNotFoundError
from holdfast.heap.model import NewMessage, PoppedMessage
from holdfast.heap.service import HeapService
from holdfast.vocabulary.errors import InvalidError

pytestmark = pytest.mark.slow


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[HeapWorld]:
    made = HeapWorld(tmp_path)
    made.cluster.streams = True
    yield made
    await made.end()


async def give(heaps: HeapService, *keys: str | None, priority: int = 0, delay_ms: int = 0) -> list[str]:
    made = [
        NewMessage(payload=(key or "").encode(), priority=priority, fairness_key=key, delay_ms=delay_ms) for key in keys
    ]
    return [(await heaps.enqueue("jobs", each)).message_id for each in made]


async def now(heaps: HeapService, count: int = 9) -> list[PoppedMessage]:
    """What may go at once."""
    return await heaps.pop("jobs", consumer="c", max_messages=count)


async def test_keys_take_turns_by_weight_and_priorities_win(world: HeapWorld) -> None:
    heaps = await world.heap(await world.node(), fairness=True, fairness_weights="gold=2")
    await give(heaps, *["free"] * 6, *["gold"] * 6)
    await give(heaps, "late", priority=-1)
    assert [each.payload for each in await heaps.peek("jobs", limit=1)] == [b"late"]
    popped = await now(heaps, 7)
    assert payloads(popped)[0] == b"late"
    assert Counter(payloads(popped[1:])) == {b"gold": 4, b"free": 2}
    assert {(each.fairness_key, each.limited) for each in popped} == {("late", False), ("gold", False), ("free", False)}


async def test_a_limit_of_leases_per_key_holds_through_acks_cancels_settings_and_a_restart(world: HeapWorld) -> None:
    node = await world.node()
    heaps = await world.heap(node, fairness=True, key_leases_max=1)
    await give(heaps, "a", "a", "a", "b")
    first = await now(heaps)
    assert payloads(first) == [b"a", b"b"]
    assert all(each.limited for each in first)
    assert await now(heaps) == []
    (stats,) = await heaps.stats("jobs")
    assert (stats.ready, stats.keys, stats.keys_at_limit, stats.keys_at_rate) == (2, 2, 1, 0)
    waiting = asyncio.create_task(pop(heaps))
    await heaps.ack("jobs", [first[0].lease_token])
    (second,) = await waiting
    before = encode_state(world.view(node).state)
    await node.drop()
    again = await world.node()
    await world.served(again)
    heaps = again.agent.heaps
    assert encode_state(world.view(again).state) == before
    assert await now(heaps) == [], "who has what leased is in the log"
    await heaps.cancel("jobs", second.message_id)
    assert payloads(await now(heaps)) == [b"a"]
    await give(heaps, "b")
    await heaps.administration.update("jobs", {"key_leases_max": 2})
    assert payloads(await pop(heaps)) == [b"b"]


async def test_a_rate_is_kept_and_what_it_holds_back_goes_when_its_time_has_come(world: HeapWorld) -> None:
    node = await world.node()
    heaps = await world.heap(node, fairness=True, key_rate_per_s=20, rate_burst=2)
    await give(heaps, *["a"] * 5)
    found = await now(heaps)
    while len(found) < 5:
        found += await pop(heaps, 9)
    state = world.view(node).state
    granted_ms = sorted(lease.granted_ms for lease in state.leases.values())
    assert all(later - first >= (apart - 1) * 50 for apart in (2, 3, 4) for first, later in pairs(granted_ms, apart))


def pairs(times: list[int], apart: int) -> list[tuple[int, int]]:
    return list(zip(times, times[apart:], strict=False))


async def test_a_rate_of_the_heap_holds_after_a_restart_and_can_be_lifted(world: HeapWorld) -> None:
    node = await world.node()
    heaps = await world.heap(node, rate_per_s=0.001)
    await give(heaps, None, None, None)
    assert len(await now(heaps)) == 1
    assert (await heaps.stats("jobs"))[0].keys_at_rate == 1
    await node.drop()
    again = await world.node()
    await world.served(again)
    heaps = again.agent.heaps
    assert await now(heaps) == []
    await heaps.administration.update("jobs", {"rate_per_s": None})
    assert len(await pop(heaps, 9)) == 2
    assert world.view(again).state.fair is None, "without rules it is a plain heap again"


async def test_a_leader_whose_clock_is_behind_waits_for_one_burst_and_not_for_its_clock(world: HeapWorld) -> None:
    node = await world.node()
    heaps = await world.heap(node, rate_per_s=20, rate_burst=1)
    await give(heaps, None, None)
    assert len(await now(heaps, 1)) == 1
    await node.drop()
    world.clock.jumped_ms = -3_600_000
    again = await world.node()
    await world.served(again)
    assert len(await pop(again.agent.heaps)) == 1


async def test_a_key_travels_to_the_dead_letters_and_back(world: HeapWorld) -> None:
    node = await world.node()
    heaps = await world.heap(node, fairness=True, max_retries=0)
    await give(heaps, "a")
    (popped,) = await now(heaps)
    await heaps.nack("jobs", [popped.lease_token])
    await async_until(lambda: not world.view(node).state.outbox)
    assert [each.fairness_key for each in await heaps.dead_letters.list("jobs")] == ["a"]
    await heaps.dead_letters.replay("jobs")
    (back,) = await pop(heaps)
    assert back.fairness_key == "a"
    assert world.view(node).state.fair is not None
    with pytest.raises(MessageNotFoundError):
        await heaps.cancel("jobs", popped.message_id)


async def test_delays_reprioritised_messages_and_snapshots_keep_their_keys(world: HeapWorld) -> None:
    node = await world.node()
    heaps = await world.heap(node, fairness=True, key_leases_max=1)
    later, *_ = await give(heaps, "a", delay_ms=1)
    await give(heaps, "b", "b")
    (worse,) = await give(heaps, "a", priority=3)
    await async_until(lambda: world.view(node).state.next_ready_ms() is None)
    await heaps.reprioritise("jobs", worse, -5)
    await heaps.snapshot("jobs")
    before = encode_state(world.view(node).state)
    await node.drop()
    again = await world.node()
    await world.served(again)
    assert encode_state(world.view(again).state) == before
    popped = await now(again.agent.heaps)
    assert next(each.message_id for each in popped) == worse
    assert later not in [each.message_id for each in popped]
    assert payloads(popped) == [b"a", b"b"]


async def test_over_several_partitions_limits_hold_each_key_and_what_they_hold_back_is_handed_out(
    world: HeapWorld,
) -> None:
    heaps = await world.heap(await world.node(), partitions=3, fairness=True, key_leases_max=2)
    names = [f"key {number}" for number in range(8)]
    await give(heaps, *names * 5)
    done = 0
    while done < 40:
        popped = await pop(heaps, 50)
        assert max(Counter(payloads(popped)).values()) <= 2
        assert {(each.rank_bound, each.limited) for each in popped} == {(1, True)}
        await heaps.ack("jobs", [each.lease_token for each in popped])
        done += len(popped)


async def test_over_several_partitions_a_rate_lets_everything_through_in_time(world: HeapWorld) -> None:
    heaps = await world.heap(await world.node(), partitions=3, fairness=True, key_rate_per_s=50, rate_burst=1)
    await give(heaps, *["a", "b", "c", "d"] * 3)
    found: list[PoppedMessage] = []
    while len(found) < 12:
        found += await pop(heaps, 9)
    assert Counter(payloads(found)) == {b"a": 3, b"b": 3, b"c": 3, b"d": 3}


@pytest.mark.parametrize("key", ["", "\0", "k" * 256, "\ud800"])
async def test_a_key_that_cannot_be_is_refused(world: HeapWorld, key: str) -> None:
    heaps = await world.heap(await world.node(), fairness=True)
    with pytest.raises(InvalidError, match="fairness_key"):
        await give_one(heaps, key)


async def give_one(heaps: HeapService, key: str) -> None:
    await heaps.enqueue("jobs", NewMessage(payload=b"", fairness_key=key))


async def test_without_fairness_a_key_is_kept_and_does_not_count(world: HeapWorld) -> None:
    node: Node = await world.node()
    heaps = await world.heap(node)
    await give(heaps, "a", "a", "b")
    assert [each.fairness_key for each in await now(heaps)] == ["a", "a", "b"]
    assert world.view(node).state.fair is None
