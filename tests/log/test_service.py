"""The log service: what it judges before anything is appended, and what it passes on."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.partitions import PartitionWorld, batch, records

from holdfast.kafka.special_offsets import EARLIEST, LATEST
from holdfast.log.batches import (
    CorruptBatchError,
    InvalidBatchError,
    Record,
    RecordBatchLimits,
    decode,
    encode,
    split_batches,
)
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


class Setting:
    """A service over one owner's partitions."""

    def __init__(self, world: PartitionWorld) -> None:
        self.world, self.led = world, Led()
        clock, random, objects = world.clock, world.random, world.objects
        context = MaintenanceContext(
            store=world.store,
            objects=objects,
            clock=clock,
            random=random,
            log=world.settings,
            settings=MaintenanceSettings(),
        )
        self.service = LogService(
            self.led,
            topics=Topics(world.store, clock=clock, random=random),
            reading=LogReader(objects, clock=clock, settings=world.settings),
            context=context,
            clock=clock,
        )

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
