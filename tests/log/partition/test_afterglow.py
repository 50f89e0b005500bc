"""Afterglow: readers close behind find what was published last in RAM, within a budget, and nothing depends on it."""

from tests.log.partition.making import World, append, batch, records

from holdfast.log.partition.afterglow import Afterglow
from holdfast.log.partition.tail import Tail
from holdfast.log.reading import Reading
from holdfast.vocabulary.errors import ClosedError


async def test_what_was_published_last_is_read_without_object_storage(world: World) -> None:
    ann = await world.owner()
    afterglow = Afterglow(10_000)
    partition = await ann.open(afterglow=afterglow)
    reading = Reading(ann.objects, clock=world.clock, settings=world.settings)
    for value in ("a", "b"):
        await append(partition, batch(value))
        await ann.publisher.publish([partition])
    assert partition.unpublished_bytes == 0
    ann.objects.reachable = False
    fetched = await reading.fetch(partition, 0, bytes_max=1 << 20)
    assert records(fetched.batches) == [(0, "a"), (1, "b")]


async def test_what_does_not_fit_any_more_is_read_from_object_storage(world: World) -> None:
    ann = await world.owner()
    one = len(batch("a"))
    afterglow = Afterglow(one)
    partition = await ann.open(afterglow=afterglow)
    reading = Reading(ann.objects, clock=world.clock, settings=world.settings)
    for value in ("a", "b", "c"):
        await append(partition, batch(value))
        await ann.publisher.publish([partition])
    assert afterglow.used_bytes == one
    assert partition.tail.start == 2
    assert records((await reading.fetch(partition, 0, bytes_max=1 << 20)).batches)[0] == (0, "a")


async def test_a_closed_partition_leaves_no_glow(world: World) -> None:
    ann = await world.owner()
    afterglow = Afterglow(10_000)
    partition = await ann.open(afterglow=afterglow)
    await append(partition, batch("a"))
    await ann.publisher.publish([partition])
    assert afterglow.used_bytes
    partition.close(ClosedError("partition"))
    assert afterglow.used_bytes == 0


def test_without_a_budget_nothing_glows() -> None:
    tail = Tail(0)
    Afterglow(0).keep(tail, 5)
    assert tail.size_bytes == 0


async def test_what_was_rewritten_is_read_as_it_is_now(world: World) -> None:
    ann = await world.owner()
    afterglow = Afterglow(10_000)
    partition = await ann.open(afterglow=afterglow)
    for value in ("a", "b"):
        await append(partition, batch(value))
        await ann.publisher.publish([partition])
    await append(partition, batch("c"))
    partition.was_rewritten(2)
    assert partition.tail.start == 2
    assert partition.unpublished_bytes == len(batch("c"))
    partition.was_rewritten(9)
    assert records(partition.tail.read(2, below=3, bytes_max=1)) == [(2, "c")]
