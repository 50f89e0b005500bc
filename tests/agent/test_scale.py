"""Many partitions on one agent: nothing that is done again and again grows with what is at rest, and much is done at once."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.support.cluster import LocalCluster, Node, fast_settings
from tests.support.partitions import batch
from tests.support.waiting import async_until

from holdfast.contracts.store import Scan
from holdfast.kernel import plan_executor
from holdfast.kernel.keys import EPOCHS, partition_resource
from holdfast.kernel.plan_view import PlanView
from holdfast.kernel.session import HeldSession
from holdfast.log import lease_handler
from holdfast.log.partition.dirty_partitions import DirtyPartitions
from holdfast.log.partition.takeover import open_partitions
from holdfast.log.partition.takeover_recovery import PartitionTakeover
from holdfast.log.wal import recovered_frames
from holdfast.vocabulary.types import TopicPartition

pytestmark = pytest.mark.slow

MANY = 150


async def leading_many(cluster: LocalCluster, **changes: object) -> Node:
    ann = await cluster.node("ann", **changes)
    await ann.service.create_topic("orders", MANY)
    await async_until(lambda: len(ann.leads()) == MANY)
    return ann


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> Callable[[], int]:
    """How often a function is called from now on."""
    real, calls = getattr(owner, name), 0

    def count(*args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, count)
    return lambda: calls


async def produce_to_each(node: Node) -> None:
    await asyncio.gather(*(node.service.produce("orders", number, batch("a")) for number in range(MANY)))


async def test_partitions_are_acquired_and_opened_in_few_commits(cluster: LocalCluster) -> None:
    ann = await leading_many(cluster)
    assert ann.store.calls["commit"] < MANY // 2
    await ann.drop()
    again = await cluster.node("ann")
    await async_until(lambda: len(again.leads()) == MANY)
    assert again.store.calls["commit"] < MANY // 2
    assert again.store.calls["scan"] < MANY  # one for several neighbours; group shards and mirrors have their own


async def test_what_a_crash_left_in_the_wal_is_looked_up_for_many_partitions_at_a_time(cluster: LocalCluster) -> None:
    ann = await leading_many(cluster)
    await produce_to_each(ann)
    await ann.drop()
    again = await cluster.node("ann")
    await async_until(lambda: len(again.leads()) == MANY)
    assert again.store.calls["get"] < MANY // 4
    assert again.store.calls["get"] + again.store.calls["scan"] < MANY  # so a slow store does not outlast the session
    for partition in (0, MANY - 1):
        assert await cluster.read("orders", partition) == [(0, "a")]


async def test_after_a_crash_partitions_are_acquired_at_their_next_epoch_without_losing_a_race_first(
    cluster: LocalCluster,
) -> None:
    ann = await leading_many(cluster)
    before = {each.lease.resource: each.epoch for each in ann.agent.log.leading.values()}
    await ann.drop()
    again = await cluster.node("ann")
    await async_until(lambda: len(again.leads()) == MANY)
    assert all(each.epoch == before[each.lease.resource] + 1 for each in again.agent.log.leading.values())
    assert again.store.conflicts < 10


async def test_deciding_about_many_partitions_while_the_store_is_slow_counts_as_progress(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await leading_many(cluster)).drop()
    monkeypatch.setattr(plan_executor, "_DECISIONS_AT_ONCE", 10)
    again = await cluster.node("ann")
    reports, at_scan = counted(monkeypatch, HeldSession, "report_progress"), list[int]()
    real = again.store.scan

    async def scan(start: str, end: str, **kwargs: Any) -> Scan:
        if start.startswith(EPOCHS):
            at_scan.append(reports())
        return await real(start, end, **kwargs)

    again.store.scan = scan  # type: ignore[method-assign]
    await async_until(lambda: len(again.leads()) == MANY)
    assert len(set(at_scan)) > 10, "progress is reported before each of the reads"


async def test_what_was_published_is_not_read_from_the_wal_when_its_partition_is_opened(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = await leading_many(cluster)
    await produce_to_each(ann)
    led = list(ann.agent.log.leading.values())
    for partition in led:
        partition.request_publish()
    await async_until(lambda: all(each.record.published == 1 for each in led))
    await ann.drop()
    on_threads = counted(monkeypatch, recovered_frames, "in_thread")
    again = await cluster.node("ann")
    await async_until(lambda: len(again.leads()) == MANY)
    assert on_threads() < 10


async def test_first_appends_share_their_commits(cluster: LocalCluster) -> None:
    ann = await leading_many(cluster)
    before = ann.store.calls["commit"]
    await produce_to_each(ann)
    assert ann.store.calls["commit"] - before < MANY // 4


async def test_reserved_offsets_of_idle_partitions_are_released_in_few_commits(cluster: LocalCluster) -> None:
    ann = await leading_many(cluster)
    await produce_to_each(ann)
    led = list(ann.agent.log.leading.values())
    for partition in led:
        partition.request_publish()
    await async_until(lambda: all(each.record.published == 1 for each in led))
    before = ann.store.calls["commit"]
    for partition in led:  # all at once, however long they took to be written
        partition.appended_at_ms -= fast_settings("ann").idle_ms
        partition.mark_dirty()
    await async_until(lambda: all(each.record.clean for each in led))
    assert ann.store.calls["commit"] - before < MANY // 4


async def test_a_new_topic_makes_nobody_decide_about_all_the_others(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, decided = PlanView.is_settled, list[str]()

    def is_settled(view: PlanView, resource: str) -> bool:
        settled = real(view, resource)
        if settled:
            decided.append(resource)
        return settled

    monkeypatch.setattr(PlanView, "is_settled", is_settled)
    ann = await leading_many(cluster, follower=replace(fast_settings("ann").follower, tick_ms=3_600_000))
    opened = {partition_resource(TopicPartition("orders", number)) for number in range(MANY)}
    await async_until(lambda: opened <= set(decided))  # the mirrors have confirmed each, which decides it once more
    decided.clear()
    await ann.service.create_topic("more", 1)
    await async_until(lambda: len(ann.agent.leading) == MANY + 1)
    assert len(decided) < 10


async def test_when_everything_is_looked_at_again_what_is_settled_costs_little(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = await leading_many(cluster, follower=replace(fast_settings("ann").follower, tick_ms=50))
    looked, decided = counted(monkeypatch, PlanView, "reconsider_all"), counted(monkeypatch, plan_executor, "decide")
    await async_until(lambda: looked() >= 3)
    assert decided() < MANY
    assert len(ann.leads()) == MANY


class CountedWalks(dict[Any, Any]):
    """A dictionary that counts how often somebody goes over all of it."""

    walks = 0

    def values(self) -> Any:
        self.walks += 1
        return super().values()

    def __iter__(self) -> Any:
        self.walks += 1
        return super().__iter__()


async def test_a_topic_that_changes_makes_nobody_look_at_the_partitions_of_others(cluster: LocalCluster) -> None:
    ann = await leading_many(cluster)
    handler = ann.agent.log._handler
    assert handler is not None
    handler.leading = CountedWalks(handler.leading)
    await ann.service.create_topic("more", 1)
    await async_until(lambda: TopicPartition("more", 0) in handler.leading)
    await ann.service.topics.alter("more", {"retention_ms": 1_000})
    await ann.service.topics.delete("more")
    await async_until(lambda: TopicPartition("more", 0) not in handler.leading)
    assert handler.leading.walks == 0


async def test_a_topic_that_changes_while_a_partition_is_opened_is_applied_to_it(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = await cluster.node("ann")
    real = open_partitions

    async def altered_meanwhile(takeovers: Sequence[PartitionTakeover], *args: Any, **kwargs: Any) -> Any:
        opened = await real(takeovers, *args, **kwargs)
        if any(takeover.partition_id.number == 0 for takeover in takeovers):
            before = ann.agent.topic("orders")
            await ann.service.topics.alter("orders", {"roll_ms": 12_345})
            await async_until(lambda: ann.agent.topic("orders") is not before)
            await cluster.clock.sleep_ms(20)  # the handler has been told
        return opened

    monkeypatch.setattr(lease_handler, "open_partitions", altered_meanwhile)
    await ann.service.create_topic("orders", 2)
    await async_until(lambda: len(ann.leads()) == 2)
    await async_until(lambda: all(each.partition_config.roll_ms == 12_345 for each in ann.agent.log.leading.values()))


async def test_records_that_wait_for_their_time_are_not_looked_at_meanwhile(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = await leading_many(cluster)
    await produce_to_each(ann)
    await async_until(lambda: not ann.agent.log._dirty_partitions._marked)  # each has been placed where it belongs
    looked = counted(monkeypatch, DirtyPartitions, "drop_if_quiescent")
    scanned = counted(monkeypatch, DirtyPartitions, "dirty")
    rounds = counted(monkeypatch, DirtyPartitions, "take_marked")
    await async_until(lambda: rounds() >= 10)
    assert looked() < MANY
    assert scanned() == 0


@pytest.mark.slow
async def test_what_cannot_be_opened_without_its_wal_costs_one_call_however_much_it_is(cluster: LocalCluster) -> None:
    ann = await leading_many(cluster)
    await produce_to_each(ann)
    await ann.drop()
    bob = await cluster.node("bob", open_retry_ms=20)
    marks = bob.agent.cluster._offline.items
    await async_until(lambda: len(marks) == MANY)

    async def ten_rounds() -> int:
        before, scans = sum(bob.store.calls.values()), bob.store.calls["scan"]
        await async_until(lambda: bob.store.calls["scan"] >= scans + 10)
        return sum(bob.store.calls.values()) - before

    await ten_rounds()  # in which the calls end that marked them
    assert await ten_rounds() < 40  # a scan per round, and what any agent does
    back = await cluster.node("ann")
    await async_until(lambda: len(bob.leads()) + len(back.leads()) == MANY)
    await async_until(lambda: not bob.agent.offline)
