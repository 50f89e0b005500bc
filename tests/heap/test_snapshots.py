"""Snapshots and history in a cluster: recovery from a snapshot, fall-back, and messages that outlive their log."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.support.cluster import Node
from tests.support.heaps import HeapWorld, enqueue, payloads, pop, through_a_snapshot
from tests.support.waiting import async_until

from holdfast.heap.canonical_state import encode_state
from holdfast.heap.history import HistoryKeeper
from holdfast.heap.model import NewMessage
from holdfast.heap.partition_state import HeapState
from holdfast.heap.records import Copy, Enqueue, ProducerSequence
from holdfast.heap.replay import replay
from holdfast.heap.service import HeapService
from holdfast.heap.settings import HeapSettings
from holdfast.heap.snapshot_format import SnapshotSubject, decode_image, encode_image
from holdfast.heap.snapshots import SnapshotKeeper
from holdfast.heap.state_image import capture
from holdfast.log.partition_snapshots import SnapshotRecord
from holdfast.log.reader import FetchedBatches
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.errors import CorruptError, InvalidError, UnavailableError
from holdfast.vocabulary.random import SeededRandom
from holdfast.vocabulary.tasks import LoopTurns

QUICK = HeapSettings(copy_bytes_per_s=1 << 30, reopen_ms=20)


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[HeapWorld]:
    made = HeapWorld(tmp_path)
    yield made
    await made.end()


def history(node: Node, name: str = "jobs") -> HistoryKeeper:
    return next(each for which, each in node.agent.local_heaps.histories.items() if which.topic == name)


async def snapshot(heaps: HeapService, topic: str = "jobs") -> SnapshotRecord:
    (taken,) = await heaps.snapshot(topic)
    return taken


async def work(heaps: HeapService, count: int) -> None:
    """So many messages come and are done."""
    await heaps.enqueue_batch("jobs", [NewMessage(payload=b"done", priority=-1) for _ in range(count)])
    done = await heaps.pop("jobs", consumer="c", max_messages=count)
    assert payloads(done) == [b"done"] * count
    await heaps.ack("jobs", [each.lease_token for each in done])


async def trimmed(node: Node) -> int:
    """Snapshots, and then the history goes as far as it can; where the log starts."""
    heaps = node.agent.heaps
    await work(heaps, 40)
    await node.service.flush("jobs", 0)
    await work(heaps, 1)
    await snapshot(heaps)
    await work(heaps, 1)
    await snapshot(heaps)
    return await history(node).trim()


async def restarted(world: HeapWorld, node: Node) -> Node:
    await node.drop()
    again = await world.node(heaps=QUICK)
    await world.served(again)
    return again


async def test_a_snapshot_and_the_records_since_are_the_state(world: HeapWorld) -> None:
    node = await world.node(heaps=QUICK)
    heaps = await world.heap(node)
    assert (await heaps.stats("jobs"))[0].snapshot_age_ms == -1
    key = ProducerSequence("web", 1, 7)
    made = await heaps.enqueue("jobs", NewMessage(payload=b"a", priority=1, producer=key))
    await enqueue(heaps, 2, 3, 4)
    await heaps.enqueue("jobs", NewMessage(payload=b"later", delay_ms=3_600_000))
    popped = await pop(heaps, 2)
    await heaps.nack("jobs", [popped[1].lease_token], backoff_ms=3_600_000)
    taken = await snapshot(heaps)
    assert await snapshot(heaps) == taken  # nothing has happened since
    (stats,) = await heaps.stats("jobs")
    assert stats.snapshot_bytes == taken.size_bytes > 0
    assert stats.snapshot_age_ms >= 0
    await enqueue(heaps, 0)
    before = encode_state(world.view(node).state)
    again = await restarted(world, node)
    view = world.view(again)
    assert encode_state(view.state) == before
    assert view.snapshots is not None
    assert view.snapshots.newest == taken
    heaps = again.agent.heaps
    assert await heaps.enqueue("jobs", NewMessage(payload=b"a", producer=key)) == msgspec.structs.replace(
        made, duplicate=True
    )
    assert await heaps.ack("jobs", [popped[0].lease_token]) == [None]
    assert payloads(await pop(heaps, 9)) == [b"0", b"3", b"4"]


async def test_snapshots_are_taken_by_themselves(world: HeapWorld) -> None:
    node = await world.node(heaps=HeapSettings(snapshot_interval_ms=100, snapshot_records_min=3))
    heaps = await world.heap(node)
    await enqueue(heaps, 1, 2, 3)
    keeper = world.view(node).snapshots
    assert keeper is not None
    await async_until(lambda: keeper.newest is not None and keeper.newest.offset == 3)


async def test_what_a_successor_has_to_read_again_is_bounded(world: HeapWorld) -> None:
    node = await world.node(heaps=HeapSettings(snapshot_records_min=5, snapshot_records_max=20, snapshot_pause_ms=0))
    heaps = await world.heap(node)
    keeper = world.view(node).snapshots
    assert keeper is not None
    await enqueue(heaps, *range(19))
    await world.clock.sleep_ms(50)
    assert keeper.newest is None

    def covered() -> int:
        return 0 if keeper.newest is None else keeper.newest.offset

    for end in (39, 59, 79):  # minutes before the next one is due by the clock
        await enqueue(heaps, *range(20))
        await async_until(lambda: covered() > end - 20)  # noqa: B023


async def test_snapshots_that_fail_are_tried_less_and_less_often(world: HeapWorld) -> None:
    clock, tried = FakeClock(), list[int]()
    log = SimpleNamespace(next_offset=1_000_000, snapshots=SimpleNamespace(list=SimpleNamespace(snapshots=())))
    source: Any = SimpleNamespace(log=log, ended=None)
    keeper = SnapshotKeeper(source, HeapSettings(), turn=asyncio.Lock(), clock=clock, random=SeededRandom(1))

    async def fail() -> SnapshotRecord:
        tried.append(clock.boot_ms())
        raise UnavailableError("objects", "away")

    keeper.take = fail  # type: ignore[method-assign]
    source.log.partition_id = "jobs:0"
    running = asyncio.ensure_future(keeper.run())
    for _ in range(600):
        clock.advance_ms(1_000)
        await asyncio.sleep(0)  # noqa: TID251
        await asyncio.sleep(0)  # noqa: TID251
    running.cancel()
    assert 4 <= len(tried) <= 8
    assert tried[-1] - tried[-2] > 2 * (tried[1] - tried[0])


async def test_a_partition_that_cannot_be_durable_keeps_no_other_from_its_snapshot(world: HeapWorld) -> None:
    turn, stuck = asyncio.Lock(), asyncio.get_running_loop().create_future()

    async def durable() -> None:
        await stuck

    log = SimpleNamespace(next_offset=1, snapshots=SimpleNamespace(list=SimpleNamespace(snapshots=())))
    source: Any = SimpleNamespace(log=log, ended=None, durable=durable)
    keeper = SnapshotKeeper(source, HeapSettings(), turn=turn, clock=FakeClock(), random=SeededRandom(1))
    taking = asyncio.ensure_future(keeper.take())
    await asyncio.sleep(0)  # noqa: TID251
    assert not turn.locked()
    taking.cancel()


@pytest.mark.parametrize("between_reads", [False, True])
async def test_a_log_that_gets_shorter_while_it_is_read_is_read_again_later(
    world: HeapWorld, between_reads: bool
) -> None:
    node = await world.node()
    heaps = await world.heap(node)
    await enqueue(heaps, 1, 2, 3)
    real = world.view(node).log

    class Cut:
        partition_id, start_offset = real.partition_id, 0
        next_offset = real.next_offset + 5

        def cut(self) -> None:
            self.next_offset = real.next_offset

        async def read(self, offset: int, *, bytes_max: int, wait_ms: float = 0) -> FetchedBatches:
            assert offset < real.next_offset, "who waits for what is cut already waits for long"
            if between_reads:
                asyncio.get_running_loop().call_soon(self.cut)
            else:
                self.cut()
            return await real.read(offset, bytes_max=bytes_max)

    log: Any = Cut()
    with pytest.raises(UnavailableError, match="cut while it was read"):
        await replay(log, HeapState("min"), LoopTurns())


async def test_a_message_outlives_the_log_it_was_written_to(world: HeapWorld) -> None:
    node = await world.node(heaps=QUICK)
    heaps = await world.heap(node, retention_ms=0, max_retries=0)
    kept = await enqueue(heaps, 5, 6)
    start = await trimmed(node)
    assert start > 40
    assert (await heaps.stats("jobs"))[0].ready == 2
    again = await restarted(world, node)
    heaps = again.agent.heaps
    assert world.view(again).log.start_offset == start
    assert [each.message_id for each in await heaps.peek("jobs")] == kept
    first, second = await pop(heaps, 2)
    assert ([first.message_id, second.message_id], payloads([first, second])) == (kept, [b"5", b"6"])
    assert await trimmed(again) > start  # leased messages stay, too
    await heaps.nack("jobs", [first.lease_token])
    await async_until(lambda: not world.view(again).state.outbox)
    assert [each.payload for each in await heaps.dead_letters.list("jobs")] == [b"5"]
    await heaps.cancel("jobs", second.message_id)
    assert not world.view(again).state.copies


async def test_a_damaged_snapshot_is_passed_over_and_without_any_the_partition_is_not_served(world: HeapWorld) -> None:
    node = await world.node(heaps=QUICK)
    heaps = await world.heap(node, retention_ms=0)
    await enqueue(heaps, 5)
    assert await trimmed(node) > 0
    before = encode_state(world.view(node).state)
    listed = world.view(node).log.snapshots.list.snapshots
    objects = world.cluster.objects
    body = bytes(await objects.get(listed[1].object))  # type: ignore[arg-type]
    await objects.delete([listed[1].object])
    again = await restarted(world, node)
    assert encode_state(world.view(again).state) == before
    assert len(body) == listed[1].size_bytes
    await objects.delete([listed[0].object])
    await again.drop()
    last = await world.node(heaps=QUICK)
    failures = last.agent.local_heaps.failures
    await async_until(lambda: any("none of its 2 snapshots can be read" in each for each in failures.values()))


async def test_every_damaged_byte_of_a_snapshot_is_found() -> None:
    state = HeapState("max")
    for at in range(40):
        sequence = ProducerSequence("p", 0, at) if at % 3 else None
        state.apply(at, 1_000, Enqueue(at - 20, b"", 5_000 if at % 4 == 0 else 0, at % 2 - 1, sequence))
    state.apply(40, 1_000, Copy(3, 900, Enqueue(-17, b"")))
    assert encode_state(through_a_snapshot(state)) == encode_state(state)
    subject = SnapshotSubject("t", 0)
    data = b"".join(encode_image(capture(state), subject))
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x40
        with pytest.raises(CorruptError):
            decode_image(damaged, subject)
    for cut in range(0, len(data), 7):
        with pytest.raises(CorruptError):
            decode_image(data[:cut], subject)
    with pytest.raises(CorruptError):
        decode_image(data, SnapshotSubject("t", 1))


async def test_history_stays_while_more_than_half_of_it_waits(world: HeapWorld) -> None:
    node = await world.node(heaps=QUICK)
    heaps = await world.heap(node, retention_ms=0)
    await heaps.enqueue_batch("jobs", [NewMessage(payload=b"x", priority=7) for _ in range(200)])
    assert await trimmed(node) == 0
    assert not world.view(node).state.copies


async def test_history_stays_as_long_as_the_heap_says(world: HeapWorld) -> None:
    node = await world.node(heaps=QUICK)
    heaps = await world.heap(node)
    await heaps.administration.update("jobs", {"retention_ms": 0})
    await work(heaps, 40)
    await node.service.flush("jobs", 0)
    await snapshot(heaps)
    assert await history(node).trim() == 0  # there is no second snapshot, if this one is damaged
    await heaps.administration.update("jobs", {"retention_ms": None})
    await async_until(lambda: world.view(node).rules.config.retention_ms > 0)
    assert await trimmed(node) == 0  # a week
    await heaps.administration.update("jobs", {"retention_ms": -1, "retention_bytes": 0})
    await async_until(lambda: world.view(node).rules.config.retention_bytes == 0)
    assert await history(node).trim() > 0
    with pytest.raises(InvalidError):
        await heaps.administration.update("jobs", {"retention_ms": -2})


async def test_dead_letters_go_after_their_time(world: HeapWorld) -> None:
    node = await world.node(heaps=QUICK)
    heaps = await world.heap(node, max_retries=0)
    await enqueue(heaps, 1, 2)
    popped = await pop(heaps, 2)
    await heaps.nack("jobs", [each.lease_token for each in popped])
    letters = world.view(node, "jobs.dlq")
    await async_until(lambda: len(letters.state) == 2)
    (leased,) = await pop(heaps, topic="jobs.dlq")
    assert await history(node, "jobs.dlq").expire_dead_letters() == 0
    await heaps.administration.update("jobs", {"dlq_retention_ms": 0})
    await async_until(lambda: history(node, "jobs.dlq")._keep_messages_ms() == 0)
    await async_until(lambda: letters.now_ms() > leased.enqueued_ms + 1)
    assert await history(node, "jobs.dlq").expire_dead_letters() == 1
    assert await heaps.ack("jobs.dlq", [leased.lease_token]) == [None]
