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
from tests.support.replicas import admins_of, show_replicas
from tests.support.waiting import async_until

from holdfast.contracts.store import Committed, Conflict, Operation, Scan, Store
from holdfast.gateways.kafka.api import ClientInfo, RequestContext
from holdfast.gateways.kafka.api_table import APIS
from holdfast.gateways.kafka.leaders import leader_of
from holdfast.gateways.kafka.reassignments import _TopicChange
from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kernel.keys import PLACED, assignment_key, holder_key, plan_key, workload_key
from holdfast.kernel.placement_requests import assign_partitions, assigned_partitions
from holdfast.kernel.planner import decode_placements
from holdfast.log.keys import topic_key

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
            for replicas, why in (
                ([admin.node, 999], "includes broker 999, but no such broker is registered"),
                ([999], "includes broker 999, but no such broker is registered"),
                ([admin.node] * 2, f"includes the broker {admin.node} more than once"),
                ([], "empty replica list"),
                ([1, 2, 3, 4], "a partition has 3 at most"),
            ):
                refused, text = await alter(admin, 1, replicas, version)
                assert (refused, why in text) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, True)
            assert (await alter(admin, 2, None, version))[0] is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            assert (await alter(admin, 3, [admin.node], version))[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for wanted in (None, [{"name": "orders", "partition_indexes": [0]}]):
            answer = await admin.ask("ListPartitionReassignments", topics=wanted, timeout=SOON)
            assert (code(answer), answer.topics) == (ErrorCode.NONE, ())


async def replace_replicas(admin: Admin, *replicas: list[int], may_change: bool = True) -> list[tuple[ErrorCode, str]]:
    """Give the partitions of `orders`, from 0 on, these replicas in one request."""
    wanted = [{"partition_index": number, "replicas": nodes} for number, nodes in enumerate(replicas)]
    answer = await admin.ask(
        "AlterPartitionReassignments",
        topics=[{"name": "orders", "partitions": wanted}],
        timeout=SOON,
        allow_replication_factor_change=may_change,
    )
    assert answer.allow_replication_factor_change is may_change
    return [(code(each), each.error_message or "") for each in answer.responses[0].partitions]


async def test_all_partitions_of_a_topic_get_another_number_of_replicas_in_one_request(tmp_path: Path) -> None:
    async with admins_of(tmp_path, "ann", "bob", "cat") as admins:
        admin, (ann, bob, cat) = admins[0], (each.node for each in admins)
        topics, store = admin.backend.log.topics, admin.gateway.cluster.store
        await topics.create("orders", 2, {"retention_ms": 60_000})
        await async_until(lambda: admin.backend.cluster.topic("orders"))

        async def planned() -> tuple[tuple[str, ...], ...]:
            entry = await store.get(plan_key("orders"))
            return decode_placements(entry.value) if entry is not None else ()

        async def until_known(factor: int) -> None:
            def known() -> bool:
                topic = admin.backend.cluster.topic("orders")
                return topic is not None and topic.config.replication_factor == factor

            await async_until(known)

        async def until_planned(*placements: tuple[str, ...]) -> None:
            async def is_planned() -> bool:
                return await planned() == placements

            await async_until(is_planned)

        for replicas, why in (
            ([[ann, bob]], "all 2 partitions of orders"),  # one of two partitions
            ([[ann, bob], [bob, cat, ann]], "all 2 partitions of orders"),
        ):
            for refused, text in await replace_replicas(admin, *replicas):
                assert (refused, why in text) == (ErrorCode.INVALID_REPLICATION_FACTOR, True)
        assert {each for each, _ in await replace_replicas(admin, [ann, bob], [bob, ann], may_change=False)} == {
            ErrorCode.INVALID_REPLICATION_FACTOR
        }
        assert (await topics.get("orders")).overrides == {"retention_ms": 60_000}
        for nodes, names in (
            (([ann, bob, cat], [bob, cat, ann]), (("ann", "bob", "cat"), ("bob", "cat", "ann"))),
            (([cat, ann], [bob, ann]), (("cat", "ann"), ("bob", "ann"))),
            (([bob], [cat]), (("bob",), ("cat",))),
        ):
            assert await replace_replicas(admin, *nodes) == [(ErrorCode.NONE, "")] * 2
            factor = len(nodes[0])
            quorum = {"durability": "quorum", "replication_factor": factor} if factor > 1 else {}
            assert (await topics.get("orders")).overrides == {"retention_ms": 60_000, **quorum}
            await until_planned(*names)
            await until_known(factor)


async def test_a_factor_changes_for_all_partitions_or_none(tmp_path: Path) -> None:
    async with admins_of(tmp_path, "ann", "bob") as admins:
        admin, (ann, bob) = admins[0], (each.node for each in admins)
        topics = admin.backend.log.topics
        await topics.create("orders", 3)
        await async_until(lambda: admin.backend.cluster.topic("orders"))
        results = await replace_replicas(admin, [ann, bob], [ann, 999], [bob, ann])
        assert [refused for refused, _ in results] == [
            ErrorCode.INVALID_REPLICATION_FACTOR,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ErrorCode.INVALID_REPLICATION_FACTOR,
        ]
        assert "for all partitions or none, and partition 1 was refused" in results[0][1]
        assert (await topics.get("orders")).overrides == {}
        assert await admin.backend.administration.assignments() == {}


async def test_a_factor_and_its_assignment_are_one_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with admins_of(tmp_path, "ann", "bob") as admins:
        admin, (ann, bob) = admins[0], (each.node for each in admins)
        topics, store = admin.backend.log.topics, admin.gateway.cluster.store
        await topics.create("orders", 1)
        await async_until(lambda: admin.backend.cluster.topic("orders"))
        written: list[set[str]] = []
        commit = store.commit

        async def counted(*args: Any, apply: Sequence[Operation], **named: Any) -> Committed | Conflict:
            written.append({each.key for each in apply})
            return await commit(*args, apply=apply, **named)

        monkeypatch.setattr(store, "commit", counted)
        assert await replace_replicas(admin, [bob, ann]) == [(ErrorCode.NONE, "")]
        changed = [keys for keys in written if assignment_key("orders") in keys]
        assert changed == [{topic_key("orders"), workload_key("orders"), assignment_key("orders")}]
        assert (await topics.get("orders")).config.replication_factor == 2
        assert await admin.backend.administration.assignments() == {"orders": {0: ("bob", "ann")}}


async def test_a_factor_that_the_topics_settings_exclude_is_refused(tmp_path: Path) -> None:
    async with admins_of(tmp_path, "ann", "bob") as admins:
        admin, (ann, bob) = admins[0], (each.node for each in admins)
        for config, replicas, why in (
            ({"durability": "object"}, [ann, bob], "1 at durability object"),
            ({"min_insync_replicas": 3}, [ann, bob], "at most 2, the replication factor"),
        ):
            await admin.backend.log.topics.create("orders", 1, config)
            await async_until(lambda: admin.backend.cluster.topic("orders"))
            ((refused, text),) = await replace_replicas(admin, replicas)
            assert (refused, why in text) == (ErrorCode.INVALID_REPLICATION_FACTOR, True)
            assert await admin.backend.administration.assignments() == {}
            await admin.backend.log.topics.delete("orders")
            await async_until(lambda: admin.backend.cluster.topic("orders") is None)


async def test_a_reassignment_is_listed_until_the_set_that_serves_is_the_assigned_one(tmp_path: Path) -> None:
    """The set is written by hand, as a leader would, for a topic that has just got a factor of 1."""
    async with admins_of(tmp_path, "ann", "bob", "cat") as admins:
        admin, (ann, bob, cat) = admins[0], (each.node for each in admins)
        topic = await admin.backend.log.topics.create("orders", 1)
        await async_until(lambda: admin.backend.cluster.leader("orders", 0))
        assert await replace_replicas(admin, [bob]) == [(ErrorCode.NONE, "")]
        await async_until(lambda: leader(admin, "orders", 0) == bob)
        listed: dict[str, Any] = {"topics": None, "timeout": SOON}
        assert (await admin.ask("ListPartitionReassignments", **listed)).topics == ()
        await show_replicas(admins, topic, 0, ["ann", "bob", "cat"], ["bob"])
        ((moving,),) = [each.partitions for each in (await admin.ask("ListPartitionReassignments", **listed)).topics]
        assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == ((ann, bob, cat), (), (ann, cat))
        await show_replicas(admins, topic, 0, ["bob"], ["bob"])
        assert (await admin.ask("ListPartitionReassignments", **listed)).topics == ()


class _Wanted:
    """A partition of a request, which counts how often it is looked at."""

    looks = 0

    def __init__(self, number: int, node: int) -> None:
        self.partition_index, self._node = number, node

    @property
    def replicas(self) -> list[int]:
        _Wanted.looks += 1
        return [self._node]


async def test_a_request_for_many_partitions_is_looked_at_once_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = LocalCluster(tmp_path)
    try:
        async with gateway_of(cluster, "ann", KafkaSettings()) as ann:
            await ann.node.service.create_topic("orders", 100, {"durability": "quorum", "replication_factor": 2})
            await async_until(lambda: ann.backend.cluster.topic("orders"))
            await async_until(ann.backend.me)
            me = ann.backend.me()
            assert me is not None
            monkeypatch.setattr(_Wanted, "looks", 0)
            peer = ClientInfo("", 0)
            call = RequestContext(APIS[ApiKey.ALTER_PARTITION_REASSIGNMENTS], 1, 0, "", peer, ann.backend)
            change = _TopicChange(call, "orders", {}, ())
            results = await change.results([_Wanted(number, me.node) for number in range(100)], True)
            assert {result["error_code"] for result in results} == {ErrorCode.NONE}
            assert (await ann.node.service.topics.get("orders")).config.replication_factor == 1
            assert _Wanted.looks <= 1_000  # not by the square of the partitions
    finally:
        await cluster.end()
