"""Reads outlive the session: what a former leader knew for certain is still served, and nothing else is answered."""

import pytest
from tests.support.cluster import LocalCluster, Node
from tests.support.partitions import batch, records
from tests.support.waiting import async_until

from holdfast.kafka.special_offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from holdfast.log.errors import NotLeaderError, OffsetOutOfRangeError, UnknownLeaderEpochError
from holdfast.vocabulary.errors import HoldfastError


async def read(node: Node, offset: int) -> list[tuple[int, str]]:
    return records((await node.service.read("orders", 0, offset, bytes_max=1 << 20)).batches)


async def cut_off(cluster: LocalCluster, **config: object) -> Node:
    """An agent that led, wrote three records, of which two are published, and has lost its session and the store."""
    ann = await cluster.node("ann")
    await ann.service.create_topic("orders", 1, config)
    await async_until(lambda: ann.agent.leading)
    await ann.service.produce("orders", 0, batch("a", at_ms=1_000))
    await ann.service.produce("orders", 0, batch("b", at_ms=2_000))
    await ann.service.flush("orders", 0)
    await ann.service.produce("orders", 0, batch("c", at_ms=3_000))
    await ann.lose_session()
    assert not ann.agent.leading
    return ann


@pytest.mark.parametrize("level", ["local", "object"])
async def test_what_was_acknowledged_is_read_after_the_session_is_lost(cluster: LocalCluster, level: str) -> None:
    ann = await cut_off(cluster, durability=level)
    assert await read(ann, 0) == [(0, "a"), (1, "b"), (2, "c")]
    assert await read(ann, 2) == [(2, "c")]
    fetched = await ann.service.fetch("orders", 0, 1, bytes_max=1, wait_ms=1)
    assert (fetched.start_offset, fetched.high_watermark) == (0, 3)
    with pytest.raises(NotLeaderError):
        await ann.service.produce("orders", 0, batch("refused"))


async def test_what_another_leader_may_have_changed_is_not_answered(cluster: LocalCluster) -> None:
    ann = await cut_off(cluster)
    for offset in (3, 4):  # at the end there may be more by now, and beyond it others may have read
        with pytest.raises(NotLeaderError, match="its session is lost"):
            await read(ann, offset)
        with pytest.raises(NotLeaderError):
            await ann.service.fetch("orders", 0, offset, wait_ms=10)
    with pytest.raises(OffsetOutOfRangeError):
        await read(ann, -1)
    for timestamp in (LATEST, MAX_TIMESTAMP, 3_001):
        with pytest.raises(NotLeaderError):
            await ann.service.offset_for_timestamp("orders", 0, timestamp)
    for epoch in (
        1,
        2,
    ):  # also of its own: a later leader may have shown more of it, and less would look like a truncation
        with pytest.raises(NotLeaderError):
            await ann.service.end_of_epoch("orders", 0, epoch)
    with pytest.raises(UnknownLeaderEpochError):
        await ann.service.read("orders", 0, 0, bytes_max=1, leader_epoch=2)


async def test_what_nobody_can_change_is_answered(cluster: LocalCluster) -> None:
    ann = await cut_off(cluster)
    for timestamp, offset in ((EARLIEST, 0), (1_500, 1), (2_500, 2)):
        found = await ann.service.offset_for_timestamp("orders", 0, timestamp)
        assert found is not None
        assert (found.offset, found.leader_epoch) == (offset, 1)
    ann.store.reachable = True
    assert await cluster.produce("orders", 0, "d") == 3
    await ann.lose_session()
    assert await ann.service.end_of_epoch("orders", 0, 1) == (1, 3)


async def test_what_was_written_and_never_acknowledged_is_not_shown(cluster: LocalCluster) -> None:
    ann = await cluster.node("ann")
    await ann.service.create_topic("orders", 1)
    await async_until(lambda: ann.agent.leading)
    await ann.service.produce("orders", 0, batch("a"))
    session = ann.agent.sessions.session
    assert session is not None
    ann.store.reachable, ann.store.sessions_over = False, True
    pending = ann.service.begin_produce("orders", 0, batch("b"))
    assert pending is not None
    assert pending.appended is not None
    session.deadline_ms = 0  # it was suspended between the write and the acknowledgement
    with pytest.raises(HoldfastError):
        await pending.finish(acks=-1)
    assert await read(ann, 0) == [(0, "a")]
    await async_until(lambda: ann.agent.counters.sessions_lost)
    assert await read(ann, 0) == [(0, "a")]
    with pytest.raises(NotLeaderError):
        await read(ann, 1)


@pytest.mark.slow
async def test_a_former_leader_names_its_successor_once_it_knows_it(cluster: LocalCluster) -> None:
    ann = await cut_off(cluster, unclean_takeover=True)
    assert await read(ann, 2) == [(2, "c")]
    bob = await cluster.node("bob")
    await async_until(lambda: bob.leads() == {0})
    ann.store.reachable = True

    def holder() -> str:
        held = ann.agent.cluster.leader("orders", 0)
        return held.holder if held is not None else ""

    await async_until(lambda: holder() == "bob")
    with pytest.raises(NotLeaderError, match="its leader is bob"):
        await read(ann, 2)


async def test_after_the_outage_everything_is_served_as_before(cluster: LocalCluster) -> None:
    ann = await cut_off(cluster)
    assert len(await read(ann, 0)) == 3
    ann.store.reachable = True
    assert await cluster.produce("orders", 0, "d") == 3
    assert await cluster.read("orders", 0) == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]
    latest = await ann.service.offset_for_timestamp("orders", 0, LATEST)
    assert latest is not None
    assert latest.offset == 4


async def test_a_deleted_topic_is_not_served_by_its_former_leader(cluster: LocalCluster) -> None:
    ann = await cut_off(cluster)
    bob = await cluster.node("bob")
    await bob.service.delete_topic("orders")
    ann.store.reachable = True
    await async_until(lambda: ann.agent.topic("orders") is None)
    with pytest.raises(HoldfastError):
        await read(ann, 0)
