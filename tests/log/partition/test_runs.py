"""Runs: batches of small requests that are appended together, from the append to the segment, and back after every kind of end."""

from contextlib import suppress

import pytest
from tests.support.partitions import OTHER, PartitionWorld, append, append_run, batch, published, records
from tests.support.steps import executed_lines

from holdfast.log.batches import RecordBatchLimits
from holdfast.log.batches.batch_run import verify_run
from holdfast.log.errors import NotLeaderError, ProducerRefusedError
from holdfast.log.partition.appendable_log import AppendResult
from holdfast.vocabulary.errors import ClosedError, UnavailableError

pytest.importorskip("holdfast._native", reason="the C kernel was not built: no compiler")


async def test_a_run_is_one_frame_and_one_entry_of_the_tail_and_its_batches_are_read_one_by_one(
    world: PartitionWorld,
) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await append(partition, batch("first"))
    frames = ann.wal.stats.frames
    assert await append_run(partition, batch("a", "b"), batch("c"), batch("d")) == AppendResult(1, 5, offsets=[1, 3, 4])
    assert ann.wal.stats.frames == frames + 1
    assert len(partition.tail.entries(0, 5)) == 2
    found = partition.read_tail(3, bytes_max=1 << 20) or []
    assert [records([each]) for each in found] == [[(3, "c")], [(4, "d")]]
    await ann.publisher.publish([partition])
    assert await published(world) == [(0, "first"), (1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert partition.tail.size_bytes == 0


async def test_a_crash_loses_nothing_of_a_run_that_was_acknowledged(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await partition.reserve()
    await append_run(partition, batch("a"), batch("b"))
    await ann.end()
    again = await (await world.owner()).open()
    assert records(again.read_tail(0, bytes_max=1 << 20) or []) == [(0, "a"), (1, "b")]
    assert (await append(again, batch("after"))).base_offset == 2


async def test_a_run_that_meets_a_full_disk_is_taken_back_whole(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await partition.reserve()
    await append_run(partition, batch("a"))
    ann.disk.full = True
    with pytest.raises(UnavailableError):
        await append_run(partition, batch("b"), batch("c"))
    assert partition.next_offset == partition.high_watermark == partition.tail.end == 1
    ann.disk.full = False
    assert await append_run(partition, batch("b"), batch("c")) == AppendResult(1, 3, offsets=[1, 2])


async def test_a_run_does_not_overtake_what_waits_and_is_refused_by_who_does_not_lead(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await partition.reserve()
    place = partition.hold_place()
    assert await append_run(partition, batch("a")) is None
    place.leave()
    assert await append_run(partition, batch("a")) is not None
    await ann.lose_session()
    run = verify_run([bytearray(batch("b"))], limits=RecordBatchLimits(), records=True)
    assert run is not None
    with pytest.raises(NotLeaderError, match="nothing was appended"):
        partition.append_run_now(run)
    assert partition.next_offset == 1


async def test_what_a_closed_partition_has_not_published_of_a_run_is_found_again(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await partition.reserve()
    await append(partition, batch("published"))
    await ann.publisher.publish([partition])
    await append_run(partition, batch("a"), batch("b", "c"))
    await append(partition, batch("d"))
    frames = partition.unpublished_frames()
    assert [(each.base_offset, each.count) for each in frames] == [(1, 3), (4, 1)]
    await ann.lose_session()
    partition.close(ClosedError("partition"))
    again = await ann.open(leftovers=frames)
    assert records(again.read_tail(1, bytes_max=1 << 20) or []) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


async def test_remembering_what_is_not_published_takes_no_step_for_each_batch(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition, other = await ann.open(), await ann.open(OTHER)
    for each, count in ((partition, 2), (other, 90)):
        await each.reserve()
        assert await append_run(each, *[batch("x")] * count) is not None
    assert executed_lines(partition.unpublished_frames) == executed_lines(other.unpublished_frames)


def sent(producer: int, sequence: int, *values: str) -> bytes:
    return batch(*(values or (f"{producer}-{sequence}",)), producer=producer, sequence=sequence)


async def test_batches_of_producers_are_remembered_as_if_they_had_come_one_by_one(world: PartitionWorld) -> None:
    ann = await world.owner()
    together, alone = await ann.open(), await ann.open(OTHER)
    await together.reserve()
    payloads = [sent(7, 0), sent(8, 0, "a", "b"), batch("nobody's"), sent(7, 1), sent(8, 2), sent(7, 2)]
    assert (await append_run(together, *payloads)) is not None
    for payload in payloads:
        await append(alone, payload)
    assert [each._replace(last_timestamp_ms=0) for each in together.producers_at(7)] == [
        each._replace(last_timestamp_ms=0) for each in alone.producers_at(7)
    ]
    again = await append(together, sent(8, 2))
    assert (again.base_offset, again.duplicate) == (5, True)
    with pytest.raises(ProducerRefusedError):
        await append(together, sent(7, 9))


@pytest.mark.parametrize("wrong", [sent(7, 0), sent(7, 5), sent(8, 3)], ids=["sent before", "skips ahead", "as well"])
async def test_a_run_with_a_batch_that_does_not_follow_leaves_nothing_behind(
    world: PartitionWorld, wrong: bytes
) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await append(partition, sent(7, 0))
    await append(partition, sent(8, 0))
    before = partition.producers_at(2)
    with suppress(ProducerRefusedError):
        assert await append_run(partition, batch("x"), sent(7, 1), wrong) is None
    assert partition.next_offset == partition.tail.end == 2
    assert partition.producers_at(2) == before
    assert (await append(partition, sent(7, 1))).base_offset == 2


async def test_producers_of_a_run_that_met_a_full_disk_send_it_again(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await append(partition, sent(7, 0))
    ann.disk.full = True
    with pytest.raises(UnavailableError):
        await append_run(partition, sent(7, 1), sent(7, 2))
    ann.disk.full = False
    with pytest.raises(ProducerRefusedError, match="to be sent again"):
        await append(partition, sent(7, 2))
    assert await append_run(partition, sent(7, 1), sent(7, 2)) == AppendResult(1, 3, offsets=[1, 2])


async def test_producers_of_a_run_are_known_after_a_crash(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await partition.reserve()
    await append_run(partition, sent(7, 0), sent(7, 1))
    await ann.end()
    again = await (await world.owner()).open()
    assert (await append(again, sent(7, 1))).duplicate
    assert (await append(again, sent(7, 2))).base_offset == 2
