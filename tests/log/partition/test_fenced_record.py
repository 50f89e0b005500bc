"""A record that is not as it was written: with its topic it goes for good, alone it is corruption (SAFETY 10)."""

from collections.abc import Awaitable, Callable

import pytest
from tests.support.partitions import ORDERS, Owner, PartitionWorld

from holdfast.contracts.store import Delete, Put
from holdfast.log.keys import state_key, topic_id_key
from holdfast.log.maintenance.listing_change import ListingChange, commit_listing_change, exclusive_listing
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.vocabulary.errors import CorruptError, FencedError

RECORD = state_key(ORDERS.topic_id, ORDERS.number)
TOPIC = Put(topic_id_key(ORDERS.topic_id), b'{"name":"orders"}')


async def reserve(_: Owner, partition: LeadingPartition) -> None:
    await partition.reserve(1_000)


async def relist(owner: Owner, partition: LeadingPartition) -> None:
    context = owner.maintenance()
    async with exclusive_listing(partition, context):
        await commit_listing_change(partition, ListingChange(record=partition.record, recent=[], indexes=[]), context)


CHANGES = pytest.mark.parametrize("change", [reserve, relist])
Change = Callable[[Owner, LeadingPartition], Awaitable[None]]


@CHANGES
async def test_a_partition_whose_record_went_with_its_topic_is_lost(world: PartitionWorld, change: Change) -> None:
    await world.store.commit(apply=[TOPIC])
    ann = await world.owner()
    partition = await ann.open()
    await world.store.commit(apply=[Delete(TOPIC.key), Delete(RECORD)])
    with pytest.raises(FencedError):
        await change(ann, partition)
    assert await world.store.get(RECORD) is None


@CHANGES
async def test_a_record_that_goes_while_its_topic_stays_is_corruption(world: PartitionWorld, change: Change) -> None:
    await world.store.commit(apply=[TOPIC])
    ann = await world.owner()
    partition = await ann.open()
    await world.store.commit(apply=[Delete(RECORD)])
    with pytest.raises(CorruptError, match="without the lease"):
        await change(ann, partition)


@CHANGES
async def test_a_record_that_somebody_else_wrote_is_corruption(world: PartitionWorld, change: Change) -> None:
    ann = await world.owner()
    partition = await ann.open()
    await world.store.commit(apply=[Put(RECORD, b"{}")])
    with pytest.raises(CorruptError, match="without the lease"):
        await change(ann, partition)
