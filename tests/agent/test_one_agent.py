"""One agent, from creating a topic to reading it after every kind of restart."""

import logging

import pytest
from tests.support.cluster import LocalCluster, Node
from tests.support.partitions import batch, records
from tests.support.waiting import async_until

from holdfast.kafka.special_offsets import EARLIEST, LATEST
from holdfast.log.batches import RecordBatchLimits, split_batches
from holdfast.log.errors import NotLeaderError
from holdfast.log.partition.offset_assignment import assign_offsets, wal_frame
from holdfast.log.segment_list import load_segments
from holdfast.log.service import TimestampOffset
from holdfast.log.topics import UnknownTopicError
from holdfast.log.wal.set_aside import list_tails
from holdfast.vocabulary.types import TopicPartition

pytestmark = pytest.mark.slow


async def with_topic(cluster: LocalCluster, partitions: int = 1, **config: object) -> Node:
    ann = await cluster.node("ann")
    await ann.service.create_topic("orders", partitions, config)
    await async_until(lambda: len(ann.agent.leading) == partitions)
    return ann


async def test_a_topic_is_created_written_and_read_by_offset_and_by_time(cluster: LocalCluster) -> None:
    ann = await with_topic(cluster, partitions=3)
    for partition in range(3):
        produced = await ann.service.produce("orders", partition, batch("a", "b", at_ms=1_000))
        assert (produced.base_offset, produced.end_offset) == (0, 2)
        await ann.service.produce("orders", partition, batch("c", at_ms=2_000))
        assert records((await ann.service.fetch("orders", partition, 0)).batches) == [(0, "a"), (1, "b"), (2, "c")]
        found = await ann.service.offset_for_timestamp("orders", partition, 1_500)
        assert found is not None
        assert found == TimestampOffset(2, 2_000, leader_epoch=1)
        latest = await ann.service.offset_for_timestamp("orders", partition, LATEST)
        assert latest is not None
        assert latest.offset == 3


@pytest.mark.parametrize("crash", [True, False])
@pytest.mark.parametrize("level", ["local", "object"])
async def test_a_restart_loses_nothing(cluster: LocalCluster, crash: bool, level: str) -> None:
    ann = await with_topic(cluster, durability=level)
    for number in range(5):
        await ann.service.produce("orders", 0, batch(str(number)))
    await ann.service.flush("orders", 0)
    for number in range(5, 8):
        await ann.service.produce("orders", 0, batch(str(number)))
    await (ann.drop() if crash else ann.stop())
    again = await cluster.node()
    assert await cluster.produce("orders", 0, "after") == 8
    assert [value for _, value in await cluster.read("orders", 0)] == [*map(str, range(8)), "after"]
    assert again.agent.wal_id == ann.agent.wal_id


async def test_the_log_tells_what_was_recovered_after_a_crash_and_why_leadership_ended(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="holdfast")
    ann = await with_topic(cluster, partitions=1)
    await ann.service.produce("orders", 0, batch("a", "b"))
    await ann.drop()
    assert any("leadership of 1 partition gained: orders:0 (epoch 1)" in each for each in caplog.messages)
    assert any("leadership of 1 partition ended, session lost: orders:0" in each for each in caplog.messages)
    again = await cluster.node()
    await async_until(lambda: again.agent.leading)
    await again.stop()
    assert any("recovered 2 unpublished records of 1 partition from the WAL in " in each for each in caplog.messages)
    assert any("leadership of 1 partition gained: orders:0 (epoch 2)" in each for each in caplog.messages)
    assert any("leadership of 1 partition ended, agent stopped: orders:0" in each for each in caplog.messages)
    assert any("frames of 1 partitions in " in each for each in caplog.messages)


async def test_a_graceful_stop_publishes_everything(cluster: LocalCluster) -> None:
    ann = await with_topic(cluster)
    await ann.service.produce("orders", 0, batch("a"))
    topic = await ann.service.topics.get("orders")
    await ann.stop()
    segments = await load_segments(cluster.store, topic.id, 0)
    assert [(each.base_offset, each.end_offset) for each in segments.recent] == [(0, 1)]
    assert ann.agent.counters.sessions_lost == 0


async def test_old_segments_are_published_by_age_and_quiet_partitions_become_clean(cluster: LocalCluster) -> None:
    ann = await cluster.node(idle_ms=50)
    await ann.service.create_topic("orders", 1, {"roll_ms": 100})
    await async_until(lambda: ann.agent.leading)
    (partition,) = ann.agent.log.leading.values()
    await ann.service.produce("orders", 0, batch("a"))
    await async_until(lambda: partition.record.published == 1)
    await async_until(lambda: partition.record.clean)
    await async_until(lambda: ann.agent.counters.segments_published == ann.agent.counters.bookings_returned == 1)
    assert (await ann.service.produce("orders", 0, batch("b"))).base_offset == 1


async def test_an_outage_of_object_storage_is_waited_out(cluster: LocalCluster) -> None:
    ann = await cluster.node()
    await ann.service.create_topic("orders", 1, {"roll_ms": 100})
    await async_until(lambda: ann.agent.leading)
    ann.objects.reachable = False
    for number in range(10):
        await ann.service.produce("orders", 0, batch(str(number)))
    await async_until(lambda: ann.agent.counters.publish_failures >= 3)
    assert [value for _, value in await cluster.read("orders", 0)] == [*map(str, range(10))]
    ann.objects.reachable = True
    assert await ann.service.flush("orders", 0) == 10


async def test_an_agent_that_loses_its_session_rejoins_at_once(cluster: LocalCluster) -> None:
    ann = await cluster.node("ann", rejoin_ms=3_600_000)
    await async_until(lambda: ann.agent.member)
    session = ann.agent.sessions.session
    assert session is not None
    await cluster.store.close_session(session.id)
    await async_until(lambda: (now := ann.agent.member) is not None and now.session != session.id)


async def test_an_agent_that_loses_its_session_rejoins_over_the_same_wal(cluster: LocalCluster) -> None:
    ann = await with_topic(cluster)
    await ann.service.produce("orders", 0, batch("a"))
    await ann.lose_session()
    with pytest.raises(NotLeaderError):
        await ann.service.produce("orders", 0, batch("refused"))
    ann.store.reachable = True
    assert await cluster.produce("orders", 0, "b") == 1
    assert await cluster.read("orders", 0) == [(0, "a"), (1, "b")]
    # And once more, so that what was only remembered in RAM is also found in the WAL.
    await ann.drop()
    await cluster.node()
    assert await cluster.produce("orders", 0, "c") == 2
    assert await cluster.read("orders", 0) == [(0, "a"), (1, "b"), (2, "c")]


async def test_a_topic_that_is_deleted_and_created_again_starts_empty(cluster: LocalCluster) -> None:
    ann = await with_topic(cluster)
    await ann.service.produce("orders", 0, batch("old"))
    await ann.service.delete_topic("orders")
    await async_until(lambda: ann.agent.topic("orders") is None)
    with pytest.raises(UnknownTopicError):
        await ann.service.produce("orders", 0, batch("old"))
    topic = await ann.service.create_topic("orders", 1)
    await async_until(lambda: any(each.partition_id.topic_id == topic.id for each in ann.agent.log.leading.values()))
    assert await cluster.produce("orders", 0, "new") == 0
    assert await cluster.read("orders", 0) == [(0, "new")]


async def test_a_deleted_topic_is_let_go_and_its_wal_frames_with_it(cluster: LocalCluster) -> None:
    ann = await with_topic(cluster)
    await ann.service.produce("orders", 0, batch("a"))
    assert ann.agent.wal.unreleased()
    await ann.service.delete_topic("orders")
    await async_until(lambda: not ann.agent.leading)
    await async_until(lambda: not ann.agent.wal.unreleased())
    handler = ann.agent.log._handler
    assert handler is not None
    await async_until(lambda: not handler._topics._configs)


async def test_settings_take_effect_while_the_partition_is_led(cluster: LocalCluster) -> None:
    ann = await with_topic(cluster)
    (partition,) = ann.agent.log.leading.values()
    await ann.service.topics.alter("orders", {"roll_ms": "100"})
    await async_until(lambda: partition.partition_config.roll_ms == 100)
    await ann.service.produce("orders", 0, batch("a"))
    await async_until(lambda: partition.record.published == 1)


async def test_records_can_be_deleted(cluster: LocalCluster) -> None:
    ann = await with_topic(cluster)
    for value in "abc":
        await ann.service.produce("orders", 0, batch(value))
    assert await ann.service.delete_records("orders", 0, 2) == 2
    earliest = await ann.service.offset_for_timestamp("orders", 0, EARLIEST)
    assert earliest is not None
    assert earliest.offset == 2
    assert records((await ann.service.fetch("orders", 0, 2)).batches) == [(2, "c")]


async def test_a_partition_that_cannot_be_opened_is_listed_and_affects_no_other(cluster: LocalCluster) -> None:
    ann = await with_topic(cluster, partitions=2)
    await ann.service.produce("orders", 0, batch("only in the WAL of ann"))
    await ann.drop()
    bob = await cluster.node("bob")
    await async_until(lambda: bob.leads() == {1})
    await async_until(lambda: bob.agent.offline)
    assert "start the agent that has it" in bob.agent.offline[TopicPartition("orders", 0)]
    with pytest.raises(NotLeaderError, match="is offline"):
        await bob.service.produce("orders", 0, batch("x"))
    await bob.service.produce("orders", 1, batch("x"))
    await bob.service.topics.alter("orders", {"unclean_takeover": True})
    await async_until(lambda: bob.leads() == {0, 1})
    assert (await bob.service.produce("orders", 0, batch("after"))).base_offset == 100
    await bob.stop()
    back = await cluster.node("ann")
    await async_until(lambda: back.leads() == {0, 1})
    (left_out,) = list_tails(back.agent.wal.directory)
    assert (left_out.topic, left_out.partition, left_out.first_offset, left_out.records) == ("orders", 0, 0, 1)


async def test_a_partition_whose_tail_has_a_hole_is_offline_with_the_reason_and_the_others_are_served(
    cluster: LocalCluster,
) -> None:
    ann = await with_topic(cluster, partitions=2)
    await ann.service.produce("orders", 0, batch("a"))
    await ann.service.produce("orders", 1, batch("a"))
    led = ann.agent.log.leading[TopicPartition("orders", 0)]
    batches = split_batches(batch("behind a hole"), limits=RecordBatchLimits())
    made = assign_offsets(batches, 5, led.lease.epoch, copy_below_bytes=1 << 20)
    await ann.agent.wal.append(wal_frame(bytes.fromhex(led.partition_id.topic_id), 0, led.lease.epoch, made))
    await ann.drop()
    back = await cluster.node("ann")
    await async_until(lambda: back.leads() == {1})
    await async_until(lambda: back.agent.offline)
    assert "offsets 1 to 4 of partition orders:0 are missing" in back.agent.offline[TopicPartition("orders", 0)]
    assert (await back.service.produce("orders", 1, batch("b"))).base_offset == 1
    await back.service.topics.alter("orders", {"unclean_takeover": True})
    await async_until(lambda: back.leads() == {0, 1})
    assert (await back.service.produce("orders", 0, batch("b"))).base_offset == 100
    assert await cluster.read("orders", 0) == [(0, "a"), (100, "b")]
    assert [tail.records for tail in list_tails(back.agent.wal.directory)] == [1]
