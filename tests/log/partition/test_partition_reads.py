"""Partitions that are opened together are read together."""

from tests.support.partitions import TOPIC_ID, PartitionWorld

from holdfast.contracts.store import Put
from holdfast.log.keys import segment_entry_key, state_key
from holdfast.log.partition.partition_reads import read_partitions
from holdfast.testing.faulty_store import FaultyStore

OTHER_ID = "f" * 32


async def filled(world: PartitionWorld) -> FaultyStore:
    """Thirty partitions of one topic, and one of another."""
    for topic_id, numbers in ((TOPIC_ID, range(30)), (OTHER_ID, range(1))):
        for number in numbers:
            keys = segment_entry_key(topic_id, number, 7), state_key(topic_id, number)
            await world.store.commit(apply=[Put(key, b'"%d"' % number) for key in keys])
    return FaultyStore(world.store, random=world.random)


async def test_neighbours_are_read_in_one_scan_and_each_gets_its_own(world: PartitionWorld) -> None:
    store = await filled(world)
    places = [*((TOPIC_ID, number) for number in range(30)), (TOPIC_ID, 35), (OTHER_ID, 0)]
    found = await read_partitions(store, places[::-1])
    for place, entries in zip(reversed(places), found, strict=True):
        expected = [] if place == (TOPIC_ID, 35) else [segment_entry_key(*place, 7), state_key(*place)]
        assert [entry.key for entry in entries] == expected
    assert store.calls["scan"] == 4  # twenty-four and six neighbours, one that is alone, another topic
