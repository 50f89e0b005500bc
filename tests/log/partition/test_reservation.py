"""Offsets are booked before they are used, given back when they are not, and never belong to two (SAFETY 8, 9)."""

import asyncio
from unittest.mock import patch

import pytest
from tests.support.partitions import HastyClock, Owner, PartitionWorld, append, batch, published, records, stored
from tests.support.waiting import async_until

from holdfast.log.errors import TailNotLocalError
from holdfast.log.model import PartitionConfig
from holdfast.log.partition.drain import close_together
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.publisher import release_reservation
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import OutcomeUnknownError, UnavailableError


async def test_an_idle_partition_is_clean_and_a_partition_in_use_is_not(world: PartitionWorld) -> None:
    partition = await (await world.owner()).open()
    assert (await stored(world)).clean
    await append(partition, batch("a"))
    assert (await stored(world)).reserved == 100
    assert not (await stored(world)).clean


async def test_no_offset_is_assigned_above_what_the_store_has_reserved(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open()
    for _ in range(60):
        appended = await append(partition, batch(*"abcde"))
        assert appended.end_offset <= (await stored(world)).reserved
    assert partition.next_offset == 300
    # One at opening, one for each hundred offsets; far from one per append.
    assert ann.store.calls["commit"] <= 5


async def test_a_batch_larger_than_a_booking_gets_a_larger_booking(world: PartitionWorld) -> None:
    partition = await (await world.owner()).open()
    assert (await append(partition, batch(*["x"] * 250))).end_offset == 250
    assert (await stored(world)).reserved >= 250


async def test_nothing_is_appended_while_no_offset_can_be_reserved(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open()
    ann.store.reachable = False
    waiting = asyncio.ensure_future(append(partition, batch("a")))
    await RealClock().sleep_ms(50)
    assert partition.next_offset == 0
    ann.store.reachable = True
    assert (await waiting).base_offset == 0


async def test_a_publication_books_ahead_in_its_own_commit(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await append(partition, batch(*["x"] * 60))
    before = ann.store.calls["commit"]
    await ann.publisher.publish([partition])
    assert ann.store.calls["commit"] == before + 1
    assert (await stored(world)).reserved == 160


async def test_a_clean_close_gives_back_what_was_not_used(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await append(partition, batch("a", "b"))
    await ann.hand_back(partition)
    record = await stored(world)
    assert (record.published, record.reserved) == (2, 2)
    bobs = await (await world.owner("bob")).open()
    assert (await append(bobs, batch("c"))).base_offset == 2


async def test_a_partition_that_still_accepts_does_not_give_its_booking_back(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await append(partition, batch("a"))
    await ann.publisher.publish([partition], closing=False)
    assert (await stored(world)).reserved > 1
    more = asyncio.ensure_future(append(partition, batch("b")))
    await async_until(lambda: partition.next_offset == 2)
    assert not await release_reservation(partition)
    await more
    assert (await stored(world)).reserved >= 2


async def test_an_idle_partition_releases_its_offsets_and_reserves_again_at_the_next_append(
    world: PartitionWorld,
) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await append(partition, batch("a"))
    await ann.publisher.publish([partition])
    assert await release_reservation(partition)
    assert (await stored(world)).clean
    assert (await append(partition, batch("b"))).base_offset == 1
    assert not (await stored(world)).clean


async def test_a_drain_that_is_called_off_reserves_again(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await append(partition, batch("a"))
    partition.stop_accepting()
    with pytest.raises(UnavailableError):
        await append(partition, batch("refused"))
    await ann.publisher.publish([partition], closing=True)
    assert (await stored(world)).clean
    partition.resume_accepting()
    assert (await append(partition, batch("b"))).base_offset == 1
    assert (await stored(world)).reserved > 1


async def test_a_tail_in_another_wal_keeps_the_partition_offline_until_that_wal_is_back(world: PartitionWorld) -> None:
    ann = await world.owner("ann")
    await append(await ann.open(), batch("only here"))
    await ann.end()
    bob = await world.owner("bob")
    lease = await bob.acquire()
    with pytest.raises(TailNotLocalError) as error:
        await bob.open(lease=lease)
    assert (error.value.wal, error.value.published, error.value.reserved) == (ann.wal_id, 0, 100)
    assert "start the agent that has it" in str(error.value)
    await bob.end()
    back = await (await world.owner("ann")).open()
    assert records(back.read_tail(0, bytes_max=1 << 20) or []) == [(0, "only here")]


async def test_an_unclean_takeover_starts_at_the_ceiling_and_lists_what_it_left_out(world: PartitionWorld) -> None:
    ann = await world.owner("ann")
    partition = await ann.open()
    await append(partition, batch("published"))
    await ann.publisher.publish([partition])
    await append(partition, batch("left out"))
    await ann.end()
    bob = await world.owner("bob")
    bobs = await bob.open(partition_config=PartitionConfig(unclean_takeover=True))
    assert (await append(bobs, batch("after"))).base_offset == 100
    (gap,) = (await stored(world)).gaps
    assert (gap.start, gap.end, gap.wal) == (1, 100, ann.wal_id)
    await bob.publisher.publish([bobs])
    assert await published(world) == [(0, "published"), (100, "after")]
    # The former owner's tail belongs to nobody now: it does not come back when the partition does.
    await bob.hand_back(bobs)
    again = await (await world.owner("ann")).open()
    assert (await append(again, batch("later"))).base_offset == 101
    assert records(again.read_tail(101, bytes_max=1 << 20) or []) == [(101, "later")]


async def test_at_object_level_a_takeover_is_clean_because_nothing_unpublished_was_acknowledged(
    world: PartitionWorld,
) -> None:
    ann = await world.owner("ann")
    partition_config = PartitionConfig(level="object")
    partition = await ann.open(partition_config=partition_config)
    unacknowledged = asyncio.ensure_future(append(partition, batch("never acknowledged")))
    await async_until(lambda: partition.publishable())
    assert partition.high_watermark == 0
    assert partition.read_tail(0, bytes_max=1 << 20) == []
    unacknowledged.cancel()
    await ann.end()
    bobs = await (await world.owner("bob")).open(partition_config=partition_config)
    assert bobs.next_offset == 100
    assert (await stored(world)).gaps == ()


async def test_a_tail_acknowledged_as_local_stays_local_until_it_is_published(world: PartitionWorld) -> None:
    ann = await world.owner()
    await append(await ann.open(), batch("a"))
    await ann.end()
    ann = await world.owner()
    partition = await ann.open(partition_config=PartitionConfig(level="object"))
    assert (partition.level, partition.high_watermark) == ("local", 1)
    assert (await stored(world)).level == "local"


async def test_two_lives_of_one_wal_never_mix_up_their_offsets(world: PartitionWorld) -> None:
    """A frame of a lost leadership may be durable at an offset that a later leadership gave to something else."""
    ann = await world.owner()
    first = await ann.open()
    await append(first, batch("a"))
    left = first.unpublished_frames()
    # The lease is lost while a frame is on its way, and won again by the same process before it has arrived.
    await append(first, batch("too late"))
    await ann.lose_session()
    second = await ann.open(leftovers=left)
    assert (await append(second, batch("b"))).base_offset == 1
    await ann.end()
    again = await (await world.owner()).open()
    assert records(again.read_tail(0, bytes_max=1 << 20) or []) == [(0, "a"), (1, "b")]


async def given_back_in_doubt(owner: Owner, partition: LeadingPartition, *, drained: bool) -> None:
    """The booking is given back, the answer is lost, and the store stays away for longer than a commit waits."""
    owner.store.stop_answering_at("/state")
    clock, hasty = owner.world.clock, HastyClock()
    with (
        patch.object(clock, "sleep_ms", hasty.sleep_ms),
        patch.object(clock, "boot_ms", hasty.boot_ms),
        pytest.raises(OutcomeUnknownError),
    ):
        await (close_together([partition], owner.publisher) if drained else release_reservation(partition))
    partition.resume_accepting()
    assert partition.fenced_record.in_doubt


@pytest.mark.parametrize("drained", [False, True])
async def test_what_may_have_been_given_back_is_not_handed_out_before_the_answer_is_known(
    world: PartitionWorld, drained: bool
) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await append(partition, batch("a"))
    await ann.publisher.publish([partition])
    if drained:
        await append(partition, batch("b"))
    await given_back_in_doubt(ann, partition, drained=drained)
    with pytest.raises(UnavailableError):  # acknowledged, it would be lost: for the next owner the partition is clean
        await append(partition, batch("acknowledged"))
    ann.store.answering = True
    end = (await append(partition, batch("c"))).end_offset
    assert end <= (await stored(world)).reserved
