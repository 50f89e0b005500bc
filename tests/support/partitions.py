"""A world for partitions: a store and objects in memory, a real WAL on disk, the host's clock, and agents that come and go."""

import errno
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest
from tests.support.wal_disks import BlockDisk

from holdfast.contracts.validation import StoreLimits
from holdfast.kernel.keys import partition_resource
from holdfast.kernel.lease import Lease, acquire, release
from holdfast.kernel.objects_owner import ObjectsOwner
from holdfast.kernel.session import HeldSession, SessionSettings
from holdfast.log.batches import Buffer, Record, RecordBatchLimits, decode, encode, split_batches
from holdfast.log.batches.batch_run import verify_run
from holdfast.log.keys import state_key
from holdfast.log.maintenance import MaintenanceContext, MaintenanceSettings
from holdfast.log.metadata import PartitionRecord
from holdfast.log.model import ACKS_ALL, PartitionConfig, PartitionId
from holdfast.log.partition.appendable_log import AppendResult
from holdfast.log.partition.dirty_partitions import DirtyPartitions
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.offset_assignment import assign_offsets, wal_frame
from holdfast.log.partition.published_tail_cache import PublishedTailCache
from holdfast.log.partition.publisher import SegmentPublisher
from holdfast.log.partition.resources import PartitionResources, ReplicationResources
from holdfast.log.partition.tail_budget import TailBudget
from holdfast.log.partition.takeover import open_partition
from holdfast.log.segment_list import load_segments
from holdfast.log.segments import SegmentReader
from holdfast.log.settings import LogSettings
from holdfast.log.wal import Wal, WalFrame, WalSettings
from holdfast.log.wal.identity import wal_identity
from holdfast.objects.memory import MemoryObjects
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faulty_objects import FaultyObjects
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import ClosedError, OutcomeUnknownError
from holdfast.vocabulary.random import SeededRandom
from holdfast.vocabulary.settings import KIB
from holdfast.vocabulary.types import TopicPartition

TOPIC_ID = "0123456789abcdef" * 2
ORDERS = PartitionId(topic="orders", topic_id=TOPIC_ID, number=0)
OTHER = PartitionId(topic="orders", topic_id=TOPIC_ID, number=1)


def batch(*values: str, producer: int = -1, epoch: int = 0, sequence: int = -1, at_ms: int = 1_000) -> bytes:
    """One batch with these values, one record each."""
    return encode(
        [Record(at, at_ms, None, value.encode()) for at, value in enumerate(values)],
        producer_id=producer,
        producer_epoch=epoch if producer >= 0 else -1,
        base_sequence=sequence,
    )


def records(buffers: Sequence[Buffer]) -> list[tuple[int, str]]:
    """(offset, value) of everything in the buffers."""
    return [
        (record.offset, (record.value or b"").decode())
        for buffer in buffers
        for each in split_batches(buffer, limits=RecordBatchLimits(), stored=True)
        for record in decode(each)
    ]


async def append(partition: LeadingPartition, *payloads: bytes, acks: int = ACKS_ALL) -> AppendResult:
    """Append as the service does: split and validated first."""
    batches = [each for payload in payloads for each in split_batches(payload, limits=RecordBatchLimits())]
    return await partition.append(batches, acks=acks)


async def append_run(partition: LeadingPartition, *payloads: bytes) -> AppendResult | None:
    """Append what small requests brought together, if that can be done at once, and wait until it is durable."""
    run = verify_run([bytearray(each) for each in payloads], limits=RecordBatchLimits(), records=True)
    assert run is not None
    appended = partition.append_run_now(run)
    if appended is not None:
        await partition.acknowledged(appended)
    return appended


class Owner:
    """An agent as far as one partition needs it: a session, a WAL, a publisher."""

    def __init__(self, world: "PartitionWorld", name: str) -> None:
        self.world, self.name = world, name
        self.objects = FaultyObjects(world.objects, clock=world.clock, random=world.random)
        self.store = FaultyStore(world.store, random=world.random)
        self.disk = FullDisk()
        self.session: HeldSession
        self.wal: Wal
        self.wal_id = ""
        self.replication: ReplicationResources | None = None
        self.stack = AsyncExitStack()

    async def start(self) -> "Owner":
        clock, random = self.world.clock, self.world.random
        self.wal = await self.stack.enter_async_context(
            Wal.open(
                self.world.directory / self.name,
                clock=clock,
                random=random,
                settings=WalSettings(file_bytes=256 * KIB),
                disk=self.disk,
            )
        )
        self.wal_id = await wal_identity(self.wal.directory, random=random)
        await self._open_session()
        self.publisher = SegmentPublisher(
            store=self.store, objects=self.objects, clock=clock, random=random, settings=self.world.settings
        )
        return self

    async def _open_session(self) -> None:
        granted = await self.world.store.open_session(30_000)
        clock = self.world.clock
        self.session = HeldSession(
            granted.id, granted.ttl_ms, opened_ms=clock.boot_ms(), clock=clock, settings=SessionSettings()
        )

    async def lose_session(self) -> None:
        """The store ends the session; the process lives on and opens another."""
        await self.world.store.close_session(self.session.id)
        self.session.deadline_ms = 0
        await self._open_session()

    async def acquire(self, partition_id: PartitionId = ORDERS) -> Lease:
        lease = await acquire(
            self.world.store,
            partition_resource(TopicPartition(partition_id.topic, partition_id.number)),
            holder=self.name,
            session=self.session.id,
            clock=self.world.clock,
            random=self.world.random,
        )
        assert isinstance(lease, Lease)
        return lease

    async def open(
        self,
        partition_id: PartitionId = ORDERS,
        *,
        partition_config: PartitionConfig | None = None,
        lease: Lease | None = None,
        leftovers: Sequence[WalFrame] = (),
        published_tail_cache: PublishedTailCache | None = None,
    ) -> LeadingPartition:
        async def frames(topic_id: bytes, number: int) -> AsyncIterator[WalFrame]:
            async for frame in self.wal.recovered.of(topic_id, number):
                yield frame
            for frame in leftovers:
                yield frame

        resources = self.resources(published_tail_cache=published_tail_cache or PublishedTailCache(0))
        return await open_partition(
            partition_id,
            lease or await self.acquire(partition_id),
            resources,
            config=partition_config,
            frames=frames,
        )

    def resources(
        self,
        *,
        published_tail_cache: PublishedTailCache | None = None,
        dirty_partitions: DirtyPartitions[LeadingPartition] | None = None,
        budget: TailBudget | None = None,
    ) -> PartitionResources:
        return PartitionResources(
            session=self.session,
            store=self.store,
            objects=self.objects,
            wal=self.wal,
            wal_id=self.wal_id,
            clock=self.world.clock,
            random=self.world.random,
            settings=self.world.settings,
            dirty_partitions=dirty_partitions or DirtyPartitions(),
            published_tail_cache=published_tail_cache or PublishedTailCache(0),
            budget=budget,
            replication=self.replication,
        )

    def maintenance(self) -> MaintenanceContext:
        """What retention, compaction and deletion of this agent work with."""
        world = self.world
        owner = ObjectsOwner(self.store, self.objects, cluster="here", clock=world.clock, random=world.random)
        return MaintenanceContext(
            store=self.store,
            objects=self.objects,
            owner=owner,
            clock=world.clock,
            random=world.random,
            log=world.settings,
            settings=MaintenanceSettings(),
        )

    async def hand_back(self, partition: LeadingPartition) -> None:
        """Graceful: drain, publish, release."""
        partition.stop_accepting()
        await partition.wait_durable()
        assert await self.publisher.publish([partition], closing=True) == []
        await release(self.store, partition.lease, clock=self.world.clock, random=self.world.random)
        partition.close(ClosedError("partition"))

    async def end(self) -> None:
        """The process ends; what was not closed is simply gone, and the session with it."""
        await self.world.store.close_session(self.session.id)
        await self.stack.aclose()


class FullDisk(BlockDisk):
    """A disk that a test can fill, or hold back before a sync."""

    def __init__(self) -> None:
        self.full = False
        self.gate: threading.Event | None = None
        self.waiting = False

    def write(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "full on purpose")
        return super().write(descriptor, buffers, position)

    def sync(self, descriptor: int) -> None:
        if self.gate is not None and threading.current_thread().name == "wal-writer":
            self.waiting = True
            self.gate.wait(30)
        super().sync(descriptor)


class HastyClock:
    """Ten seconds pass at every look, so that no commit waits."""

    def __init__(self) -> None:
        self._boot_ms = 0

    def now_ms(self) -> int:
        return 0

    def boot_ms(self) -> int:
        self._boot_ms += 10_001
        return self._boot_ms

    async def sleep_ms(self, duration_ms: float) -> None:
        return None


class PartitionWorld:
    """Everything that outlives an agent."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock, self.random = RealClock(), SeededRandom(7)
        self.store = MemoryStore(clock=self.clock, random=self.random, limits=StoreLimits())
        self.objects = MemoryObjects(clock=self.clock)
        self.settings = LogSettings(reserve_offsets=100)
        self.owners: list[Owner] = []

    async def owner(self, name: str = "ann") -> Owner:
        owner = Owner(self, name)
        self.owners.append(owner)
        return await owner.start()


async def publish_in_doubt(owner: Owner, partition: LeadingPartition, *, arrived: bool) -> None:
    """Publish, with the answer (or the request) lost, and the store away for longer than a commit waits; then it is back."""
    store, world = owner.store, owner.world
    (store.lose_answer_to if arrived else store.lose_request)("/seg/")
    hasty = SegmentPublisher(
        store=store, objects=owner.objects, clock=HastyClock(), random=world.random, settings=world.settings
    )

    async def away(commit_id: str) -> object:
        raise OutcomeUnknownError(commit_id, "still")

    with (
        patch.object(store, "resolve", away),
        patch("holdfast.contracts.commits.backoff_ms", lambda *_, **__: 4_000.0),
        pytest.raises(OutcomeUnknownError),
    ):
        await hasty.publish([partition])
    assert partition.fenced_record.in_doubt


async def published(world: PartitionWorld, partition_id: PartitionId = ORDERS) -> list[tuple[int, str]]:
    """(offset, value) of everything a stranger finds in object storage."""
    segments = await load_segments(world.store, partition_id.topic_id, partition_id.number)
    found: list[tuple[int, str]] = []
    async for each in segments.all(world.objects):
        batches = await SegmentReader(world.objects, each.object, each.start, each.end).read(each.base_offset, 1 << 30)
        assert isinstance(batches, list)
        found += records(batches)
    return found


async def stored(world: PartitionWorld, partition_id: PartitionId = ORDERS) -> PartitionRecord:
    """The partition's record as the store holds it."""
    entry = await world.store.get(state_key(partition_id.topic_id, partition_id.number))
    assert entry is not None
    return msgspec.json.decode(entry.value, type=PartitionRecord)


async def write_at(owner: Owner, partition: LeadingPartition, base_offset: int, *values: str) -> None:
    """A frame of the partition's leader at any offset, as if those before it had been lost."""
    batches = split_batches(batch(*values), limits=RecordBatchLimits())
    made = assign_offsets(batches, base_offset, partition.lease.epoch, copy_below_bytes=1 << 20)
    await owner.wal.append(
        wal_frame(bytes.fromhex(TOPIC_ID), partition.partition_id.number, partition.lease.epoch, made)
    )


async def with_hole(world: PartitionWorld) -> Owner:
    """Offset 0 is there, 1 to 4 are not, 5 is; another partition of the same WAL is whole."""
    ann = await world.owner()
    partition, other = await ann.open(), await ann.open(OTHER)
    await append(partition, batch("a"))
    await append(other, batch("whole"))
    await write_at(ann, partition, 5, "behind the hole")
    await ann.end()
    return await world.owner()
