"""A partition from append to segment, and back after every kind of end."""

import pytest
from tests.support.partitions import ORDERS, PartitionWorld, append, batch, published, records

from holdfast.contracts.store import Put
from holdfast.log.keys import deleted_key, state_key
from holdfast.vocabulary.errors import ClosedError


async def test_what_is_appended_is_durable_visible_published_and_read_from_a_segment(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open()
    assert (await append(partition, batch("a", "b"))).base_offset == 0
    assert (await append(partition, batch("c"))).base_offset == 2
    assert partition.high_watermark == 3
    assert records(partition.read_tail(0, bytes_max=1 << 20) or []) == [(0, "a"), (1, "b"), (2, "c")]
    assert await ann.publisher.publish([partition]) == []
    assert partition.record.published == 3
    assert partition.read_tail(0, bytes_max=1 << 20) is None
    assert await published(world) == [(0, "a"), (1, "b"), (2, "c")]


async def test_a_crash_loses_nothing_that_was_acknowledged(world: PartitionWorld) -> None:
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
    assert [value for _, value in await published(world)] == ["published", "in the WAL", "after"]
    assert [tuple(each) for each in again.record.epochs] == [(1, 0), (2, 2)]
    assert str(again.partition_id) == str(ORDERS)


async def test_a_partition_of_a_deleted_topic_is_not_brought_back_by_an_agent_that_sees_the_deletion_late(
    world: PartitionWorld,
) -> None:
    ann = await world.owner()
    await world.store.commit(apply=[Put(deleted_key(ORDERS.topic_id), b"{}")])
    with pytest.raises(ClosedError, match="deleted"):
        await ann.open()
    assert await world.store.get(state_key(ORDERS.topic_id, ORDERS.number)) is None


async def test_a_large_batch_comes_back_from_the_wal_under_the_checksum_it_brought(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await append(partition, batch("x" * 100_000))
    await append(partition, batch("y" * 100_000))
    assert partition._dirty_partitions.dirty() == [partition]
    await ann.end()
    again = await (await world.owner()).open()
    assert [value[0] for _, value in records(again.tail.read(0, below=2, bytes_max=1 << 20))] == ["x", "y"]
