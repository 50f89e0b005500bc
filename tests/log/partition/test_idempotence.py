"""Idempotent producers against a real partition: in flight, across publication, across a crash."""

import asyncio

import pytest
from tests.support.partitions import PartitionWorld, append, batch, records

from holdfast.log.batches import RecordBatchLimits, split_batches
from holdfast.log.errors import ProducerRefusal, ProducerRefusedError
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import UnavailableError


def sent(sequence: int, *values: str, epoch: int = 0) -> bytes:
    return batch(*(values or ("x",)), producer=7, epoch=epoch, sequence=sequence)


async def refusal(partition: LeadingPartition, *payloads: bytes) -> ProducerRefusal:
    with pytest.raises(ProducerRefusedError) as error:
        await append(partition, *payloads)
    return error.value.refusal


async def test_five_in_flight_are_numbered_in_order_and_sent_again_are_not_appended_again(
    world: PartitionWorld,
) -> None:
    partition = await (await world.owner()).open()
    first = await asyncio.gather(*(append(partition, sent(sequence)) for sequence in range(5)))
    again = await asyncio.gather(*(append(partition, sent(sequence)) for sequence in range(5)))
    assert [each.base_offset for each in first] == [0, 1, 2, 3, 4]
    assert [(each.base_offset, each.duplicate) for each in again] == [(offset, True) for offset in range(5)]
    assert partition.next_offset == 5


async def test_a_duplicate_of_a_batch_still_in_flight_waits_for_it(world: PartitionWorld) -> None:
    partition = await (await world.owner()).open()
    first, again = await asyncio.gather(append(partition, sent(0, "a", "b")), append(partition, sent(0, "a", "b")))
    assert (first.base_offset, first.duplicate) == (0, False)
    assert (again.base_offset, again.end_offset, again.duplicate) == (0, 2, True)
    assert partition.high_watermark == partition.next_offset == 2


async def test_out_of_order_and_old_epochs_are_refused_and_change_nothing(world: PartitionWorld) -> None:
    partition = await (await world.owner()).open()
    await append(partition, sent(0))
    assert await refusal(partition, sent(5)) is ProducerRefusal.OUT_OF_ORDER
    await append(partition, sent(0, epoch=1))
    assert await refusal(partition, sent(1)) is ProducerRefusal.OLD_EPOCH
    assert partition.next_offset == 2
    await append(partition, sent(1, epoch=1))


async def test_several_batches_of_a_request_are_taken_together_or_not_at_all(world: PartitionWorld) -> None:
    partition = await (await world.owner()).open()
    assert (await append(partition, sent(0), sent(1), batch("plain"))).end_offset == 3
    assert await refusal(partition, sent(2), sent(9)) is ProducerRefusal.OUT_OF_ORDER
    assert partition.next_offset == 3
    # Sequence 2 was taken back with its neighbour, so it is new.
    assert not (await append(partition, sent(2))).duplicate


async def test_a_request_that_repeats_some_batches_and_brings_others_appends_the_others(world: PartitionWorld) -> None:
    partition = await (await world.owner()).open()
    await append(partition, sent(0, "a"), sent(1, "b"))
    appended = await append(partition, sent(1, "b"), sent(2, "c"), batch("d"))
    assert (appended.base_offset, appended.end_offset, appended.duplicate) == (1, 4, False)
    assert [value for _, value in records(partition.read_tail(0, bytes_max=1 << 20) or [])] == ["a", "b", "c", "d"]


async def test_what_comes_with_duplicates_does_not_keep_them_in_memory(world: PartitionWorld) -> None:
    partition = await (await world.owner()).open()
    await append(partition, sent(0, "x" * 10_000))
    together = bytearray(sent(0, "x" * 10_000) * 5 + sent(1, "y"))
    batches = split_batches(together, limits=RecordBatchLimits())
    assert partition.append_now(batches, copy_below_bytes=0) is not None
    (kept,) = partition.tail.between(1, 2)
    assert memoryview(kept.data).obj is not together


@pytest.mark.parametrize("crash", [True, False])
async def test_producers_are_remembered_across_publication_and_opening(world: PartitionWorld, crash: bool) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await append(partition, sent(0))
    await append(partition, sent(1))
    await ann.publisher.publish([partition])
    await append(partition, sent(2))
    if not crash:
        await ann.hand_back(partition)
    await ann.end()
    partition = await (await world.owner("ann" if crash else "bob")).open()
    assert [(await append(partition, sent(sequence))).base_offset for sequence in range(3)] == [0, 1, 2]
    assert await refusal(partition, sent(4)) is ProducerRefusal.OUT_OF_ORDER
    assert (await append(partition, sent(3))).base_offset == 3


async def test_a_footer_knows_nothing_of_batches_behind_its_segment(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await append(partition, sent(0))
    # Numbered, and on its way to the disk while the segment is built: it is not in the segment.
    late = asyncio.ensure_future(append(partition, sent(0, epoch=1)))
    while partition.next_offset < 2:
        await RealClock().sleep_ms(0)
    await ann.publisher.publish([partition])
    await late
    await ann.end()
    partition = await (await world.owner()).open()
    assert (await append(partition, sent(0, epoch=1))).base_offset == 1
    assert partition.next_offset == 2


async def test_a_first_batch_refused_while_the_partition_moves_is_not_overtaken(world: PartitionWorld) -> None:
    partition = await (await world.owner()).open()
    partition.stop_accepting()
    with pytest.raises(UnavailableError):
        await append(partition, sent(0))
    partition.resume_accepting()
    assert await refusal(partition, sent(1)) is ProducerRefusal.TOO_SOON
    assert [(await append(partition, sent(sequence))).base_offset for sequence in (0, 1)] == [0, 1]


async def test_a_first_batch_nobody_waited_for_is_not_overtaken(world: PartitionWorld) -> None:
    partition = await (await world.owner()).open()
    async with partition.appends_paused():
        impatient = asyncio.ensure_future(append(partition, sent(0)))
        await RealClock().sleep_ms(1)
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
    assert await refusal(partition, sent(1)) is ProducerRefusal.TOO_SOON
    assert [(await append(partition, sent(sequence))).base_offset for sequence in (0, 1)] == [0, 1]


async def test_a_batch_refused_before_the_producers_were_read_is_not_overtaken(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await append(partition, sent(0))
    await ann.publisher.publish([partition])
    await append(partition, sent(1))
    await ann.end()
    ann = await world.owner()
    partition = await ann.open()
    ann.objects.reachable = False
    with pytest.raises(UnavailableError):
        await append(partition, sent(2))
    ann.objects.reachable = True
    await partition.recover_producers()
    assert await refusal(partition, sent(3)) is ProducerRefusal.TOO_SOON  # not out of order: 2 is on its way
    assert (await append(partition, sent(2))).base_offset == 2
    assert (await append(partition, sent(3))).base_offset == 3


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("published", [False, True])  # then the producers have to be read first
async def test_a_batch_nobody_waits_for_is_not_overtaken_before_it_has_noticed(
    world: PartitionWorld, known: bool, published: bool
) -> None:
    ann = await world.owner()
    partition = await ann.open()
    if published:
        await append(partition, batch("other"))
        await ann.publisher.publish([partition])
        await ann.hand_back(partition)
        await ann.end()
        partition = await (await world.owner()).open()
    if known:
        await append(partition, sent(0))
    async with partition.appends_paused():
        impatient = asyncio.ensure_future(append(partition, sent(int(known))))
        await RealClock().sleep_ms(20)
        next_one = asyncio.ensure_future(refusal(partition, sent(int(known) + 1)))  # its turn of the loop comes first
        impatient.cancel()
    assert await next_one is ProducerRefusal.TOO_SOON
    with pytest.raises(asyncio.CancelledError):
        await impatient
