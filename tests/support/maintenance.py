"""A log world in RAM: real partitions, publisher, store and objects; only the WAL's disk is left out. No real time passes."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar, cast

import msgspec
import pytest

from holdfast.contracts.objects import Missing
from holdfast.contracts.store import Entry, Put, Store
from holdfast.contracts.validation import StoreLimits, prefix_end
from holdfast.kernel.cluster_identity import cluster_identity
from holdfast.kernel.lease import Lease, acquire, release
from holdfast.kernel.objects_owner import MARKS, ObjectsOwner, claim_objects, owner_of
from holdfast.kernel.session import HeldSession, SessionSettings, hold_session
from holdfast.log.batches import Record, RecordBatchLimits, decode, encode, split_batches
from holdfast.log.keys import DELETION_MARKS, LOGS, TRASH, deleted_key, state_key
from holdfast.log.maintenance import (
    SWEEPER,
    MaintenanceContext,
    MaintenanceSettings,
    collect_trash,
    expire_deletion_marks,
    purge_deleted,
    sweep_orphans,
)
from holdfast.log.maintenance.index_objects import read_index_object
from holdfast.log.metadata import DeletedTopic, PartitionRecord, SegmentRecord
from holdfast.log.model import CleanupPolicy, OnDurable, PartitionId
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.published_tail_cache import PublishedTailCache
from holdfast.log.partition.publisher import SegmentPublisher
from holdfast.log.partition.resources import PartitionResources
from holdfast.log.partition.takeover import open_partition
from holdfast.log.partition_snapshots import read_snapshot_list
from holdfast.log.segment_list import load_segments
from holdfast.log.segments import SegmentReader
from holdfast.log.settings import LogSettings
from holdfast.log.wal import Wal, WalFrame
from holdfast.log.wal.repairs import LossesOfRepairs
from holdfast.objects.memory import MemoryObjects
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.random import SeededRandom

HOUR_MS = 3_600_000
COMPACT_NOW = CleanupPolicy(compact=True, min_dirty_ratio=0.0, delete_retention_ms=HOUR_MS)

T = TypeVar("T")


class CrashError(Exception):
    """The process ends here."""


class RamWal:
    """A WAL whose disk never fails and is never read again: everything is published before a crash in these tests."""

    repairs = LossesOfRepairs(())

    def append(self, frame: WalFrame) -> "asyncio.Future[int]":
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        done.set_result(frame.base_offset)
        return done

    def append_with_callback(self, frame: WalFrame, on_durable: OnDurable) -> None:
        asyncio.get_running_loop().call_soon(on_durable, None)

    async def room(self, size_bytes: int) -> None:
        return

    def release(self, topic_id: bytes, partition: int, below_offset: int) -> None:
        return


async def _nothing(topic_id: bytes, partition: int) -> AsyncIterator[WalFrame]:
    none: list[WalFrame] = []
    for frame in none:
        yield frame


class MaintenanceWorld:
    def __init__(
        self,
        store: MemoryStore,
        objects: MemoryObjects,
        clock: FakeClock,
        session: HeldSession,
        owner: ObjectsOwner,
    ) -> None:
        self.owner = owner
        self.memory, self.objects, self.clock, self.session = store, objects, clock, session
        self.random = SeededRandom(11)
        self.store = FaultyStore(store, random=self.random)
        self.log_settings = LogSettings(reserve_offsets=1_000_000)
        self.settings = MaintenanceSettings()
        self.afterglow_bytes_max = 0

    def context(self, *, store: Store | None = None) -> MaintenanceContext:
        return MaintenanceContext(
            store=store or self.store,
            objects=self.objects,
            owner=self.owner,
            clock=self.clock,
            random=self.random,
            log=self.log_settings,
            settings=self.settings,
        )

    def publisher(self) -> SegmentPublisher:
        return SegmentPublisher(
            store=self.store,
            objects=self.objects,
            clock=self.clock,
            random=self.random,
            settings=self.log_settings,
            prefix=self.owner.prefix,
        )

    async def lease(self, resource: str, holder: str = "ann") -> Lease:
        got = await acquire(
            self.store, resource, holder=holder, session=self.session.id, clock=self.clock, random=self.random
        )
        if not isinstance(got, Lease):
            former = Lease(
                resource=resource, holder=got.holder, session=self.session.id, epoch=got.epoch, version=got.version
            )
            await release(self.store, former, clock=self.clock, random=self.random)
            return await self.lease(resource, holder)
        return got

    async def open(self, number: int = 0, *, topic: str = "orders") -> LeadingPartition:
        """Open a partition anew, as after a crash: whoever led it is fenced."""
        partition_id = PartitionId(topic=topic, topic_id=topic.encode().hex(), number=number)
        resources = PartitionResources(
            session=self.session,
            store=self.store,
            objects=self.objects,
            wal=cast(Wal, RamWal()),
            wal_id="ram",
            clock=self.clock,
            random=self.random,
            settings=self.log_settings,
            published_tail_cache=PublishedTailCache(self.afterglow_bytes_max),
        )
        lease = await self.lease(f"partition/{topic}/{number:05d}")
        return await open_partition(partition_id, lease, resources, frames=_nothing)

    async def append(
        self,
        partition: LeadingPartition,
        pairs: Sequence[tuple[bytes | None, bytes | None]],
        *,
        producer_id: int = -1,
        sequence: int = -1,
        compression: str = "none",
    ) -> None:
        now_ms = self.clock.now_ms()
        records = [Record(at, now_ms, key, value) for at, (key, value) in enumerate(pairs)]
        epoch = 0 if producer_id >= 0 else -1
        batch = encode(
            records,
            compression=compression,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        await self.append_batch(partition, batch)

    async def append_batch(self, partition: LeadingPartition, batch: bytes) -> None:
        await partition.append(split_batches(bytearray(batch), limits=RecordBatchLimits(), stored=True))

    async def publish(self, *partitions: LeadingPartition) -> None:
        assert await self.publisher().publish(partitions) == []

    async def fill(self, partition: LeadingPartition, segments: int, *, each_ms: int = 1_000) -> None:
        """Publish so many segments of two records each, with time passing in between."""
        for _ in range(segments):
            at = partition.next_offset
            await self.append(partition, [(b"k%d" % at, b"v%d" % at), (b"k%d" % (at + 1), b"v%d" % (at + 1))])
            await self.publish(partition)
            self.clock.advance_ms(each_ms)

    async def state(self, number: int = 0, *, topic: str = "orders") -> PartitionRecord:
        entry = await self.memory.get(state_key(topic.encode().hex(), number))
        assert entry is not None
        return msgspec.json.decode(entry.value, type=PartitionRecord)

    async def read(self, number: int = 0, *, topic: str = "orders") -> list[Record]:
        """Everything a fresh reader sees from the start to what is published; fails on a gap or a missing object."""
        topic_id = topic.encode().hex()
        state = await self.state(number, topic=topic)
        segments = await load_segments(self.memory, topic_id, number)
        records: list[Record] = []
        at = state.start
        async for segment in segments.all(self.objects):
            if segment.end_offset <= at:
                continue
            assert segment.base_offset <= at, f"a gap from {at} to {segment.base_offset}"
            reader = SegmentReader(self.objects, segment.object, segment.start, segment.end)
            meta = await reader.meta()
            batches = await reader.read(max(at, segment.base_offset), 1 << 40)
            assert not isinstance(batches, Missing), segment
            assert not isinstance(meta, Missing)
            assert (meta.base_offset, meta.end_offset) == (segment.base_offset, segment.end_offset)
            for batch in batches:
                split_batches(bytes(batch), limits=RecordBatchLimits(), stored=True)
                records += [each for each in decode(batch) if each.offset >= state.start]
            at = segment.end_offset
        assert at >= state.published, f"published to {state.published}, listed to {at}"
        return records

    async def keys(self, prefix: str) -> list[str]:
        return [entry.key for entry in (await self.memory.scan(prefix, prefix_end(prefix))).entries]

    async def named(self) -> set[str]:
        """Every object that the store names, directly or in an index."""
        named: set[str] = set()
        starts: dict[str, int] = {}
        entries = (await self.memory.scan(LOGS, prefix_end(LOGS))).entries
        for entry in entries:
            if entry.key.endswith("/state"):
                starts[entry.key.removesuffix("state")] = msgspec.json.decode(entry.value, type=PartitionRecord).start
        for entry in entries:
            if entry.key.endswith("/snapshots"):
                named |= {each.object for each in read_snapshot_list(entry.value).snapshots}
            if "/seg/" in entry.key:
                named.add(msgspec.json.decode(entry.value, type=SegmentRecord).object)
            elif "/idx/" in entry.key:
                index = msgspec.json.decode(entry.value)["object"]
                listed = await read_index_object(index, self.objects)
                assert not isinstance(listed, Missing), index
                start = starts.get(entry.key.partition("idx/")[0], 0)
                named |= {index, *(each.object for each in listed if each.end_offset > start)}
        return named

    async def there(self) -> set[str]:
        """Every object, without the marks of their owner."""
        return {info.key async for info in self.objects.list("") if not info.key.startswith(MARKS)}

    async def sweep(self) -> None:
        lease = await self.lease(SWEEPER)
        context = self.context()
        await purge_deleted(lease, context)
        await collect_trash(lease, context)
        await expire_deletion_marks(lease, context)
        await sweep_orphans(lease, context)

    async def settle(self) -> None:
        """Let all graces pass and sweep: then what is there is what is named, and nothing waits."""
        for _ in range(2):
            self.clock.advance_ms(2 * HOUR_MS)
            await self.sweep()
        assert await self.there() == await self.named()
        assert await self.keys(TRASH) == []

    async def passing(self, work: Coroutine[Any, Any, T]) -> T:
        """Await work that sleeps, while time passes."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await self.clock.run_for_ms(100)
        return await task

    async def dooms(self) -> list[str]:
        return await self.keys(DELETION_MARKS)


@contextmanager
def crash_at(step: int) -> Iterator[None]:
    """End the process at its failpoint number `step`."""
    left = step

    def reached(name: str) -> None:
        nonlocal left
        if left == 0:
            raise CrashError(name)
        left -= 1

    with failpoints.installed(reached):
        yield


@contextmanager
def crash_on(failpoint: str, *, time: int = 1) -> Iterator[None]:
    """End the process when it reaches this failpoint for the first, second, … time."""
    left = time

    def reached(name: str) -> None:
        nonlocal left
        left -= name == failpoint
        if left == 0 and name == failpoint:
            raise CrashError(name)

    with failpoints.installed(reached):
        yield


@asynccontextmanager
async def new_world() -> AsyncIterator[MaintenanceWorld]:
    clock = FakeClock()
    random = SeededRandom(3)
    long = SessionSettings(ttl_ms=10**12, renew_ms=10**11, margin_ms=0, stall_ms=0)
    async with (
        MemoryStore.open(clock=clock, random=random, limits=StoreLimits()) as store,
        MemoryObjects.open(clock=clock) as objects,
        hold_session(store, clock=clock, random=random, settings=long) as session,
    ):
        owner = await claim_objects(store, objects, clock=clock, random=random)
        yield MaintenanceWorld(store, objects, clock, session, owner)


@asynccontextmanager
async def other_store(world: MaintenanceWorld, *, entries: Sequence[Entry] = ()) -> AsyncIterator[MaintenanceWorld]:
    """Another store on the same objects, with these entries, as a server that did not look whose they are."""
    clock, random = world.clock, SeededRandom(4)
    long = SessionSettings(ttl_ms=10**12, renew_ms=10**11, margin_ms=0, stall_ms=0)
    async with (
        MemoryStore.open(clock=clock, random=random, limits=StoreLimits()) as store,
        hold_session(store, clock=clock, random=random, settings=long) as session,
    ):
        for entry in entries:
            await store.commit(apply=[Put(entry.key, entry.value)])
        await cluster_identity(store, clock=clock, random=random)
        owner = await owner_of(store, world.objects, clock=clock, random=random)
        other = MaintenanceWorld(store, world.objects, clock, session, owner)
        other.random = SeededRandom(12)
        yield other


async def leave_orphans(world: MaintenanceWorld, *partitions: LeadingPartition) -> None:
    """Upload, and crash before the commit."""
    for partition in partitions:
        await world.append(partition, [(b"k", b"v")])
    with pytest.raises(CrashError), crash_on("publish.segments-uploaded"):
        await world.publisher().publish(partitions)


async def delete_topic(world: MaintenanceWorld, topic: str = "orders") -> None:
    mark = msgspec.json.encode(DeletedTopic(topic=topic, deleted_at_ms=world.clock.now_ms()))
    await world.memory.commit(apply=[Put(deleted_key(topic.encode().hex()), mark)])


def replay(records: list[Record]) -> dict[bytes, bytes]:
    """What a reader who goes through the log knows at its end."""
    known: dict[bytes, bytes] = {}
    for each in records:
        if each.key is not None and each.value is not None:
            known[each.key] = each.value
        elif each.key is not None:
            known.pop(each.key, None)
    return known
