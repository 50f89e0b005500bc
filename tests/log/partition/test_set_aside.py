"""A tail that a takeover left out is kept in a file of its own until somebody decides (docs/safety.md, rules 9 and 29)."""

from pathlib import Path

import pytest
from tests.support.partitions import (
    ORDERS,
    OTHER,
    TOPIC_ID,
    Owner,
    PartitionWorld,
    append,
    batch,
    records,
    stored,
    with_hole,
)
from tests.support.wal import flip

from holdfast.contracts.store import Put
from holdfast.log.keys import topic_id_key
from holdfast.log.model import PartitionConfig
from holdfast.log.partition.unpublished_frames import UnpublishedFrames
from holdfast.log.wal.files import live_files
from holdfast.log.wal.inspection import inspect
from holdfast.log.wal.repair import repair
from holdfast.log.wal.set_aside import SetAsideTail, find_tail, list_tails, read_tail, settle_tail
from holdfast.vocabulary.errors import CorruptError, InvalidError

UNCLEAN = PartitionConfig(unclean_takeover=True)


async def left_behind(world: PartitionWorld) -> Owner:
    """Ann's WAL holds "b" and "c" of epoch 1; Bob went on without them and handed back. Returns Ann's next life."""
    ann = await world.owner("ann")
    partition = await ann.open()
    await append(partition, batch("a"))
    await ann.publisher.publish([partition])
    await append(partition, batch("b"))
    await append(partition, batch("c"))
    await ann.end()
    bob = await world.owner("bob")
    bobs = await bob.open(partition_config=UNCLEAN)
    await append(bobs, batch("d"))
    await bob.hand_back(bobs)
    await bob.end()
    return await world.owner("ann")


def unpublished(owner: Owner) -> UnpublishedFrames:
    return UnpublishedFrames(owner.wal, owner.wal_id, owner.store, clock=owner.world.clock)


def kept(owner: Owner) -> list[SetAsideTail]:
    return [tail for tail in list_tails(owner.wal.directory) if tail.state == "kept"]


async def test_an_agent_that_comes_back_sets_the_tail_aside_and_frees_its_wal(world: PartitionWorld) -> None:
    ann = await left_behind(world)
    await world.store.commit(require=(), apply=(Put(topic_id_key(TOPIC_ID), b'{"name": "orders"}'),))
    assert list(ann.wal.unreleased()) == [(bytes.fromhex(TOPIC_ID), 0)]
    await unpublished(ann).release_unneeded()
    assert ann.wal.unreleased() == {}
    (tail,) = kept(ann)
    assert (tail.topic, tail.topic_id, tail.partition) == ("orders", TOPIC_ID, 0)
    assert (tail.first_offset, tail.end_offset, tail.records, tail.batches) == (1, 3, 2, 2)
    assert tail.wal == ann.wal_id
    assert records([each.data for each in read_tail(ann.wal.directory, tail)]) == [(1, "b"), (2, "c")]


async def test_an_agent_that_leads_the_partition_again_sets_the_tail_aside_before_it_publishes(
    world: PartitionWorld,
) -> None:
    ann = await left_behind(world)
    partition = await ann.open()
    await append(partition, batch("e"))
    await ann.publisher.publish([partition])
    (tail,) = kept(ann)
    assert (tail.topic, tail.first_offset, tail.end_offset) == (ORDERS.topic, 1, 3)
    await ann.end()
    ann = await world.owner("ann")
    await unpublished(ann).release_unneeded()
    await ann.open()
    assert len(kept(ann)) == 1


@pytest.mark.parametrize("state", ["appended", "dropped"])
async def test_what_was_settled_does_not_come_back_with_a_restart(world: PartitionWorld, state: str) -> None:
    ann = await left_behind(world)
    await unpublished(ann).release_unneeded()
    (tail,) = kept(ann)
    settle_tail(ann.wal.directory, tail, state, now_ms=5)
    await ann.end()
    ann = await world.owner("ann")  # the frames may still stand in a live file
    await unpublished(ann).release_unneeded()
    assert kept(ann) == []
    assert [each.state for each in list_tails(ann.wal.directory)] == [state]
    assert list((ann.wal.directory / "set-aside").glob("*.batches")) == []


async def test_what_lies_behind_a_hole_is_set_aside_when_the_partition_goes_on_without_it(
    world: PartitionWorld,
) -> None:
    ann = await with_hole(world)
    partition = await ann.open(partition_config=UNCLEAN)
    (tail,) = kept(ann)
    assert records([each.data for each in read_tail(ann.wal.directory, tail)]) == [(5, "behind the hole")]
    await ann.publisher.publish([partition])
    assert (await stored(world)).published == 100


async def test_a_damaged_tail_is_not_read_as_if_it_were_whole(world: PartitionWorld) -> None:
    ann = await left_behind(world)
    await unpublished(ann).release_unneeded()
    (tail,) = kept(ann)
    (file,) = (ann.wal.directory / "set-aside").glob("*.batches")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CorruptError, match=file.name):
        read_tail(ann.wal.directory, tail)


def test_a_directory_without_tails_has_none(tmp_path: Path) -> None:
    assert list_tails(tmp_path) == []
    with pytest.raises(InvalidError, match="nothing is set aside"):
        find_tail(tmp_path, "none")


async def repaired(world: PartitionWorld) -> Owner:
    """ "a", "b" and "c" were acknowledged, "b" is damaged and a repair was made; the other partition lost nothing."""
    ann = await world.owner()
    partition, other = await ann.open(), await ann.open(OTHER)
    for value in "abc":
        await append(partition, batch(value + "!" * 50))
    await append(other, batch("whole"))
    directory = ann.wal.directory
    await ann.end()
    (file,) = (path for _, path in live_files(directory) if b"b!!!!" in path.read_bytes())
    flip(file, file.read_bytes().index(b"b!!!!"))
    report = repair(directory, clock=world.clock, random=world.random)
    assert report is not None
    assert (len(report.lost), len(report.in_doubt)) == (1, 1)
    return await world.owner()


async def test_offsets_that_a_repair_lost_are_not_handed_out_again(world: PartitionWorld) -> None:
    ann = await repaired(world)
    partition, other = await ann.open(), await ann.open(OTHER)
    assert [value[0] for _, value in records(partition.read_tail(0, bytes_max=1 << 20) or [])] == ["a"]
    assert (partition.next_offset, other.next_offset) == (100, 1)
    (gap,) = (await stored(world)).gaps
    assert (gap.start, gap.end, gap.wal) == (1, 100, ann.wal_id)
    # What could still be read is set aside.
    (tail,) = kept(ann)
    assert tail.wal == ann.wal_id
    assert inspect(ann.wal.directory).tails == [tail.name]
    assert [value[0] for _, value in records([each.data for each in read_tail(ann.wal.directory, tail)])] == ["c"]
    assert (tail.first_offset, "repair 1" in tail.reason) == (2, True)


async def test_a_repair_is_taken_into_account_once(world: PartitionWorld) -> None:
    ann = await repaired(world)
    partition = await ann.open()
    await append(partition, batch("d"))
    await ann.end()
    ann = await world.owner()
    partition = await ann.open()
    assert partition.next_offset == 101
    assert len((await stored(world)).gaps) == 1
    await ann.hand_back(partition)
    assert (await stored(world)).clean
