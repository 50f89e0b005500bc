"""Partitions that are opened at the same time are read together."""

import asyncio

import pytest
from tests.support.partitions import TOPIC_ID, PartitionWorld

from holdfast.contracts.store import Put, Scan
from holdfast.log.keys import segment_entry_key, state_key
from holdfast.log.partition.partition_reads import PartitionReads
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.errors import UnavailableError

OTHER_ID = "f" * 32


async def filled(world: PartitionWorld) -> FaultyStore:
    """Twenty partitions of one topic, and one of another."""
    for topic_id, numbers in ((TOPIC_ID, range(20)), (OTHER_ID, range(1))):
        for number in numbers:
            keys = segment_entry_key(topic_id, number, 7), state_key(topic_id, number)
            await world.store.commit(apply=[Put(key, b'"%d"' % number) for key in keys])
    return FaultyStore(world.store, random=world.random)


async def test_neighbours_are_read_in_one_scan_and_each_gets_its_own(world: PartitionWorld) -> None:
    store = await filled(world)
    reads = PartitionReads(store)
    places = [*((TOPIC_ID, number) for number in range(20)), (TOPIC_ID, 25), (OTHER_ID, 0)]
    found = await asyncio.gather(*(reads.read(*place) for place in reversed(places)))
    for place, entries in zip(reversed(places), found, strict=True):
        expected = [] if place == (TOPIC_ID, 25) else [segment_entry_key(*place, 7), state_key(*place)]
        assert [entry.key for entry in entries] == expected
    assert store.calls["scan"] == 4  # sixteen and four neighbours, one that is alone, another topic


async def test_a_read_that_fails_fails_for_all_and_the_next_one_is_made(world: PartitionWorld) -> None:
    store = await filled(world)
    reads = PartitionReads(store)
    store.reachable = False
    found = await asyncio.gather(*(reads.read(TOPIC_ID, number) for number in range(5)), return_exceptions=True)
    assert [type(each) for each in found] == [UnavailableError] * 5
    store.reachable = True
    assert len(await reads.read(TOPIC_ID, 3)) == 2


async def test_who_gives_up_while_it_reads_for_others_leaves_them_an_error_they_can_retry(
    world: PartitionWorld,
) -> None:
    store = await filled(world)
    reads, real, asked = PartitionReads(store), store.scan, asyncio.Event()

    async def unanswered(start: str, end: str, **_: object) -> Scan:
        asked.set()
        return await asyncio.Event().wait()  # type: ignore[return-value]

    store.scan = unanswered  # type: ignore[method-assign]
    first, second = (asyncio.ensure_future(reads.read(TOPIC_ID, number)) for number in range(2))
    await asked.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    with pytest.raises(UnavailableError, match="given up"):
        await second
    store.scan = real  # type: ignore[method-assign]
    assert len(await reads.read(TOPIC_ID, 1)) == 2
