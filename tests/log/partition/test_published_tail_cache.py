"""Afterglow: readers close behind find what was published last in RAM, within a budget, and nothing depends on it."""

from tests.support.partitions import PartitionWorld, append, batch, records

from holdfast.log.partition.published_tail_cache import PublishedTailCache
from holdfast.log.partition.tail import Tail
from holdfast.log.reader import LogReader
from holdfast.vocabulary.errors import ClosedError


async def test_what_was_published_last_is_read_without_object_storage(world: PartitionWorld) -> None:
    ann = await world.owner()
    published_tail_cache = PublishedTailCache(10_000)
    partition = await ann.open(published_tail_cache=published_tail_cache)
    reading = LogReader(ann.objects, clock=world.clock, settings=world.settings)
    for value in ("a", "b"):
        await append(partition, batch(value))
        await ann.publisher.publish([partition])
    assert partition.unpublished_bytes == 0
    ann.objects.reachable = False
    fetched = await reading.fetch(partition, 0, bytes_max=1 << 20)
    assert records(fetched.batches) == [(0, "a"), (1, "b")]


async def test_what_does_not_fit_any_more_is_read_from_object_storage(world: PartitionWorld) -> None:
    ann = await world.owner()
    one = len(batch("a"))
    published_tail_cache = PublishedTailCache(one)
    partition = await ann.open(published_tail_cache=published_tail_cache)
    reading = LogReader(ann.objects, clock=world.clock, settings=world.settings)
    for value in ("a", "b", "c"):
        await append(partition, batch(value))
        await ann.publisher.publish([partition])
    assert published_tail_cache.used_bytes == one
    assert partition.tail.start == 2
    assert records((await reading.fetch(partition, 0, bytes_max=1 << 20)).batches)[0] == (0, "a")


async def test_a_closed_partition_leaves_no_glow(world: PartitionWorld) -> None:
    ann = await world.owner()
    published_tail_cache = PublishedTailCache(10_000)
    partition = await ann.open(published_tail_cache=published_tail_cache)
    await append(partition, batch("a"))
    await ann.publisher.publish([partition])
    assert published_tail_cache.used_bytes
    partition.close(ClosedError("partition"))
    assert published_tail_cache.used_bytes == 0


def test_without_a_budget_nothing_glows() -> None:
    tail = Tail(0)
    PublishedTailCache(0).keep(tail, 5)
    assert tail.size_bytes == 0


async def test_what_was_rewritten_is_read_as_it_is_now(world: PartitionWorld) -> None:
    ann = await world.owner()
    published_tail_cache = PublishedTailCache(10_000)
    partition = await ann.open(published_tail_cache=published_tail_cache)
    for value in ("a", "b"):
        await append(partition, batch(value))
        await ann.publisher.publish([partition])
    await append(partition, batch("c"))
    partition.evict_rewritten(2)
    assert partition.tail.start == 2
    assert partition.unpublished_bytes == len(batch("c"))
    partition.evict_rewritten(9)
    assert records(partition.tail.read(2, below=3, bytes_max=1)) == [(2, "c")]
