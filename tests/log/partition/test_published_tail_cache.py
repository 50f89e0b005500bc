"""Afterglow: readers close behind find what was published last in RAM, within a budget, and nothing depends on it."""

from tests.support.partitions import PartitionWorld, append, batch, records
from tests.support.steps import executed_lines

from holdfast.log.batches import parse_header
from holdfast.log.partition.published_tail_cache import PublishedTailCache
from holdfast.log.partition.tail import Tail, TailBatch
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


def published(end_offset: int) -> Tail:
    """A tail with one batch."""
    data = batch("a")
    tail = Tail(end_offset - 1)
    tail.append(TailBatch(end_offset - 1, end_offset, data, parse_header(data)))
    return tail


def test_a_tail_is_dropped_without_a_look_at_the_others() -> None:
    def work(count: int) -> int:
        cache, tails = PublishedTailCache(1 << 20), [published(1) for _ in range(count)]
        for tail in tails:
            cache.keep(tail, 1)

        def drop_all() -> None:
            for tail in tails:
                cache.drop(tail)

        return executed_lines(drop_all)

    assert work(800) < 10 * work(100)


def test_dropped_tails_do_not_stay_in_memory() -> None:
    cache, tails = PublishedTailCache(1 << 20), [published(1) for _ in range(100)]
    for tail in tails:
        cache.keep(tail, 1)
    for tail in tails[:-1]:
        cache.drop(tail)
    assert cache.used_bytes == len(batch("a"))
    assert cache.entries <= 2


def test_a_tail_whose_batches_are_all_forgotten_keeps_none_of_them() -> None:
    tail = published(1)
    tail.forget_until(1)
    assert not tail._entries
    assert not tail._bases
    later = TailBatch(1, 2, batch("b"), parse_header(batch("b")))
    tail.append(later)
    assert tail.read(1, below=2, bytes_max=1) == [later.data]
    assert tail.mark_published(2) == len(later.data)
