"""AlterPartitionReassignments and ListPartitionReassignments: partitions go to the broker that is named, and stay there."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster import LocalCluster
from tests.support.kafka_admin import Admin, admin_of, code, versions
from tests.support.kafka_wire import gateway_of
from tests.support.partitions import batch
from tests.support.waiting import async_until

from holdfast.contracts.store import Committed, Conflict, Operation, Scan, Store
from holdfast.gateways.kafka.leaders import leader_of
from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kernel.keys import PLACED, assignment_key, holder_key
from holdfast.kernel.placement_requests import assign_partitions, assigned_partitions

SOON = timedelta(seconds=10)


async def alter(admin: Admin, partition: int, replicas: list[int] | None, version: int = 1) -> tuple[ErrorCode, str]:
    topics = [{"name": "orders", "partitions": [{"partition_index": partition, "replicas": replicas}]}]
    answer = await admin.ask("AlterPartitionReassignments", version, topics=topics, timeout=SOON)
    assert code(answer) is ErrorCode.NONE
    (result,) = answer.responses[0].partitions
    return code(result), result.error_message or ""


async def test_a_partition_moves_to_the_broker_that_is_named(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    try:
        async with (
            gateway_of(cluster, "ann", KafkaSettings()) as ann,
            gateway_of(cluster, "bob", KafkaSettings()) as bob,
        ):
            await ann.node.service.create_topic("orders", 4)
            await async_until(lambda: len(ann.node.leads()) == len(bob.node.leads()) == 2)
            number = min(ann.node.leads())
            await cluster.produce("orders", number, "before")
            await async_until(lambda: bob.backend.cluster.leader("orders", number))
            me = bob.backend.me()
            assert me is not None
            admin = Admin(bob, await bob.client())
            assert await alter(admin, number, [me.node]) == (ErrorCode.NONE, "")
            await async_until(lambda: number in bob.node.leads())
            await async_until(lambda: leader_of(ann.backend.cluster, "orders", number).node == me.node)
            await bob.node.service.produce("orders", number, batch("after"))
            assert [value for _, value in await cluster.read("orders", number)] == ["before", "after"]
            # Asked again it changes nothing, and nothing is under way that could be cancelled.
            assert await alter(admin, number, [me.node]) == (ErrorCode.NONE, "")
            assert (await alter(admin, number, None))[0] is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    finally:
        await cluster.end()


class CountedStore:
    """A store whose calls are counted, by what they do and where."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls: Counter[tuple[str, str]] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def scan(self, start: str, end: str) -> Scan:
        self.calls["scan", start] += 1
        return await self._store.scan(start, end)

    async def commit(self, *, apply: Sequence[Operation] = (), **more: Any) -> Committed | Conflict:
        self.calls.update(("commit", each.key) for each in apply)
        return await self._store.commit(apply=apply, **more)


async def test_a_request_reads_the_cluster_once_and_writes_each_topic_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = ("bills", "orders", "parcels")
    async with admin_of(tmp_path, topics=dict.fromkeys(topics, 4)) as admin:
        await admin.gateway.cluster.node("bob", address="127.0.0.1:1")
        await async_until(lambda: len(admin.backend.cluster.members) == 2)
        bob = next(member.node for member in admin.backend.cluster.members if member.id == "bob")
        await async_until(lambda: {leader(admin, name, n) for name in topics for n in range(4)} == {admin.node, bob})
        store = CountedStore(admin.gateway.cluster.store)
        monkeypatch.setattr(admin.backend.administration, "_store", store)
        for node, agents in ((bob, "all to one"), (admin.node, "and back")):
            store.calls.clear()
            asked = [
                {"name": name, "partitions": [{"partition_index": n, "replicas": [node]} for n in range(4)]}
                for name in topics
            ]
            answer = await admin.ask("AlterPartitionReassignments", topics=asked, timeout=SOON)
            assert {code(each) for topic in answer.responses for each in topic.partitions} == {ErrorCode.NONE}, agents
            assert store.calls["scan", holder_key(PLACED)] <= 1
            assert {store.calls["commit", assignment_key(name)] for name in topics} == {1}
        store.calls.clear()
        await admin.ask("ListPartitionReassignments", topics=None, timeout=SOON)
        assert store.calls["scan", holder_key(PLACED)] == 1


async def test_what_was_assigned_to_a_broker_that_is_away_is_replaced_by_its_leader(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1}) as admin:
        store, told = admin.gateway.cluster.store, {"clock": admin.backend.clock, "random": admin.backend.random}
        await assign_partitions(store, "orders", {0: ("away",)}, **told)  # type: ignore[arg-type]
        assert await alter(admin, 0, [admin.node]) == (ErrorCode.NONE, "")
        me = next(member.id for member in admin.backend.cluster.members)
        assert await assigned_partitions(store, **told) == {"orders": {0: (me,)}}  # type: ignore[arg-type]


def leader(admin: Admin, name: str, number: int) -> int:
    return leader_of(admin.backend.cluster, name, number).node


async def test_what_is_under_way_is_listed_and_can_be_cancelled(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 3}) as admin:
        store, told = admin.gateway.cluster.store, {"clock": admin.backend.clock, "random": admin.backend.random}
        # A broker that lists itself and never takes anything: the second of two under one session.
        await admin.gateway.cluster.node("bob", address="127.0.0.1:1", group="elsewhere")
        await async_until(lambda: len(admin.backend.cluster.members) == 2)
        bob = next(member.node for member in admin.backend.cluster.members if member.id == "bob")
        await assign_partitions(store, "orders", {1: ("bob",)}, **told)  # type: ignore[arg-type]
        for wanted in (None, [{"name": "orders", "partition_indexes": [0, 1]}]):
            answer = await admin.ask("ListPartitionReassignments", topics=wanted, timeout=SOON)
            (topic,) = answer.topics
            (moving,) = topic.partitions
            assert (topic.name, moving.partition_index) == ("orders", 1)
            assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == (
                (admin.node, bob),
                (bob,),
                (admin.node,),
            )
        others = [{"name": "orders", "partition_indexes": [0]}]
        assert (await admin.ask("ListPartitionReassignments", topics=others, timeout=SOON)).topics == ()
        assert await alter(admin, 1, None) == (ErrorCode.NONE, "")
        assert (await admin.ask("ListPartitionReassignments", topics=None, timeout=SOON)).topics == ()


async def test_what_cannot_be_done_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 3}) as admin:
        for version in versions("AlterPartitionReassignments"):
            assert await alter(admin, 0, [admin.node], version) == (ErrorCode.NONE, "")
            refused, text = await alter(admin, 1, [admin.node, 999], version)
            assert (refused, "must be one" in text) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, True)
            refused, text = await alter(admin, 1, [999], version)
            assert (refused, "invalid broker 999" in text) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, True)
            assert (await alter(admin, 2, None, version))[0] is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            assert (await alter(admin, 3, [admin.node], version))[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for wanted in (None, [{"name": "orders", "partition_indexes": [0]}]):
            answer = await admin.ask("ListPartitionReassignments", topics=wanted, timeout=SOON)
            assert (code(answer), answer.topics) == (ErrorCode.NONE, ())
