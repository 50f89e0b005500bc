"""Publication: fenced, shared, and indifferent to lost answers and failing object storage (SAFETY 7, 10, 13)."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pytest
from tests.support.partitions import (
    ORDERS,
    Owner,
    PartitionWorld,
    append,
    batch,
    publish_in_doubt,
    published,
    records,
    stored,
)
from tests.support.waiting import async_until

from holdfast.contracts.objects import Buffer
from holdfast.contracts.store import Put
from holdfast.log.errors import NotLeaderError
from holdfast.log.keys import deletion_mark_key, segment_entry_key
from holdfast.log.model import ACKS_LEADER, ACKS_NONE, PartitionConfig, PartitionId
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.publisher import SegmentPublisher
from holdfast.log.settings import LogSettings
from holdfast.vocabulary.errors import FencedError, UnavailableError
from holdfast.vocabulary.settings import KIB

PLACES = [replace(ORDERS, number=number) for number in range(3)]


async def three(owner: Owner) -> list[LeadingPartition]:
    opened = [await owner.open(partition_id) for partition_id in PLACES]
    for partition in opened:
        await append(partition, batch(f"of {partition.partition_id.number}"))
    return opened


async def test_quiet_partitions_share_an_object_and_a_commit(world: PartitionWorld) -> None:
    ann = await world.owner()
    partitions = await three(ann)
    commits, puts = ann.store.calls["commit"], ann.objects.calls.get("put", 0)
    assert await ann.publisher.publish(partitions) == []
    assert ann.store.calls["commit"] == commits + 1
    assert ann.objects.calls["put"] == puts + 1
    for partition_id in PLACES:
        assert await published(world, partition_id) == [(0, f"of {partition_id.number}")]


async def test_many_partitions_are_committed_in_as_few_commits_as_the_store_allows(world: PartitionWorld) -> None:
    ann = await world.owner()
    partitions = [await ann.open(replace(ORDERS, number=number)) for number in range(45)]
    await asyncio.gather(*(append(partition, batch("x")) for partition in partitions))
    commits = ann.store.calls["commit"]
    await ann.publisher.publish(partitions)
    assert ann.store.calls["commit"] == commits + 3
    assert all(partition.record.published == 1 for partition in partitions)


async def test_large_segments_have_objects_of_their_own(world: PartitionWorld) -> None:
    world.settings = LogSettings(reserve_offsets=100, shared_below_bytes=KIB)
    ann = await world.owner()
    partitions = [await ann.open(partition_id) for partition_id in PLACES]
    noise = [world.random.token() for _ in range(200)]
    for partition in partitions:
        await append(partition, batch(*noise))
    await ann.publisher.publish(partitions)
    keys = {partition.segments.recent[0].object for partition in partitions}
    assert len(keys) == 3
    assert all(key.startswith(f"segments/{ORDERS.topic_id}/") for key in keys)


async def test_a_leader_that_was_fenced_cannot_publish_and_cannot_book(world: PartitionWorld) -> None:
    ann, bob = await world.owner("ann"), await world.owner("bob")
    partition = await ann.open(partition_config=PartitionConfig(unclean_takeover=True))
    await append(partition, batch("anns"))
    await world.store.close_session(ann.session.id)
    bobs = await bob.open(partition_config=PartitionConfig(unclean_takeover=True))
    assert await ann.publisher.publish([partition]) == [partition]
    with pytest.raises(FencedError):
        await partition.reserve(1_000)
    await append(bobs, batch("bobs"))
    await bob.publisher.publish([bobs])
    assert [value for _, value in await published(world)] == ["bobs"]


async def test_a_lost_partition_is_left_out_and_the_others_are_published(world: PartitionWorld) -> None:
    ann, bob = await world.owner("ann"), await world.owner("bob")
    partitions = await three(ann)
    await world.store.commit(apply=[Put(f"lease/epoch/partition/orders/{1:05d}", b'{"epoch":9}')])
    lost = await ann.publisher.publish(partitions)
    assert lost == [partitions[1]]
    assert [partition.record.published for partition in partitions] == [1, 0, 1]
    assert await published(world, PLACES[1]) == []
    assert bob.session.alive()


async def test_an_object_that_a_sweeper_has_marked_is_uploaded_again_and_not_listed(world: PartitionWorld) -> None:
    ann = await world.owner()
    partitions = await three(ann)
    real_put = ann.objects.put
    doomed: list[str] = []

    async def put_and_doom(key: str, body: Sequence[Buffer]) -> object:
        stored_object = await real_put(key, body)
        if not doomed:
            doomed.append(key)
            await world.store.commit(apply=[Put(deletion_mark_key(key), b"{}")])
        return stored_object

    ann.objects.put = put_and_doom  # type: ignore[method-assign,assignment]
    assert await ann.publisher.publish(partitions) == []
    assert [partition.record.published for partition in partitions] == [0, 0, 0]
    assert await ann.publisher.publish(partitions) == []
    assert all(partition.segments.recent[0].object != doomed[0] for partition in partitions)
    assert await published(world) == [(0, "of 0")]


async def test_a_commit_whose_answer_is_lost_is_published_once(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await append(partition, batch("a"))
    ann.store.lose_answer_to("/state")
    assert await ann.publisher.publish([partition]) == []
    assert ann.store.calls["resolve"] == 1
    assert await published(world) == [(0, "a")]
    assert partition.record == await stored(world)


async def test_a_commit_that_never_arrived_is_made_again(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await append(partition, batch("a"))
    ann.store.lose_request("/seg/")
    await ann.publisher.publish([partition])
    assert await published(world) == [(0, "a")]


@pytest.mark.parametrize("arrived", [True, False])
async def test_an_outcome_that_stays_unknown_is_found_out_before_anything_else_is_written(
    world: PartitionWorld, arrived: bool
) -> None:
    """The answer is lost, and so is the store, for longer than a commit waits."""
    ann = await world.owner()
    partition = await ann.open()
    await append(partition, batch("a"))
    await publish_in_doubt(ann, partition, arrived=arrived)
    assert partition.record.published == 0
    await append(partition, *[batch("b")] * 120)  # needs a booking, which needs the record
    assert not partition.fenced_record.in_doubt
    assert partition.record.published == (1 if arrived else 0)
    await ann.publisher.publish([partition])
    assert [value for _, value in await published(world)] == ["a", *["b"] * 120]
    assert partition.record == await stored(world)


async def outage(world: PartitionWorld, publisher: type[SegmentPublisher]) -> None:
    """Appends through an outage of object storage; afterwards everything is published, once, in order."""
    ann = await world.owner()
    partition = await ann.open()
    careful = publisher(
        store=ann.store, objects=ann.objects, clock=world.clock, random=world.random, settings=world.settings
    )
    for number in range(30):
        await append(partition, batch(str(number)))
        ann.objects.reachable = number % 3 == 0
        with suppress(UnavailableError):
            await careful.publish([partition])
    ann.objects.reachable = True
    await careful.publish([partition])
    assert [value for _, value in await published(world)] == [str(number) for number in range(30)]
    assert partition.tail.size_bytes == 0


async def test_an_outage_of_object_storage_loses_nothing(world: PartitionWorld) -> None:
    await outage(world, SegmentPublisher)


async def test_the_planted_bug_that_clears_the_buffer_although_the_upload_failed_is_caught(
    world: PartitionWorld,
) -> None:
    class Careless(SegmentPublisher):
        async def _put(self, key: str, parts: Sequence[Buffer]) -> None:
            with suppress(UnavailableError):
                await super()._put(key, parts)

    with pytest.raises(AssertionError):
        await outage(world, Careless)


async def test_object_storage_that_fails_a_third_of_all_calls_and_loses_answers_loses_nothing(
    world: PartitionWorld,
) -> None:
    ann = await world.owner()
    partition = await ann.open()
    ann.objects.fail_share, ann.objects.lose_put_share = 0.3, 0.2
    for number in range(60):
        await append(partition, batch(str(number)))
        with suppress(UnavailableError):
            await ann.publisher.publish([partition])
    ann.objects.fail_share = ann.objects.lose_put_share = 0.0
    await ann.publisher.publish([partition])
    assert ann.objects.faults > 5
    assert [value for _, value in await published(world)] == [str(number) for number in range(60)]


async def test_appends_go_on_while_a_segment_is_uploaded(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await append(partition, batch("a"))
    real_put, asked, may_go = ann.objects.put, asyncio.Event(), asyncio.Event()

    async def slow_put(key: str, body: Sequence[Buffer]) -> object:
        asked.set()
        await may_go.wait()
        return await real_put(key, body)

    ann.objects.put = slow_put  # type: ignore[method-assign,assignment]
    publishing = asyncio.ensure_future(ann.publisher.publish([partition]))
    await asked.wait()
    await append(partition, *[batch("b")] * 150)  # more than was booked: the record is not locked during the upload
    assert not publishing.done()
    may_go.set()
    await publishing
    assert partition.record.published == 1
    assert partition.next_offset == 151
    assert records(partition.read_tail(1, bytes_max=1) or []) == [(1, "b")]


async def test_producers_wait_while_too_much_is_unpublished(world: PartitionWorld) -> None:
    world.settings = LogSettings(reserve_offsets=100, unpublished_bytes_max=4 * KIB)
    ann = await world.owner()
    partition = await ann.open()
    await append(partition, batch("x" * 5_000))
    waiting = asyncio.ensure_future(append(partition, batch("z")))
    await async_until(lambda: partition.publish_requested)
    assert not waiting.done()
    await ann.publisher.publish([partition])
    assert (await waiting).base_offset == 1


async def test_producers_that_waited_too_long_for_a_publication_fail(world: PartitionWorld) -> None:
    world.settings = LogSettings(reserve_offsets=100, unpublished_bytes_max=4 * KIB, room_wait_ms=50)
    ann = await world.owner()
    partition = await ann.open()
    await append(partition, batch("x" * 5_000))
    with pytest.raises(UnavailableError, match="unpublished bytes exceed the limit"):
        await append(partition, batch("y"))
    assert partition.publish_requested
    await ann.publisher.publish([partition])
    assert (await append(partition, batch("z"))).base_offset == 1


@pytest.mark.parametrize("waits_for", ["room", "offsets", "nothing"])
async def test_an_append_without_offsets_may_be_sent_again_when_its_partition_closes(
    world: PartitionWorld, waits_for: str
) -> None:
    world.settings = LogSettings(reserve_offsets=100, unpublished_bytes_max=4 * KIB)
    ann = await world.owner()
    partition = await ann.open()
    await append(partition, batch("x" * (5_000 if waits_for == "room" else 1)))
    many = [batch("y") for _ in range(100)]
    waiting = asyncio.ensure_future(append(partition, *many))
    async with partition.record_lock:  # offsets cannot be reserved
        if waits_for != "nothing":
            await world.clock.sleep_ms(10)
            assert not waiting.done()
        partition.close(FencedError("orders:0", 1, 2))
    with pytest.raises(NotLeaderError, match="nothing was appended"):
        await waiting
    assert partition.next_offset == 1


async def test_an_append_that_meets_a_newer_leader_at_its_reservation_may_be_sent_again(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await append(partition, batch("a"))
    await ann.lose_session()
    bob = await world.owner("bob")
    await bob.acquire()
    partition._session.deadline_ms = 1 << 60  # it does not know yet
    with pytest.raises(NotLeaderError, match="nothing was appended"):
        await append(partition, *(batch("y") for _ in range(100)))
    assert partition.next_offset == 1


async def test_what_has_offsets_is_in_doubt_when_its_partition_closes(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open(partition_config=PartitionConfig(level="object"))
    waiting = asyncio.ensure_future(append(partition, batch("a")))
    await async_until(lambda: partition.publishable())
    partition.close(FencedError("orders:0", 1, 2))
    with pytest.raises(FencedError):
        await waiting


async def test_at_object_level_an_acknowledgement_waits_for_the_commit(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open(partition_config=PartitionConfig(level="object"))
    waiting = asyncio.ensure_future(append(partition, batch("a")))
    await async_until(lambda: partition.publishable())
    assert not waiting.done()
    assert (await append(partition, batch("b"), acks=ACKS_LEADER)).base_offset == 1
    assert (await append(partition, batch("c"), acks=ACKS_NONE)).base_offset == 2
    await partition.wait_durable()
    assert partition.high_watermark == 0
    await ann.publisher.publish([partition])
    assert (await waiting).base_offset == 0
    assert partition.high_watermark == 3


async def test_a_segment_is_named_under_its_base_offset(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open()
    for value in "ab":
        await append(partition, batch(value))
        await ann.publisher.publish([partition])
    partition_id: PartitionId = partition.partition_id
    for base in (0, 1):
        assert await world.store.get(segment_entry_key(partition_id.topic_id, partition_id.number, base)) is not None
