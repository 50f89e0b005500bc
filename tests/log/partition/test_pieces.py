"""A publication of what has grown to several segments: built side by side, named by one commit, all or none."""

import asyncio
import threading
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pytest
from tests.support.partitions import (
    ORDERS,
    OTHER,
    Owner,
    PartitionWorld,
    append,
    batch,
    publish_in_doubt,
    published,
    stored,
)

from holdfast.contracts.objects import Buffer, Missing
from holdfast.contracts.store import Put
from holdfast.log.keys import deletion_mark_key
from holdfast.log.model import PartitionConfig, PartitionId
from holdfast.log.partition import publisher
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.segments import SegmentReader
from holdfast.log.settings import LogSettings
from holdfast.vocabulary.errors import UnavailableError

ROLL_BYTES = 1_000


async def grown(owner: Owner, batches: int = 10, size: int = 400) -> LeadingPartition:
    """A partition with batches of an idempotent producer, some segments' worth of them."""
    partition = await owner.open(partition_config=PartitionConfig(roll_bytes=ROLL_BYTES))
    for number in range(batches):
        await append(partition, batch(f"{number}:".ljust(size, "x"), producer=7, sequence=number))
    return partition


def numbers(found: Sequence[tuple[int, str]]) -> list[int]:
    return [int(value.partition(":")[0]) for _, value in found]


async def test_it_becomes_several_segments_in_one_commit(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await grown(ann)
    commits = ann.store.calls["commit"]
    assert await ann.publisher.publish([partition]) == []
    assert ann.store.calls["commit"] == commits + 1
    segments = partition.segments.recent
    assert len(segments) == partition.segments_published == 5
    assert [each.base_offset for each in segments] == [0, *(each.end_offset for each in segments[:-1])]
    assert segments[-1].end_offset == partition.record.published == 10
    assert max(each.records for each in segments) <= 3
    assert numbers(await published(world)) == list(range(10))
    assert partition.tail.size_bytes == 0


async def test_a_core_is_left_for_whoever_waits_for_an_answer_and_publications_take_turns(
    world: PartitionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Building on every core holds up the event loop and the log's thread, and it is never urgent."""
    build, one, built = publisher._build, threading.Lock(), list[PartitionId]()

    def watched(pieces: Any) -> Any:
        assert one.acquire(blocking=False), "two at a time"
        try:
            built.append(pieces[0][0].partition_id)
            return build(pieces)
        finally:
            one.release()

    monkeypatch.setattr(publisher, "_build", watched)
    monkeypatch.setattr(publisher, "_BUILT_TOGETHER_MAX", 1)
    monkeypatch.setattr(publisher, "_BUILDERS_MAX", 1)
    ann = await world.owner()
    config = PartitionConfig(roll_bytes=ROLL_BYTES)
    partitions = [await ann.open(each, partition_config=config) for each in (ORDERS, OTHER)]
    for partition in partitions:
        for _ in range(20):
            await append(partition, batch("x" * 400))
    await asyncio.gather(*(ann.publisher.publish([each]) for each in partitions))
    assert len(built) == 16
    assert max(len(list(same)) for _, same in groupby(built)) <= 2


@pytest.mark.parametrize(("batches", "segments"), [(1, 1), (2, 1), (3, 2), (60, 8)])
async def test_there_are_as_many_as_it_has_grown_to_and_at_most_eight(
    world: PartitionWorld, batches: int, segments: int
) -> None:
    ann = await world.owner()
    partition = await grown(ann, batches)
    await ann.publisher.publish([partition])
    assert partition.segments_published == segments
    assert numbers(await published(world)) == list(range(batches))


async def test_the_newest_footer_knows_the_producers(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await grown(ann)
    await ann.hand_back(partition)
    known = []
    for each in partition.segments.recent:
        producers = await SegmentReader(world.objects, each.object, each.start, each.end).producers()
        assert not isinstance(producers, Missing)
        known.append([producer.producer_id for producer in producers.producers])
    assert known == [[]] * (len(known) - 1) + [[7]]
    bobs = await (await world.owner("bob")).open()
    again = await append(bobs, batch("9:".ljust(400, "x"), producer=7, sequence=9))
    assert again.duplicate
    assert (await append(bobs, batch("10:", producer=7, sequence=10))).base_offset == 10


async def test_if_one_is_marked_for_deletion_none_is_listed_and_all_are_uploaded_again(world: PartitionWorld) -> None:
    world.settings = LogSettings(reserve_offsets=100, shared_below_bytes=1)  # or they would share an object
    ann = await world.owner()
    partition = await grown(ann)
    real_put, uploaded = ann.objects.put, list[str]()

    async def put_and_doom_the_third(key: str, body: Sequence[Buffer]) -> object:
        done = await real_put(key, body)
        uploaded.append(key)
        if len(uploaded) == 3:
            await world.store.commit(apply=[Put(deletion_mark_key(key), b"{}")])
        return done

    ann.objects.put = put_and_doom_the_third  # type: ignore[method-assign,assignment]
    await ann.publisher.publish([partition])
    assert len(uploaded) == 5
    assert partition.record.published == 0
    assert await published(world) == []
    ann.objects.put = real_put  # type: ignore[method-assign]
    await ann.publisher.publish([partition])
    assert numbers(await published(world)) == list(range(10))
    assert not {each.object for each in partition.segments.recent} & set(uploaded)


async def test_if_an_upload_fails_none_is_named(world: PartitionWorld) -> None:
    ann = await world.owner()
    partition = await grown(ann)
    ann.objects.reachable = False
    with pytest.raises(UnavailableError):
        await ann.publisher.publish([partition])
    assert await published(world) == []
    ann.objects.reachable = True
    await ann.publisher.publish([partition])
    assert numbers(await published(world)) == list(range(10))


@pytest.mark.parametrize("arrived", [True, False])
async def test_an_answer_that_was_lost_is_of_all_of_them(world: PartitionWorld, arrived: bool) -> None:
    ann = await world.owner()
    partition = await grown(ann)
    await publish_in_doubt(ann, partition, arrived=arrived)
    await ann.publisher.publish([partition])
    assert numbers(await published(world)) == list(range(10))
    assert partition.segments_published == 5
    assert partition.record == await stored(world)
