"""A partition from append to segment, and back after every kind of end."""

from tests.log.partition.making import ORDERS, World, append, batch, records

from holdfast.log.partition.leading import LeadingPartition
from holdfast.log.partition.segments import load_segments
from holdfast.log.segments import SegmentReader


async def published(world: World, partition: LeadingPartition) -> list[tuple[int, str]]:
    """Everything a stranger finds in object storage."""
    segments = await load_segments(world.store, partition.place.topic_id, partition.place.number)
    found: list[tuple[int, str]] = []
    async for each in segments.all(world.objects):
        batches = await SegmentReader(world.objects, each.object, each.start, each.end).read(each.base_offset, 1 << 30)
        assert isinstance(batches, list)
        found += records(batches)
    return found


async def test_what_is_appended_is_durable_visible_published_and_read_from_a_segment(world: World) -> None:
    ann = await world.owner()
    partition = await ann.open()
    assert (await append(partition, batch("a", "b"))).base_offset == 0
    assert (await append(partition, batch("c"))).base_offset == 2
    assert partition.high_watermark == 3
    assert records(partition.read_tail(0, bytes_max=1 << 20) or []) == [(0, "a"), (1, "b"), (2, "c")]
    assert await ann.publisher.publish([partition]) == []
    assert partition.record.published == 3
    assert partition.read_tail(0, bytes_max=1 << 20) is None
    assert await published(world, partition) == [(0, "a"), (1, "b"), (2, "c")]


async def test_a_crash_loses_nothing_that_was_acknowledged(world: World) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await append(partition, batch("published"))
    await ann.publisher.publish([partition])
    await append(partition, batch("in the WAL"))
    await ann.end()
    again = await (await world.owner()).open()
    assert again.lease.epoch == 2
    assert again.high_watermark == 2
    assert records(again.read_tail(1, bytes_max=1 << 20) or []) == [(1, "in the WAL")]
    assert (await append(again, batch("after"))).base_offset == 2
    await world.owners[-1].publisher.publish([again])
    assert [value for _, value in await published(world, again)] == ["published", "in the WAL", "after"]
    assert [tuple(each) for each in again.record.epochs] == [(1, 0), (2, 2)]
    assert str(again.place) == str(ORDERS)
