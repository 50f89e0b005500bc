"""Heaps as gateways use them, on a real agent: WAL, store, log."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.failpoints import fail_at
from tests.support.heaps import HeapWorld, enqueue, payloads, pop
from tests.support.waiting import async_until

from holdfast.heap.canonical_state import encode_state
from holdfast.heap.dead_letters import DeadLetterFilter, DeadLetters
from holdfast.heap.errors import LeaseLostError, MessageNotFoundError, NotAHeapError, ResourceExhaustedError
from holdfast.heap.lease_token import parse_token
from holdfast.heap.model import NewMessage
from holdfast.heap.partition import HeapPartition
from holdfast.heap.payloads import MessageReader
from holdfast.heap.records import ProducerSequence
from holdfast.heap.settings import HeapSettings
from holdfast.heap.spine.messages import SpineHello
from holdfast.log.batches import Record, encode
from holdfast.log.errors import HeapTopicError, NotLeaderError
from holdfast.log.reader import FetchedBatches
from holdfast.log.topics import PartitionCountError, UnknownTopicError
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import InvalidError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.settings import MIB
from holdfast.vocabulary.tasks import LoopTurns

pytestmark = pytest.mark.slow


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[HeapWorld]:
    made = HeapWorld(tmp_path)
    yield made
    await made.end()


@pytest.mark.parametrize(("mode", "order"), [("min", [-5, 1, 1, 3, 9]), ("max", [9, 3, 1, 1, -5])])
async def test_the_best_comes_first_and_an_ack_is_the_end(world: HeapWorld, mode: str, order: list[int]) -> None:
    heaps = await world.heap(await world.node(), mode=mode)
    ids = await enqueue(heaps, 3, 1, 9, -5, 1)
    assert len(set(ids)) == 5
    assert [each.priority for each in await heaps.peek("jobs")] == order
    popped = await pop(heaps, 10)
    assert [each.priority for each in popped] == order
    assert sorted(each.message_id for each in popped) == sorted(ids)
    assert {each.attempts for each in popped} == {0}
    assert await heaps.ack("jobs", [each.lease_token for each in popped]) == [None] * 5
    (stats,) = await heaps.stats("jobs")
    assert (stats.ready, stats.inflight, stats.enqueued, stats.acked) == (0, 0, 5, 5)


@pytest.mark.parametrize("how", ["ack", "nack", "extend", "cancel", "purge"])
async def test_nobody_is_told_that_a_message_is_gone_before_that_is_durable(world: HeapWorld, how: str) -> None:
    """Whoever asks again, because an answer was late, takes it for done; and it may come back, if its leader dies now."""
    node = await world.node()
    heaps = await world.heap(node)
    (message,) = await enqueue(heaps, 1)
    (popped,) = await pop(heaps)
    token = popped.lease_token
    node.disk.gate = threading.Event()
    questions: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
        "ack": lambda: heaps.ack("jobs", [token]),
        "nack": lambda: heaps.nack("jobs", [token]),
        "extend": lambda: heaps.extend("jobs", [token], 1_000),
        "cancel": lambda: heaps.cancel("jobs", message),
        "purge": lambda: heaps.purge("jobs"),
    }
    try:
        first = asyncio.ensure_future(heaps.ack("jobs", [token]))
        await async_until(lambda: world.view(node).state.counters.acked == 1)
        again = asyncio.ensure_future(questions[how]())
        done, _ = await asyncio.wait({first, again}, timeout=0.2)
        assert not done
    finally:
        node.disk.gate.set()
    assert await first == [None]
    with suppress(MessageNotFoundError):  # a cancel
        await again


async def test_a_pop_waits_for_the_next_message_and_pops_are_served_in_their_order(world: HeapWorld) -> None:
    node = await world.node()
    heaps = await world.heap(node)
    assert await heaps.pop("jobs", consumer="c") == []
    assert await heaps.pop("jobs", consumer="c", wait_ms=20) == []
    view = world.view(node)
    first = asyncio.create_task(pop(heaps))
    await async_until(lambda: len(view._pops) == 1)
    second = asyncio.create_task(pop(heaps))
    await async_until(lambda: len(view._pops) == 2)
    await heaps.enqueue_batch("jobs", [NewMessage(payload=b"a", priority=1), NewMessage(payload=b"b", priority=2)])
    assert payloads(await first) == [b"a"]
    assert payloads(await second) == [b"b"]


async def test_a_pop_that_is_cancelled_keeps_no_message(world: HeapWorld) -> None:
    node = await world.node()
    heaps = await world.heap(node)
    view = world.view(node)
    waiting = asyncio.create_task(pop(heaps))
    await async_until(lambda: len(view._pops) == 1)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert len(view._pops) == 0
    await enqueue(heaps, 1)

    def cancel(name: str) -> None:
        if name == "heap.durable":  # before the answer
            granted.cancel()

    with failpoints.installed(cancel):
        granted = asyncio.create_task(pop(heaps))
        await asyncio.wait({granted})
    assert granted.cancelled()
    (again,) = await pop(heaps)
    assert again.attempts == 0


async def test_stale_tokens_are_refused(world: HeapWorld) -> None:
    heaps = await world.heap(await world.node(), backoff_base_ms=0)
    await enqueue(heaps, 1)
    (first,) = await pop(heaps)
    assert await heaps.nack("jobs", [first.lease_token]) == [None]
    (second,) = await pop(heaps)
    assert second.attempts == 1
    for call in (heaps.ack, heaps.nack, heaps.release):
        (refused,) = await call("jobs", [first.lease_token])
        assert isinstance(refused, LeaseLostError)
    assert isinstance((await heaps.extend("jobs", [first.lease_token], 1_000))[0], LeaseLostError)
    assert await heaps.ack("jobs", [second.lease_token, second.lease_token]) == [None, None]
    (refused,) = await heaps.ack("jobs", [second.lease_token])
    assert isinstance(refused, LeaseLostError)
    with pytest.raises(InvalidError):
        await heaps.ack("jobs", [b"no token"])


async def test_a_lease_that_runs_out_is_another_attempt_and_a_release_is_not(world: HeapWorld) -> None:
    heaps = await world.heap(await world.node(), backoff_base_ms=0)
    await enqueue(heaps, 1)
    (first,) = await pop(heaps)
    assert await heaps.release("jobs", [first.lease_token]) == [None]
    (second,) = await pop(heaps, visibility_timeout_ms=100)
    assert second.attempts == 0
    (third,) = await pop(heaps)
    assert third.attempts == 1
    assert third.message_id == first.message_id
    assert (await heaps.stats("jobs"))[0].expired == 1


async def test_an_extension_moves_the_deadline_and_is_capped(world: HeapWorld) -> None:
    heaps = await world.heap(await world.node(), lease_ms_max=60_000)
    await enqueue(heaps, 1)
    (popped,) = await pop(heaps)
    (deadline_ms,) = await heaps.extend("jobs", [popped.lease_token], 50_000)
    assert isinstance(deadline_ms, int)
    assert deadline_ms >= popped.lease_deadline_ms + 20_000
    (capped_ms,) = await heaps.extend("jobs", [popped.lease_token], 60_000)
    assert isinstance(capped_ms, int)
    await async_until(lambda: world.clock.now_ms() > capped_ms - 60_000 + 5)
    assert await heaps.extend("jobs", [popped.lease_token], 60_000) == [capped_ms]
    with pytest.raises(InvalidError):
        await heaps.extend("jobs", [popped.lease_token], 60_001)
    assert await heaps.ack("jobs", [popped.lease_token]) == [None]


async def test_a_delayed_message_comes_when_its_time_has_come(world: HeapWorld) -> None:
    heaps = await world.heap(await world.node())
    await heaps.enqueue("jobs", NewMessage(payload=b"tomorrow", delay_ms=86_400_000))
    await heaps.enqueue("jobs", NewMessage(payload=b"soon", priority=5, delay_ms=50))
    (popped,) = await pop(heaps, 5)
    assert popped.payload == b"soon"
    assert world.clock.now_ms() >= popped.enqueued_ms + 50
    assert (await heaps.stats("jobs"))[0].delayed == 1


async def test_limits_of_what_is_leased(world: HeapWorld) -> None:
    heaps = await world.heap(await world.node(), inflight_max=3, leases_per_consumer_max=2)
    await enqueue(heaps, 1, 2, 3, 4)
    mine = await heaps.pop("jobs", consumer="a", max_messages=10)
    assert len(mine) == 2
    with pytest.raises(ResourceExhaustedError):
        await heaps.pop("jobs", consumer="a")
    assert len(await heaps.pop("jobs", consumer="b", max_messages=10)) == 1
    assert await heaps.pop("jobs", consumer="c") == []  # the heap's own limit: a pop waits
    waiting = asyncio.create_task(pop(heaps))
    await heaps.ack("jobs", [mine[0].lease_token])
    assert payloads(await waiting) == [b"4"]


async def test_the_same_enqueue_again_is_the_same_message(world: HeapWorld) -> None:
    node = await world.node()
    heaps = await world.heap(node)
    key = ProducerSequence("web", 1, 7)
    message = NewMessage(payload=b"once", producer=key, partition_key="k", headers=(("trace", b"1"),))
    first, second = await asyncio.gather(heaps.enqueue("jobs", message), heaps.enqueue("jobs", message))
    assert first.message_id == second.message_id
    assert [first.duplicate, second.duplicate] == [False, True]
    batch = await heaps.enqueue_batch(
        "jobs", [message, NewMessage(payload=b"x", producer=ProducerSequence("web", 1, 8))] * 2
    )
    assert [each.duplicate for each in batch] == [True, False, True, True]
    popped = await pop(heaps, 9)
    assert len(popped) == 2
    assert (popped[0].producer, popped[0].partition_key, popped[0].headers) == (key, "k", (("trace", b"1"),))


async def test_a_restart_keeps_leases_delays_and_duplicates(world: HeapWorld) -> None:
    node = await world.node()
    heaps = await world.heap(node)
    key = ProducerSequence("web", 1, 7)
    made = await heaps.enqueue("jobs", NewMessage(payload=b"a", priority=1, producer=key))
    await enqueue(heaps, 2, 3)
    await heaps.enqueue("jobs", NewMessage(payload=b"later", delay_ms=3_600_000))
    popped = await pop(heaps, 2)
    await heaps.ack("jobs", [popped[1].lease_token])
    before = {each.number: encode_state(each.state) for each in node.agent.local_heaps.open.values() if len(each.state)}
    await node.drop()  # nothing is published: it is all in the WAL
    again = await world.node()
    await world.served(again)
    after = {each.number: encode_state(each.state) for each in again.agent.local_heaps.open.values() if len(each.state)}
    assert after == before
    heaps = again.agent.heaps
    assert await heaps.enqueue("jobs", NewMessage(payload=b"a", producer=key)) == msgspec.structs.replace(
        made, duplicate=True
    )
    assert payloads(await heaps.pop("jobs", consumer="d", max_messages=9)) == [b"3"]
    assert (await heaps.stats("jobs"))[0].delayed == 1
    assert await heaps.ack("jobs", [popped[0].lease_token]) == [None]  # the token is of the leader before
    (refused,) = await heaps.ack("jobs", [popped[1].lease_token])
    assert isinstance(refused, LeaseLostError)


async def test_published_messages_are_read_from_object_storage(world: HeapWorld) -> None:
    node = await world.node()
    heaps = await world.heap(node)
    await enqueue(heaps, *range(30))
    await node.stop()
    bob = await world.node("bob")  # who has none of it in its WAL
    await world.served(bob)
    popped = await pop(bob.agent.heaps, 30)
    assert payloads(popped) == [str(each).encode() for each in range(30)]


async def test_a_wall_clock_that_jumps_ends_no_lease_and_no_delay(world: HeapWorld) -> None:
    heaps = await world.heap(await world.node())
    await enqueue(heaps, 1)
    await heaps.enqueue("jobs", NewMessage(payload=b"later", delay_ms=3_600_000))
    (popped,) = await pop(heaps)
    for jump_ms in (30 * 86_400_000, -60 * 86_400_000):
        world.clock.jumped_ms = jump_ms
        await enqueue(heaps, 5)  # the timers were looked at since
        (other,) = await pop(heaps)
        assert other.payload == b"5"
        await heaps.ack("jobs", [other.lease_token])
        (stats,) = await heaps.stats("jobs")
        assert (stats.inflight, stats.delayed, stats.expired) == (1, 1, 0)
    assert await heaps.ack("jobs", [popped.lease_token]) == [None]


async def test_a_leadership_has_one_clock_also_if_its_view_fails_and_is_read_again(world: HeapWorld) -> None:
    node = await world.node(heaps=HeapSettings(reopen_ms=1))
    heaps = await world.heap(node)
    await enqueue(heaps, 1)
    (popped,) = await pop(heaps)
    view = world.view(node)
    world.clock.jumped_ms = 30 * 86_400_000
    view.end(UnavailableError("log", "for the test"))
    await async_until(lambda: heaps.serves("jobs", 0) and world.view(node) is not view)
    await enqueue(heaps, 5)  # the timers were looked at since
    assert await heaps.ack("jobs", [popped.lease_token]) == [None]


async def test_what_fails_too_often_is_a_dead_letter_and_is_replayed(world: HeapWorld) -> None:
    node = await world.node()
    heaps = await world.heap(node, max_retries=1, backoff_base_ms=0)
    await enqueue(heaps, 4)
    for _ in range(2):
        (popped,) = await pop(heaps)
        await heaps.nack("jobs", [popped.lease_token], reason="boom")
    await async_until(lambda: not any(each.state.outbox for each in node.agent.local_heaps.open.values()))
    assert await heaps.pop("jobs", consumer="c") == []
    (letter,) = await heaps.dead_letters.list("jobs")
    assert letter.origin is not None
    assert (letter.payload, letter.priority, letter.origin.reason, letter.origin.attempts) == (b"4", 4, "boom", 2)
    none = DeadLetterFilter(reason_contains="other")
    assert (await heaps.dead_letters.replay("jobs", none))[:2] == (0, 0)
    assert (await heaps.dead_letters.replay("jobs", dry_run=True))[:2] == (1, 0)
    assert (await heaps.dead_letters.replay("jobs", DeadLetterFilter(attempts_min=2), rate_per_s=1_000))[:2] == (1, 1)
    (again,) = await pop(heaps)
    assert (again.payload, again.attempts) == (b"4", 0)
    assert await heaps.dead_letters.list("jobs") == []
    await heaps.move_to_dead_letters("jobs", again.message_id, "by hand")
    (refused,) = await heaps.ack("jobs", [again.lease_token])
    assert isinstance(refused, LeaseLostError)
    await async_until(lambda: not any(each.state.outbox for each in node.agent.local_heaps.open.values()))
    assert (await heaps.dead_letters.delete("jobs", DeadLetterFilter(), dry_run=True))[:2] == (1, 0)
    assert (await heaps.dead_letters.delete("jobs", DeadLetterFilter(reason_contains="hand")))[:2] == (1, 1)
    assert await heaps.dead_letters.list("jobs") == []


@pytest.mark.parametrize("step", ["heap.move-decided", "heap.move-delivered"])
async def test_a_dead_letter_arrives_once_wherever_its_way_is_cut(world: HeapWorld, step: str) -> None:
    node = await world.node(heaps=HeapSettings(reopen_ms=1, move_retry_ms=1))
    heaps = await world.heap(node, max_retries=0)
    await enqueue(heaps, 4)
    (popped,) = await pop(heaps)
    first = world.view(node)
    with failpoints.installed(fail_at(step)):
        await heaps.nack("jobs", [popped.lease_token])
        await async_until(lambda: first.ended is not None)
    await world.served(node)
    assert world.view(node) is not first  # it was read from the log again
    await async_until(lambda: not world.view(node).state.outbox)
    assert [each.payload for each in await heaps.dead_letters.list("jobs")] == [b"4"]
    (letters,) = await heaps.stats("jobs.dlq")
    assert letters.enqueued == 1
    assert (letters.duplicates > 0) == (step == "heap.move-delivered")
    assert await heaps.pop("jobs", consumer="c") == []


async def test_cancel_reprioritise_and_purge(world: HeapWorld) -> None:
    heaps = await world.heap(await world.node())
    ids = await enqueue(heaps, 1, 2, 3, 4)
    await heaps.cancel("jobs", ids[1])
    with pytest.raises(MessageNotFoundError):
        await heaps.cancel("jobs", ids[1])
    await heaps.reprioritise("jobs", ids[3], -1)
    assert [each.priority for each in await heaps.peek("jobs")] == [-1, 1, 3]
    (popped,) = await pop(heaps)
    assert (popped.payload, popped.priority) == (b"4", -1)
    with pytest.raises(InvalidError):
        await heaps.cancel("jobs", "01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert await heaps.purge("jobs") == 3
    (refused,) = await heaps.ack("jobs", [popped.lease_token])
    assert isinstance(refused, LeaseLostError)
    assert await heaps.pop("jobs", consumer="c") == []


async def test_what_a_heap_refuses(world: HeapWorld) -> None:
    node = await world.node()
    heaps = await world.heap(node, payload_bytes_max=10)
    log = node.agent.service
    with pytest.raises(HeapTopicError):
        await log.produce("jobs", 0, encode([Record(0, 1, None, b"x")]))
    with pytest.raises(HeapTopicError):
        await log.delete_records("jobs", 0, -1)
    for settings in ({"cleanup_policy": "compact"}, {"retention_ms": 1}, {"unclean_takeover": True}):
        with pytest.raises(HeapTopicError):
            await log.topics.alter("jobs", settings)
    with pytest.raises(PartitionCountError):
        await log.topics.add_partitions("jobs", 1)
    for message in (
        NewMessage(payload=b"x" * 11),
        NewMessage(payload=b"", priority=1 << 63),
        NewMessage(payload=b"", delay_ms=-1),
        NewMessage(payload=b"", producer=ProducerSequence("~move", 0, 0)),
        NewMessage(payload=b"", producer=ProducerSequence("p", -1, 0)),
    ):
        with pytest.raises(InvalidError):
            await heaps.enqueue("jobs", message)
    await node.agent.service.create_topic("plain", 1)
    with pytest.raises(NotAHeapError):
        await heaps.enqueue("plain", NewMessage(payload=b""))
    with pytest.raises(UnknownTopicError):
        await heaps.pop("nowhere", consumer="c")
    with pytest.raises(InvalidError):
        await heaps.pop("jobs", consumer="")
    assert (await heaps.stats("jobs"))[0].enqueued == 0


async def test_settings_are_checked_changed_and_applied(world: HeapWorld) -> None:
    node = await world.node()
    heaps = await world.heap(node, mode="max", max_retries=5)
    administration = heaps.administration
    described = await administration.describe("jobs")
    assert (described.config.mode, described.config.max_retries, described.dead_letters) == ("max", 5, "jobs.dlq")
    changed = await administration.update("jobs", {"inflight_max": 1, "max_retries": None})
    assert (changed.config.inflight_max, changed.config.max_retries, changed.config.mode) == (1, 3, "max")
    await enqueue(heaps, 1, 2)
    await async_until(lambda: any(each.rules.inflight_max == 1 for each in node.agent.local_heaps.open.values()))
    assert len(await pop(heaps, 5)) == 1
    for wrong in ({"mode": "min"}, {"nonsense": 1}, {"max_retries": -1}, {"top_k_bound": 0}):
        with pytest.raises(InvalidError):
            await administration.update("jobs", wrong)
    with pytest.raises(InvalidError):
        await administration.create("other", 1, {"mode": "median"})
    assert [each.name for each in await administration.list()] == ["jobs", "jobs.dlq"]
    await administration.delete("jobs")
    assert await administration.list() == []
    await async_until(lambda: not node.agent.local_heaps.open)


async def test_messages_go_to_the_partition_of_their_key_and_partitions_are_popped_by_number(world: HeapWorld) -> None:
    heaps = await world.heap(await world.node(), partitions=3)
    made = [await heaps.enqueue("jobs", NewMessage(payload=b"", partition_key=f"k{at % 5}")) for at in range(20)]
    homes = {f"k{at % 5}": each.partition for at, each in enumerate(made)}
    assert all(homes[f"k{at % 5}"] == each.partition for at, each in enumerate(made))
    spread = {(await heaps.enqueue("jobs", NewMessage(payload=b""))).partition for _ in range(6)}
    assert spread == {0, 1, 2}
    popped = [await heaps.pop("jobs", consumer="c", max_messages=50, partition=number) for number in range(3)]
    assert {each.rank_bound for messages in popped for each in messages} == {0}, (
        "nothing is said of the other partitions"
    )
    assert sum(map(len, popped)) == 26
    tokens = [each.lease_token for messages in popped for each in messages]
    assert await heaps.ack("jobs", tokens) == [None] * 26


async def test_a_leader_that_lost_its_session_answers_nobody(world: HeapWorld) -> None:
    node = await world.node()
    heaps = await world.heap(node)
    await enqueue(heaps, 1)
    waiting = asyncio.create_task(heaps.pop("jobs.dlq", consumer="c", wait_ms=60_000))
    (popped,) = await pop(heaps)
    await node.lose_session()
    with pytest.raises(NotLeaderError):
        await heaps.ack("jobs", [popped.lease_token])
    node.store.reachable = True
    await world.served(node)
    assert await heaps.ack("jobs", [popped.lease_token]) == [None]  # the lease is in the log
    waiting.cancel()
    await asyncio.wait({waiting})


async def test_a_takeover_by_another_agent_keeps_every_lease(world: HeapWorld) -> None:
    ann = await world.node()
    heaps = await world.heap(ann, durability="object")  # so that nothing of it is in ann's WAL alone
    await enqueue(heaps, 1, 2, 3)
    (held,) = await pop(heaps)
    bob = await world.node("bob")
    await ann.drop()
    await world.served(bob)
    assert payloads(await pop(bob.agent.heaps, 9)) == [b"2", b"3"]
    (refused,) = await bob.agent.heaps.ack("jobs", [_other_grant(held.lease_token)])
    assert isinstance(refused, LeaseLostError)
    assert await bob.agent.heaps.ack("jobs", [held.lease_token]) == [None]


def _other_grant(token: bytes) -> bytes:
    """A token of the same message and leader, by another GRANT."""
    parsed = parse_token(token)
    return parsed._replace(granted_at=parsed.granted_at + 1).encode()


async def test_texts_without_utf8_are_refused_and_break_nothing(world: HeapWorld) -> None:
    heaps = await world.heap(await world.node())
    half = "\ud800"
    for message in (
        NewMessage(payload=b"", partition_key=half),
        NewMessage(payload=b"", headers=((half, b""),)),
        NewMessage(payload=b"", producer=ProducerSequence(half, 0, 0)),
    ):
        with pytest.raises(InvalidError):
            await heaps.enqueue("jobs", message)
    with pytest.raises(InvalidError):
        await heaps.pop("jobs", consumer=half)
    await enqueue(heaps, 1)
    (popped,) = await pop(heaps)
    with pytest.raises(InvalidError):
        await heaps.nack("jobs", [popped.lease_token], reason=half)
    assert await heaps.ack("jobs", [popped.lease_token]) == [None]


async def test_a_pop_and_a_peek_answer_with_as_much_as_fits_and_the_rest_waits(world: HeapWorld) -> None:
    node = await world.node()
    heaps = await world.heap(node, payload_bytes_max=MIB)
    for at in range(50):
        await heaps.enqueue("jobs", NewMessage(payload=b"x" * MIB, priority=at))
    popped = await pop(heaps, 50)
    assert [each.priority for each in popped] == list(range(32))
    assert [each.priority for each in await heaps.peek("jobs", limit=50)] == list(range(32, 50))
    (stats,) = await heaps.stats("jobs")
    assert (stats.ready, stats.inflight, stats.released) == (18, 32, 18)
    assert [each.priority for each in await pop(heaps, 50)] == list(range(32, 50))


async def test_what_is_in_the_log_and_not_known_to_a_spine_has_an_unknown_outcome_when_leadership_ends(
    world: HeapWorld,
) -> None:
    """A `NotLeaderError` would be tried again elsewhere: the message would be there twice."""
    node = await world.node()
    heaps = await world.heap(node)
    view = world.view(node)
    await view.link().hello(SpineHello(spine_epoch=1, round=1, budget=0, fan_out=8, settled=0), lambda advert: None)
    held = asyncio.create_task(heaps.enqueue("jobs", NewMessage(payload=b"x")))
    await async_until(lambda: bool(view.link()._held) and view.log.high_watermark == view.log.next_offset)
    view.end(NotLeaderError("jobs", 0, reason="a test"))
    with pytest.raises(OutcomeUnknownError):
        await held


async def test_what_is_read_after_the_end_of_a_leadership_is_not_kept_for_another_one(world: HeapWorld) -> None:
    node = await world.node()
    heaps = await world.heap(node)
    await heaps.enqueue_batch("jobs", [NewMessage(payload=b"%d" % at) for at in range(3)])
    view = world.view(node)
    reader = view._reader
    reader._cache.drop_owner(reader._owner)
    reader._read_until = 0
    read = view.log.read

    async def ended(offset: int, *, bytes_max: int, wait_ms: float = 0) -> FetchedBatches:
        reader.close()
        return await read(offset, bytes_max=bytes_max, wait_ms=wait_ms)

    view.log.read = ended  # type: ignore[method-assign]
    await reader.read([0])
    assert not len(reader._cache)
    another = MessageReader(view.log, reader._cache, view.state, durable=view._journal.durable)
    assert another._owner != reader._owner


async def test_a_token_of_another_heap_is_refused(world: HeapWorld) -> None:
    node = await world.node()
    heaps = await world.heap(node)
    await world.heap(node, "others")
    await enqueue(heaps, 1)
    await enqueue(heaps, 1, topic="others")
    (mine,), (other,) = await pop(heaps), await pop(heaps, topic="others")
    assert parse_token(mine.lease_token)[:4] == parse_token(other.lease_token)[:4], "but for the heap they are the same"
    for call in (heaps.ack, heaps.nack, heaps.release):
        (refused,) = await call("jobs", [other.lease_token])
        assert isinstance(refused, LeaseLostError)
    assert await heaps.ack("jobs", [mine.lease_token]) == [None]


async def test_a_list_of_dead_letters_has_no_more_bytes_than_may_be_in_memory_together(world: HeapWorld) -> None:
    heaps = await world.heap(await world.node())
    made = [await heaps.enqueue("jobs", NewMessage(payload=b"x" * 10)) for _ in range(5)]
    for each in made:
        await heaps.move_to_dead_letters("jobs", each.message_id)
    await async_until(lambda: len(world.view(world.cluster.nodes[0], "jobs.dlq").state.ready) == 5)
    views = [world.view(world.cluster.nodes[0], "jobs.dlq")]

    async def partitions(topic: str, partition: int | None) -> list[HeapPartition]:
        return views

    for bytes_max, count in ((25, 2), (5, 1), (50, 5), (1_000, 5)):
        letters = DeadLetters(partitions, clock=world.clock, turns=LoopTurns(), bytes_max=bytes_max)
        assert len(await letters.list("jobs")) == count
        assert (await letters.replay("jobs", dry_run=True)).matched == 5
    found, seen = await views[0].find_first([10_000, *(offset for _, offset in views[0].state.ready)], 25)
    assert (len(found), seen) == (2, 3), "one that is gone, and two that are there"
