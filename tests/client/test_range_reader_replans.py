"""Segments replaced or removed while a range is read: the segments are listed again, and nothing is lost or duplicated."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import cast

import pytest
import pytest_asyncio
from tests.support.maintenance import COMPACT_NOW, MaintenanceWorld, new_world, replay

from holdfast.client import range_reader
from holdfast.client.brokers import TopicInfo
from holdfast.client.cluster_access import ClusterAccess, DirectAccess
from holdfast.client.cluster_address import ClusterAddress
from holdfast.client.range_reader import RangeReader, ReadRequest
from holdfast.client.types import DataLossError, PartitionRange
from holdfast.contracts.objects import AlreadyExists, Buffer, Missing, ObjectInfo, Stored
from holdfast.log.batches import Record, decode
from holdfast.log.maintenance import compact, delete_records, roll_up_segment_keys
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.reader import LogReader
from holdfast.log.topics import Topics
from holdfast.vocabulary.errors import CorruptError

TOPIC_ID = b"orders".hex()


class InterferingObjects:
    """Objects; before read number `at`, something happens. Remembers what was missing."""

    def __init__(self, world: MaintenanceWorld, at: int, happens: Callable[[], Awaitable[object]]) -> None:
        self._objects, self._left, self._happens = world.objects, at, happens
        self.missing: list[str] = []
        self.reads = 0

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> Buffer | Missing:
        self.reads += 1
        self._left -= 1
        if self._left == 0:
            await self._happens()
        found = await self._objects.get(key, start=start, end=end)
        if isinstance(found, Missing):
            self.missing.append(key)
        return found

    async def get_tail(self, key: str, size_bytes: int) -> Buffer | Missing:
        return await self._objects.get_tail(key, size_bytes)

    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        return await self._objects.put(key, body)

    def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        return self._objects.list(prefix, after=after)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._objects.delete(keys)


@pytest_asyncio.fixture
async def world() -> AsyncIterator[MaintenanceWorld]:
    async with new_world() as fresh:
        yield fresh


@pytest.fixture(autouse=True)
def _one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read ahead, so that what happens between two reads happens between two segments."""
    monkeypatch.setattr(range_reader, "READ_AHEAD_MAX", 1)


async def filled(world: MaintenanceWorld) -> LeadingPartition:
    partition = await world.open()
    for at in range(12):
        await world.append(partition, [(b"k%d" % (at % 3), b"v%d" % at), (b"z%d" % at, b"only")])
        await world.publish(partition)
        world.clock.advance_ms(1_000)
    return partition


async def everything(
    world: MaintenanceWorld, objects: InterferingObjects, end: int, *, skip_lost: bool = False
) -> list[Record]:
    async def get(name: str) -> TopicInfo:
        return TopicInfo(name, TOPIC_ID, 1)

    topics = cast(Topics, SimpleNamespace(get=get))
    reading = LogReader(objects, clock=world.clock, settings=world.log_settings)
    direct = DirectAccess(world.store, objects, topics, reading, world.owner)
    request = ReadRequest(range=PartitionRange("orders", 0, 0, end), skip_lost=skip_lost)
    found: list[Record] = []
    reader = RangeReader(ClusterAccess(ClusterAddress(bootstrap="nobody:1"), direct, None, world.clock), request)
    async for chunk in reader.chunks():
        for batch in chunk.batches:
            found += [each for each in decode(batch) if chunk.start <= each.offset < end]
    await reading.close()
    return found


@pytest.mark.parametrize("at", range(1, 13))
async def test_the_replacement_of_a_compacted_segment_is_read(world: MaintenanceWorld, at: int) -> None:
    partition = await filled(world)
    before, end = await world.read(), partition.high_watermark

    async def happens() -> None:
        await compact(partition, COMPACT_NOW, world.context())
        await world.settle()

    objects = InterferingObjects(world, at, happens)
    found = await everything(world, objects, end)
    assert objects.missing, "the reader saw what happened"
    assert [each.offset for each in found] == sorted({each.offset for each in found})
    assert replay(found) == replay(before)
    assert set(found) <= set(before)


async def test_a_replaced_segment_list_is_reloaded(world: MaintenanceWorld) -> None:
    partition = await filled(world)
    before = await world.read()
    world.log_settings = type(world.log_settings)(segment_keys_max=4, index_entries_max=16)
    await roll_up_segment_keys(partition, world.context())

    async def happens() -> None:
        await compact(partition, COMPACT_NOW, world.context())
        await world.settle()

    objects = InterferingObjects(world, 1, happens)  # the first read is that of the list
    found = await everything(world, objects, partition.high_watermark)
    assert objects.missing
    assert replay(found) == replay(before)


async def test_records_removed_while_reading_are_reported_as_lost(world: MaintenanceWorld) -> None:
    partition = await filled(world)

    async def happens() -> None:
        await delete_records(partition, 10, world.context())
        await world.settle()

    with pytest.raises(DataLossError) as lost:
        await everything(world, InterferingObjects(world, 3, happens), 24)
    assert lost.value.lost == (4, 10)


async def test_lost_records_may_be_skipped_and_those_read_before_are_kept(world: MaintenanceWorld) -> None:
    partition = await filled(world)

    async def happens() -> None:
        await delete_records(partition, 11, world.context())
        await world.settle()

    found = await everything(world, InterferingObjects(world, 3, happens), 24, skip_lost=True)
    assert [each.offset for each in found] == [*range(4), *range(11, 24)]


async def test_a_listed_segment_that_stays_missing_is_corruption_and_no_endless_loop(world: MaintenanceWorld) -> None:
    partition = await filled(world)
    victim = partition.segments.recent[2].object
    await world.objects.delete([victim])

    async def nothing() -> None:
        pass

    with pytest.raises(CorruptError, match="is listed, but its object is missing"):
        await everything(world, InterferingObjects(world, 99, nothing), 24)
