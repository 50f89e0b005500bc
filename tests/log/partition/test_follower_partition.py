"""What a replica shows of a partition that another agent leads: what the leader acknowledged, and never more."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.support.partitions import ORDERS, OTHER, Owner, append, append_run, batch, records
from tests.support.replication.logs import announce, at, base, entry, start
from tests.support.replication.logs import append as message
from tests.support.replication.partitions import ReplicatedWorld, open_replicated
from tests.support.waiting import async_until

from holdfast.kernel.lease import Held
from holdfast.log.batches import Record, RecordBatchLimits, encode, split_batches
from holdfast.log.errors import FencedLeaderEpochError, NotLeaderError, OffsetOutOfRangeError, UnknownLeaderEpochError
from holdfast.log.follower_reads import FollowerReads
from holdfast.log.partition.follower_partition import FollowerPartition
from holdfast.log.partition.replicated_partition import ReplicatedPartition
from holdfast.log.partition_read import PartitionRead
from holdfast.log.reader import LogReader
from holdfast.log.replication.messages import Answer, Request
from holdfast.log.replication.positions import NOWHERE, PartitionKey
from holdfast.log.settings import LogSettings
from holdfast.vocabulary.errors import ExpiredError

KEY: PartitionKey = (bytes.fromhex(ORDERS.topic_id), ORDERS.number)
PAGE = 1 << 20


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ReplicatedWorld]:
    made = ReplicatedWorld(tmp_path)
    yield made
    for owner in made.owners:
        await owner.end()


class Reader:
    """A consumer of one agent's replica. `lease_epoch`: what that agent has heard of the lease."""

    def __init__(self, world: ReplicatedWorld, name: str) -> None:
        self.host, self.lease_epoch = world.hosts[name], 0
        self.reads = FollowerReads(
            self.host,
            leader=self._leader,
            store=world.store,
            reading=LogReader(world.objects, clock=world.clock, settings=LogSettings()),
            clock=world.clock,
        )

    def _leader(self, topic: str, number: int) -> Held | None:
        return (
            Held(resource="r", holder="ann", session="s", epoch=self.lease_epoch, version=1)
            if self.lease_epoch
            else None
        )

    async def read(self, offset: int = 0, *, leader_epoch: int = -1) -> PartitionRead:
        return await self.reads.read(ORDERS, offset, bytes_max=PAGE, leader_epoch=leader_epoch)

    async def values(self, offset: int = 0) -> list[str]:
        return [value for at_offset, value in records((await self.read(offset)).batches) if at_offset >= offset]

    async def all_values(self) -> list[str]:
        """Everything, fetch by fetch."""
        found: list[tuple[int, str]] = []
        while more := (await self.read(found[-1][0] + 1 if found else 0)).batches:
            found += records(more)
        assert [offset for offset, _ in found] == list(range(len(found)))
        return [value for _, value in found]

    def visible(self) -> int:
        hosted = self.host.get(KEY)
        return -1 if hosted is None else hosted.visible.value


async def shown(partition: ReplicatedPartition, reader: Reader) -> None:
    """Wait until the replica has everything, and was told that it is acknowledged."""
    partition.announce()
    await async_until(lambda: reader.visible() == partition.high_watermark)


async def publish(owner: Owner, partition: ReplicatedPartition) -> None:
    await owner.publisher.publish([partition])


async def test_a_replica_shows_what_was_acknowledged_before_it_is_published(world: ReplicatedWorld) -> None:
    ann, *_ = await world.three()
    partition = await open_replicated(ann)
    await append(partition, batch("a", "b"))
    await append_run(partition, batch("c"), batch("d"))
    reader = Reader(world, "bob")
    await shown(partition, reader)
    assert await reader.values() == ["a", "b", "c", "d"]
    assert await reader.values(3) == ["d"]
    found = await reader.read(4)
    assert (list(found.batches), found.high_watermark, found.epoch) == ([], 4, 1)
    small = await reader.reads.read(ORDERS, 2, bytes_max=1, leader_epoch=-1)
    assert records(small.batches) == [(2, "c")]


async def test_published_records_come_from_object_storage_and_the_rest_from_memory(world: ReplicatedWorld) -> None:
    ann, *_ = await world.three()
    partition = await open_replicated(ann)
    reader = Reader(world, "carol")
    expected: list[str] = []
    for number in range(4):
        expected += [f"a{number}", f"b{number}"]
        await append(partition, batch(*expected[-2:]))
        if number == 1:
            await shown(partition, reader)
            assert await reader.values() == expected
            await publish(ann, partition)
            await async_until(
                lambda: _base(reader) == 4
            )  # the replica has forgotten what the reader had listed as its own
    await shown(partition, reader)
    assert await reader.all_values() == expected
    assert await reader.values(4) == expected[4:]
    assert records((await reader.read(3)).batches)[0][0] <= 3
    with pytest.raises(OffsetOutOfRangeError):
        await reader.read(-5)


def _base(reader: Reader) -> int:
    hosted = reader.host.get(KEY)
    assert hosted is not None
    assert hosted.replica is not None
    return hosted.replica.log.base.offset


async def test_in_memory_reads_need_no_waiting(world: ReplicatedWorld) -> None:
    ann, *_ = await world.three()
    partition = await open_replicated(ann)
    await append(partition, batch("a"))
    reader = Reader(world, "bob")
    await shown(partition, reader)
    assert reader.reads.read_now(ORDERS, 0, bytes_max=PAGE, leader_epoch=-1) is None  # the store was not asked yet
    await reader.read()
    found = reader.reads.read_now(ORDERS, 0, bytes_max=PAGE, leader_epoch=-1)
    assert found is not None
    assert records(found.batches) == [(0, "a")]
    ahead = reader.reads.read_now(ORDERS, 9, bytes_max=PAGE, leader_epoch=-1)
    assert ahead is not None
    assert (list(ahead.batches), ahead.high_watermark) == ([], 1)
    await append(partition, batch("b"))
    await publish(ann, partition)
    await async_until(lambda: _base(reader) == 2)
    assert reader.reads.read_now(ORDERS, 1, bytes_max=PAGE, leader_epoch=-1) is None  # what it had listed is behind
    assert await reader.values(1) == ["b"]
    later = reader.reads.read_now(ORDERS, 0, bytes_max=PAGE, leader_epoch=-1)
    assert later is not None
    assert later.high_watermark == 2


async def test_a_reader_ahead_of_a_replica_waits_for_it(world: ReplicatedWorld) -> None:
    """Another replica has shown it more: never out of range."""
    ann, bob, _ = await world.three()
    partition = await open_replicated(ann)
    reader = Reader(world, "bob")
    await append(partition, batch("a"))
    await shown(partition, reader)
    world.cluster.cut(ann.wal_id, bob.wal_id)
    await append(partition, batch("b"))
    found = await reader.read(2)
    assert (list(found.batches), found.high_watermark) == ([], 1)
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    found.progress.resolve_beyond(found.high_watermark, waiter)
    world.cluster.heal(ann.wal_id, bob.wal_id)
    await async_until(lambda: _end(reader) == 2)
    partition.announce()
    await waiter
    assert found.progress.high_watermark == 2
    assert found.progress.read_tail(1, bytes_max=PAGE) is not None


def _end(reader: Reader) -> int:
    hosted = reader.host.get(KEY)
    assert hosted is not None
    assert hosted.replica is not None
    return hosted.replica.log.position.offset


async def test_a_replica_without_its_leader_refuses(world: ReplicatedWorld) -> None:
    ann, bob, _ = await world.three()
    partition = await open_replicated(ann)
    reader = Reader(world, "bob")
    with pytest.raises(NotLeaderError, match="there is no replica here"):
        await reader.reads.read(OTHER, 0, bytes_max=PAGE, leader_epoch=-1)
    await append(partition, batch("a"))
    await shown(partition, reader)
    assert await reader.values() == ["a"]
    hosted = reader.host.get(KEY)
    assert hosted is not None
    hosted.written_at_ms -= reader.host.settings.lag_ms
    with pytest.raises(NotLeaderError, match="has not heard of its leader"):
        await reader.read()
    reader.host.heard(ann.wal_id, world.clock.boot_ms())  # its agent is alive, and has nothing to send
    assert await reader.values() == ["a"]
    reader.lease_epoch = 2  # another leader is known, of whom the replica has not heard
    with pytest.raises(NotLeaderError, match="has not heard of its leader"):
        await reader.read()
    reader.lease_epoch = 1
    with pytest.raises(UnknownLeaderEpochError):
        await reader.read(leader_epoch=2)
    with pytest.raises(FencedLeaderEpochError):
        await reader.read(leader_epoch=0)
    assert bob.wal_id == reader.host.wal_id


async def test_after_a_takeover_what_was_visible_stays_and_the_new_leader_adds_to_it(world: ReplicatedWorld) -> None:
    ann, bob, _ = await world.three()
    partition = await open_replicated(ann)
    reader = Reader(world, "carol")
    await append(partition, batch("a"))
    await shown(partition, reader)
    await world.kill(ann)
    taken = await open_replicated(bob)
    await append(taken, batch("b"))
    await shown(taken, reader)
    assert await reader.values() == ["a", "b"]
    assert (await reader.read()).epoch == taken.epoch


# ── messages by hand ──


async def tell(reader: Reader, request: Request) -> Answer | None:
    answers: list[Answer | None] = []
    reader.host.handle(msgspec.structs.replace(request, partition=KEY), "leader", answers.append)
    await async_until(lambda: bool(answers))
    return answers[0]


async def test_the_high_watermark_counts_only_for_what_matches_the_leader(world: ReplicatedWorld) -> None:
    await world.owner("bob")
    reader = Reader(world, "bob")
    written = entry(1, 0, data=_stamped("a", 0)), entry(1, 1, data=_stamped("b", 1))
    await tell(reader, message(1, NOWHERE, start(1, 0), *written, hw=1))
    assert await reader.values() == ["a"]  # the second is there, and not acknowledged
    await tell(reader, message(2, at(1, 1), hw=9))  # matches up to the first alone
    assert await reader.values() == ["a"]
    assert (await reader.read(0)).high_watermark == 1
    await tell(reader, message(2, at(1, 1), start(2, 1), entry(2, 1, data=_stamped("c", 1)), hw=2))
    assert await reader.values() == ["a", "c"]


async def test_a_log_that_begins_again_shows_no_gap(world: ReplicatedWorld) -> None:
    """What was visible is not there any more, until the leader sends it again: a reader waits, and skips nothing."""
    await world.owner("bob")
    reader = Reader(world, "bob")
    written = entry(1, 0, data=_stamped("a", 0)), entry(1, 1, data=_stamped("b", 1))
    await tell(reader, message(1, NOWHERE, start(1, 0), *written, hw=2))
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    found = await reader.read(2)
    found.progress.resolve_beyond(2, waiter)
    await tell(reader, base(2, at(2, 0)))
    with pytest.raises(NotLeaderError):
        await waiter
    assert (await reader.read(1)).batches == []
    assert (await reader.read(0)).high_watermark == 0
    await tell(reader, message(2, at(2, 0), entry(2, 0, data=_stamped("a", 0)), hw=1))
    await tell(reader, announce(2, hw=1))
    assert await reader.values() == ["a"]
    assert isinstance(found.progress, FollowerPartition)


def _stamped(value: str, offset: int) -> bytes:
    """A batch as a leader numbers it."""
    return encode([Record(offset, 1_000, None, value.encode())], base_offset=offset)


async def test_replicas_show_more_than_a_leader_may_that_lost_its_session(world: ReplicatedWorld) -> None:
    ann, *_ = await world.three()
    partition = await open_replicated(ann)
    await append(partition, batch("a"))
    appended = partition.append_now(split_batches(batch("b"), limits=RecordBatchLimits()))
    assert appended is not None
    ann.session.deadline_ms = 0  # it was suspended before the replicas answered
    with pytest.raises(ExpiredError):
        await partition.acknowledged(appended)
    reader = Reader(world, "bob")
    await shown(partition, reader)
    assert await reader.values() == ["a", "b"]
    assert partition.retained().high_watermark == 1  # so it must not be asked where its own epoch ends
