"""The log service: what it judges before anything is appended, and what it passes on."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.partitions import PartitionWorld, batch, records

from holdfast.kafka.special_offsets import EARLIEST, LATEST
from holdfast.kernel.objects_owner import ObjectsOwner
from holdfast.log.batches import (
    CorruptBatchError,
    InvalidBatchError,
    Record,
    RecordBatch,
    RecordBatchLimits,
    decode,
    encode,
    split_batches,
)
from holdfast.log.batches.compression import CODECS
from holdfast.log.batches.header import CRC_AT, checksum
from holdfast.log.batches.record_checks import KeylessRecordsError, check_records
from holdfast.log.errors import (
    FencedLeaderEpochError,
    LeaderEpochError,
    NotLeaderError,
    OffsetOutOfRangeError,
    ProducerRefusal,
    ProducerRefusedError,
    UnknownLeaderEpochError,
)
from holdfast.log.maintenance import MaintenanceContext, MaintenanceSettings
from holdfast.log.model import ACKS_LEADER, ACKS_NONE, PartitionId
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.reader import LogReader
from holdfast.log.service import LogService, PartitionDescription
from holdfast.log.topics import Topic, Topics, UnknownTopicError
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import SeededRandom
from holdfast.vocabulary.settings import MIB


class Led:
    """Leads every partition of the topics it was given; knows no topic until it is told."""

    def __init__(self) -> None:
        self.known: dict[str, Topic] = {}
        self.partitions: dict[tuple[str, int], LeadingPartition] = {}

    def topic(self, name: str) -> Topic | None:
        return self.known.get(name)

    def partition(self, topic: Topic, number: int) -> LeadingPartition:
        led = self.partitions.get((topic.id, number))
        if led is None:
            raise NotLeaderError(topic.name, number, "bob")
        return led

    readable = partition


class Setting:
    """A service over one owner's partitions."""

    def __init__(self, world: PartitionWorld) -> None:
        self.world, self.led = world, Led()
        clock, random, objects = world.clock, world.random, world.objects
        context = MaintenanceContext(
            store=world.store,
            objects=objects,
            owner=ObjectsOwner(world.store, objects, cluster="test", clock=clock, random=random),
            clock=clock,
            random=random,
            log=world.settings,
            settings=MaintenanceSettings(),
        )
        self.context = context
        self.service = self._service()

    def _service(self) -> LogService:
        world, context = self.world, self.context
        clock, random, objects = world.clock, world.random, world.objects
        return LogService(
            self.led,
            topics=Topics(world.store, clock=clock, random=random),
            reading=LogReader(objects, clock=clock, settings=world.settings),
            context=context,
            clock=clock,
        )

    def checks(self, of: str) -> None:
        """Check batches in another way from now on."""
        self.context = replace(self.context, log=replace(self.context.log, check_batches=of))
        self.service = self._service()

    async def topic(self, name: str = "orders", partitions: int = 1, **config: object) -> Topic:
        owner = self.world.owners[0] if self.world.owners else await self.world.owner()
        topic = await self.service.create_topic(name, partitions, config)
        for number in range(partitions):
            partition_id = PartitionId(topic=name, topic_id=topic.id, number=number)
            self.led.partitions[topic.id, number] = await owner.open(
                partition_id, partition_config=topic.config.partition_config()
            )
        return topic


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[Setting]:
    world = PartitionWorld(tmp_path)
    yield Setting(world)
    for owner in world.owners:
        await owner.end()


async def test_a_payload_of_several_batches_is_appended_and_read_back(setting: Setting) -> None:
    await setting.topic(partitions=2)
    service = setting.service
    produced = await service.produce("orders", 1, batch("a", "b") + batch("c"))
    assert (produced.base_offset, produced.end_offset, produced.append_time_ms, produced.duplicate) == (0, 3, -1, False)
    fetched = await service.fetch("orders", 1, 0)
    assert records(fetched.batches) == [(0, "a"), (1, "b"), (2, "c")]
    assert (fetched.start_offset, fetched.high_watermark) == (0, 3)
    assert (await service.fetch("orders", 0, 0)).batches == []


@pytest.mark.parametrize("acks", [ACKS_NONE, ACKS_LEADER, -1])
async def test_every_level_of_acks_is_taken_and_others_are_refused(setting: Setting, acks: int) -> None:
    await setting.topic()
    assert (await setting.service.produce("orders", 0, batch("a"), acks=acks)).base_offset == 0
    with pytest.raises(InvalidError, match="acks"):
        await setting.service.produce("orders", 0, batch("a"), acks=2)


async def test_a_damaged_or_empty_payload_is_refused_whole(setting: Setting) -> None:
    topic = await setting.topic()
    damaged = bytearray(batch("a") + batch("b"))
    damaged[-1] ^= 1
    for payload in (bytes(damaged), b"", batch("a")[:-1]):
        with pytest.raises((InvalidBatchError, CorruptBatchError)):
            await setting.service.produce("orders", 0, payload)
    assert setting.led.partitions[topic.id, 0].next_offset == 0


async def test_a_batch_larger_than_the_topic_allows_is_refused(setting: Setting) -> None:
    await setting.topic(max_message_bytes=2_000)
    with pytest.raises(InvalidBatchError):
        await setting.service.produce("orders", 0, batch("x" * 3_000))
    await setting.service.produce("orders", 0, batch("x" * 1_000))


async def test_a_compacted_topic_wants_keys(setting: Setting) -> None:
    await setting.topic(cleanup_policy="compact")
    with pytest.raises(InvalidError, match="key"):
        await setting.service.produce("orders", 0, batch("no key"))
    keyed = encode([Record(0, 1, b"key", b"value")])
    assert (await setting.service.produce("orders", 0, keyed)).base_offset == 0


async def test_the_log_gives_its_own_time_where_the_topic_asks_for_it(setting: Setting) -> None:
    await setting.topic(message_timestamp_type="append_time")
    before_ms = setting.world.clock.now_ms()
    produced = await setting.service.produce("orders", 0, batch("a", at_ms=5) + batch("b", at_ms=6))
    assert before_ms <= produced.append_time_ms <= setting.world.clock.now_ms()
    fetched = await setting.service.fetch("orders", 0, 0)
    stored = [each for data in fetched.batches for each in split_batches(data, limits=RecordBatchLimits(), stored=True)]
    times = [record.timestamp_ms for each in stored for record in decode(each)]
    assert times == [produced.append_time_ms] * 2
    assert await setting.service.offset_for_timestamp("orders", 0, produced.append_time_ms) is not None


async def test_unknown_topics_and_partitions_are_distinguished_from_those_led_elsewhere(setting: Setting) -> None:
    topic = await setting.topic()
    service = setting.service
    with pytest.raises(UnknownTopicError):
        await service.produce("customers", 0, batch("a"))
    for number in (-1, 1):
        with pytest.raises(UnknownTopicError):
            await service.fetch("orders", number, 0)
    setting.led.partitions.clear()
    with pytest.raises(NotLeaderError) as error:
        await service.produce("orders", 0, batch("a"))
    assert (error.value.topic, error.value.partition, error.value.leader) == ("orders", 0, "bob")
    await service.delete_topic("orders")
    with pytest.raises(UnknownTopicError):
        await service._led("orders", 0)
    assert topic.id not in {each.id for each in await service.list_topics()}


async def test_altered_settings_are_used_as_soon_as_they_are_known(setting: Setting) -> None:
    setting.led.known["orders"] = await setting.topic()
    await setting.service.produce("orders", 0, batch("x" * 2_000))
    setting.led.known["orders"] = await setting.service.topics.alter("orders", {"max_message_bytes": 1_500})
    with pytest.raises(InvalidBatchError):
        await setting.service.produce("orders", 0, batch("x" * 2_000))


async def test_a_leader_that_was_replaced_tells_no_reader_that_it_is_ahead_of_the_log(setting: Setting) -> None:
    topic, service = await setting.topic(), setting.service
    setting.led.known["orders"] = topic
    await service.produce("orders", 0, batch("a"))
    assert await service.end_of_epoch("orders", 0, 2) == (-1, -1)
    with pytest.raises(OffsetOutOfRangeError):
        await service.read("orders", 0, 2, bytes_max=1)
    ann, bob = setting.world.owners[0], await setting.world.owner("bob")
    await setting.world.store.close_session(ann.session.id)  # ended early: nobody has told ann
    lease = await bob.acquire(PartitionId(topic="orders", topic_id=topic.id, number=0))
    assert lease.epoch == 2
    in_memory = service.read_now("orders", 0, 2, bytes_max=1)
    assert in_memory is not None
    assert not in_memory.in_memory
    for ahead in (service.read("orders", 0, 2, bytes_max=1), service.fetch("orders", 0, 2)):
        with pytest.raises(NotLeaderError, match="a later leader"):
            await ahead
    with pytest.raises(UnknownLeaderEpochError):
        await service.end_of_epoch("orders", 0, 2)
    with pytest.raises(OffsetOutOfRangeError):
        service.read_now("orders", 0, -1, bytes_max=1)
    assert records((await service.read("orders", 0, 0, bytes_max=1)).batches) == [(0, "a")]


async def test_offsets_epochs_and_deleted_records(setting: Setting) -> None:
    await setting.topic()
    service = setting.service
    for value in "abcd":
        await service.produce("orders", 0, batch(value))
    assert await service.delete_records("orders", 0, 1) == 1
    earliest, latest = [await service.offset_for_timestamp("orders", 0, which) for which in (EARLIEST, LATEST)]
    assert [each and each.offset for each in (earliest, latest)] == [1, 4]
    assert await service.end_of_epoch("orders", 0, 1) == (1, 4)
    with pytest.raises(OffsetOutOfRangeError):
        await service.fetch("orders", 0, 0)
    assert await service.delete_records("orders", 0, -1) == 4


async def test_what_is_served_is_known_without_waiting_and_what_is_not_is_no_error(setting: Setting) -> None:
    topic = await setting.topic(partitions=2)
    assert not setting.service.is_serving("orders", 0), "nobody has told this process of the topic"
    setting.led.known["orders"] = topic
    assert setting.service.is_serving("orders", 1)
    del setting.led.partitions[topic.id, 1]
    assert [setting.service.is_serving("orders", number) for number in (1, 2, -1)] == [False] * 3


async def test_what_a_new_producer_sent_before_anybody_led_is_not_overtaken_by_what_it_sent_after(
    setting: Setting,
) -> None:
    topic = await setting.topic()
    setting.led.known["orders"] = topic
    led = setting.led.partitions.pop((topic.id, 0))

    def sent(sequence: int) -> bytes:
        return batch("x", producer=7, epoch=0, sequence=sequence)

    for sequence in (0, 1):
        with pytest.raises(NotLeaderError):
            setting.service.begin_produce("orders", 0, sent(sequence))
    setting.led.partitions[topic.id, 0] = led
    with pytest.raises(ProducerRefusedError) as refused:
        await setting.service.produce("orders", 0, sent(2))
    assert refused.value.refusal is ProducerRefusal.TOO_SOON
    assert [(await setting.service.produce("orders", 0, sent(each))).base_offset for each in range(3)] == [0, 1, 2]


async def test_a_producer_nobody_refused_may_start_anywhere(setting: Setting) -> None:
    await setting.topic()
    assert (await setting.service.produce("orders", 0, batch("x", producer=7, sequence=41))).base_offset == 0


async def test_a_read_returns_records_epoch_watermark_and_something_to_wait_on(setting: Setting) -> None:
    await setting.topic()
    service = setting.service
    await service.produce("orders", 0, batch("a", "b"))
    read = await service.read("orders", 0, 1, bytes_max=1_000, leader_epoch=1)
    assert records(read.batches) == [(0, "a"), (1, "b")]
    assert (read.size_bytes, read.start_offset, read.high_watermark, read.epoch) == (len(read.batches[0]), 0, 2, 1)
    waiter = asyncio.get_running_loop().create_future()
    read.progress.resolve_beyond(read.high_watermark, waiter)
    assert not waiter.done()
    await service.produce("orders", 0, batch("c"))
    await waiter
    assert read.progress.high_watermark == 3
    assert await service.describe("orders", 0) == PartitionDescription(1, 0, 3, 0)


@pytest.mark.parametrize(("expected", "error"), [(0, FencedLeaderEpochError), (2, UnknownLeaderEpochError)])
async def test_a_caller_that_expects_another_leader_epoch_is_refused(
    setting: Setting, expected: int, error: type[LeaderEpochError]
) -> None:
    await setting.topic()
    service = setting.service
    for call in (
        service.read("orders", 0, 0, bytes_max=1_000, leader_epoch=expected),
        service.describe("orders", 0, leader_epoch=expected),
        service.offset_for_timestamp("orders", 0, LATEST, leader_epoch=expected),
        service.end_of_epoch("orders", 0, 1, leader_epoch=expected),
    ):
        with pytest.raises(error, match=f"is at leader epoch 1, not {expected}"):
            await call


def of_a_size(compression: str, size_bytes: int, *, count: int = 2, **batch_of: int) -> bytes:
    """A batch of records that take about `size_bytes` once decompressed, and do not shrink much."""
    value = SeededRandom(size_bytes).random.randbytes(size_bytes // count)
    records = [Record(at, 1, b"k", value) for at in range(count)]
    return encode(records, compression=compression, **batch_of)  # type: ignore[arg-type]


def miscounted(batch: bytes) -> bytes:
    """The batch with one record more in its header than in its payload, and the checksum of that."""
    broken = bytearray(batch)
    for at in (23, 57):  # last offset delta, record count
        broken[at : at + 4] = (int.from_bytes(broken[at : at + 4], "big") + 1).to_bytes(4, "big")
    broken[CRC_AT : CRC_AT + 4] = checksum(broken).to_bytes(4, "big")
    return bytes(broken)


@pytest.mark.parametrize("size_bytes", [200, 30_000, 200_000])
@pytest.mark.parametrize("compression", CODECS)
async def test_a_batch_no_consumer_could_read_is_not_stored_unless_the_setting_says_so(
    setting: Setting, compression: str, size_bytes: int
) -> None:
    await setting.topic()
    sound = of_a_size(compression, size_bytes)
    assert (await setting.service.produce("orders", 0, sound)).end_offset == 2
    with pytest.raises(InvalidBatchError):
        await setting.service.produce("orders", 0, miscounted(sound))
    assert (await setting.service.produce("orders", 0, sound)).base_offset == 2
    setting.checks("headers")
    if compression != "none":  # whose count is compared with its length
        assert (await setting.service.produce("orders", 0, miscounted(sound))).base_offset == 4


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["gzip", "zstd"])
async def test_a_bomb_is_refused_and_its_neighbours_are_served_meanwhile(
    setting: Setting, compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setting.topic(partitions=2)
    go_on = threading.Event()

    def held(batches: Sequence[RecordBatch], **how: Any) -> int:
        if how["limits"].inflated_bytes_max == setting.context.log.inflated_bytes_max and compressed(batches):
            assert go_on.wait(30)
        return check_records(batches, **how)

    def compressed(batches: Sequence[RecordBatch]) -> bool:
        return any(header.compression != "none" for header, _ in batches)

    monkeypatch.setattr("holdfast.log.batch_checker.check_records", held)
    bomb = encode([Record(at, 1, b"k", bytes(9 * MIB)) for at in range(4)], compression=compression)
    assert len(bomb) < 100_000
    refused = asyncio.ensure_future(setting.service.produce("orders", 0, bomb))
    produced = await setting.service.produce("orders", 1, batch("a"))
    assert (produced.base_offset, refused.done()) == (0, False)
    go_on.set()
    with pytest.raises(InvalidBatchError, match="bytes after decompression"):
        await refused
    assert (await setting.service.produce("orders", 0, batch("a"))).base_offset == 0


async def test_what_waits_for_its_check_is_not_overtaken(setting: Setting) -> None:
    topic = await setting.topic()
    setting.led.known["orders"] = topic
    await setting.service.produce("orders", 0, batch("first"))
    large = [of_a_size("gzip", 200_000, producer_id=7, producer_epoch=0, base_sequence=2 * at) for at in (0, 1)]
    small = batch("x", producer=7, epoch=0, sequence=4)
    begun = [setting.service.begin_produce("orders", 0, payload) for payload in (*large, small)]
    results = [each.start(acks=-1) for each in begun if each is not None]
    assert [(await each).base_offset for each in results] == [1, 3, 5]
    again = setting.service.begin_produce("orders", 0, batch("y", producer=7, epoch=0, sequence=5))
    assert again is not None
    assert again.appended is not None, "nobody waits any more"


async def test_an_append_that_waits_for_offsets_is_not_overtaken_by_a_smaller_one(setting: Setting) -> None:
    topic = await setting.topic()
    setting.led.known["orders"] = topic
    await setting.service.produce("orders", 0, batch("first"))
    left = setting.led.partitions[topic.id, 0].record.reserved - 1
    begun = [setting.service.begin_produce("orders", 0, batch(*"x" * count)) for count in (left + 1, 1)]
    results = [each.start(acks=-1) for each in begun if each is not None]
    assert [(await each).base_offset for each in results] == [1, left + 2]


async def test_a_task_that_never_began_leaves_its_place(setting: Setting) -> None:
    topic = await setting.topic()
    setting.led.known["orders"] = topic
    begun = setting.service.begin_produce("orders", 0, of_a_size("gzip", 200_000))
    assert begun is not None
    task = begun.start(acks=-1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await setting.service.produce("orders", 0, batch("a"))).base_offset == 0
    after = setting.service.begin_produce("orders", 0, batch("b"))
    assert after is not None
    assert after.appended is not None


async def test_a_batch_nobody_waits_for_is_not_overtaken_even_if_its_task_never_began(setting: Setting) -> None:
    topic = await setting.topic()
    setting.led.known["orders"] = topic

    def sent(sequence: int) -> bytes:
        return batch("x", producer=7, epoch=0, sequence=sequence)

    await setting.service.produce("orders", 0, sent(0))
    async with setting.led.partitions[topic.id, 0].appends_paused():
        first, second = (setting.service.begin_produce("orders", 0, sent(sequence)) for sequence in (1, 2))
        assert first is not None
        assert second is not None
        gone, result = first.start(acks=-1), second.start(acks=-1)
        first.cancel()
    with pytest.raises(ProducerRefusedError) as refused:
        await result
    assert refused.value.refusal is ProducerRefusal.TOO_SOON
    assert gone.cancelled()
    assert [(await setting.service.produce("orders", 0, sent(each))).base_offset for each in (1, 2)] == [1, 2]


async def test_records_without_a_key_are_named_for_a_compacted_topic(setting: Setting) -> None:
    await setting.topic(cleanup_policy="compact")
    setting.checks("headers")
    with pytest.raises(KeylessRecordsError) as error:
        await setting.service.produce("orders", 0, batch("a", "b"))
    assert error.value.records == (0, 1)


async def test_producers_that_were_silent_for_too_long_are_not_listed(setting: Setting) -> None:
    await setting.topic()
    await setting.service.produce("orders", 0, batch("a", producer=7, sequence=0))
    assert [each.producer_id for each in await setting.service.producers("orders", 0)] == [7]
    setting.context = replace(setting.context, log=replace(setting.context.log, producer_expiry_ms=1))
    setting.checks("records")
    await setting.world.clock.sleep_ms(5)
    assert await setting.service.producers("orders", 0) == []
