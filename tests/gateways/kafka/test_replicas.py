"""What clients see of replicas, on every broker of a cluster: in Metadata and DescribeTopicPartitions, and when they produce.

Where a replica falls behind, who keeps a partition's tail is written by hand, as leaders do (`support.replicas.show_replicas`),
for a topic without replicas: how leaders come to it is the matter of the log's tests.
"""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka_admin import Admin
from tests.support.kafka_wire import PRODUCE, produce_request
from tests.support.partitions import batch
from tests.support.replicas import admins_of, show_replicas
from tests.support.waiting import async_until

from holdfast.gateways.kafka.errors import code_of
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kernel.keys import NODES, PLANS
from holdfast.log.errors import NotEnoughReplicasError
from holdfast.log.keys import LOGS, REPLICA_SETS, WAL_AGENTS


def knows(admin: Admin, agents: int) -> bool:
    return len(admin.backend.cluster.members) == agents


async def shown(admin: Admin) -> list[tuple[Any, ...]]:
    """Leader, replicas, in sync and offline of the only partition, by both APIs that list them."""
    found = []
    for name, asked in (
        ("Metadata", {"topics": [{"name": "orders"}]}),
        ("DescribeTopicPartitions", {"topics": [{"name": "orders"}], "response_partition_limit": 10, "cursor": None}),
    ):
        (topic,) = (await admin.ask(name, **asked)).topics
        (each,) = topic.partitions
        found.append((each.leader_id, each.replica_nodes, each.isr_nodes, each.offline_replicas))
    return found


async def test_every_broker_shows_the_replicas_that_keep_up_and_those_that_are_gone(tmp_path: Path) -> None:
    async with admins_of(tmp_path, "ann", "bob", "cat") as admins:
        nodes = {admin.gateway.node.name: admin.node for admin in admins}
        topic = await admins[0].backend.log.create_topic("orders", 1)
        await async_until(lambda: all(admin.backend.cluster.leader("orders", 0) for admin in admins))
        held = admins[0].backend.cluster.leader("orders", 0)
        assert held is not None
        leader = nodes[held.holder]
        for admin in admins:
            assert await shown(admin) == [(leader, (leader,), (leader,), ())] * 2  # as ever, without replicas
        second, third = (name for name in nodes if name != held.holder)
        order = [held.holder, second, third]
        listed = tuple(nodes[name] for name in order)
        await show_replicas(admins, topic, 0, order, order)
        for admin in admins:
            assert await shown(admin) == [(leader, listed, listed, ())] * 2
        await show_replicas(admins, topic, 0, order, [held.holder, second])
        for admin in admins:
            assert await shown(admin) == [(leader, listed, listed[:2], ())] * 2
        gone = next(admin for admin in admins if admin.gateway.node.name == second)
        await gone.gateway.node.drop()
        rest = [admin for admin in admins if admin is not gone]
        for admin in rest:
            await async_until(partial(knows, admin, 2))
            assert await shown(admin) == [(leader, listed, listed[:1], (nodes[second],))] * 2


async def test_metadata_reads_nothing_from_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with admins_of(tmp_path, "ann", "bob") as admins:
        topic = await admins[0].backend.log.create_topic("orders", 1)
        await async_until(lambda: all(admin.backend.cluster.leader("orders", 0) for admin in admins))
        await show_replicas(admins, topic, 0, ["ann", "bob"], ["ann"])
        store, read = admins[0].gateway.node.store, list[str]()
        real_get, real_scan = store.get, store.scan

        async def get(key: str) -> Any:
            read.append(key)
            return await real_get(key)

        async def scan(start: str, end: str, **options: Any) -> Any:
            read.append(start)
            return await real_scan(start, end, **options)

        monkeypatch.setattr(store, "get", get)
        monkeypatch.setattr(store, "scan", scan)
        for _ in range(5):
            assert len((await shown(admins[0]))[0][1]) == 2
        assert not [key for key in read if key.startswith((REPLICA_SETS, LOGS, WAL_AGENTS, NODES, PLANS))]


async def produced(admin: Admin, value: str) -> ErrorCode:
    answer = await admin.client.ask(PRODUCE, 12, produce_request("orders", {0: batch(value)}))
    return ErrorCode(answer.responses[0].partition_responses[0].error_code.value)


async def test_replicas_are_those_that_serve_and_too_few_refuse_appends(tmp_path: Path) -> None:
    async with admins_of(tmp_path, "ann", "bob") as admins:
        ann, bob = admins
        nodes = {ann.node, bob.node}
        await ann.backend.log.topics.create("orders", 1, {"durability": "quorum", "replication_factor": 2})
        await ann.backend.administration.assign("orders", {0: ("ann", "bob")})

        async def both_serve() -> bool:
            found = [found for admin in admins for found in await shown(admin)]
            return all(
                (leader, {*listed}, {*in_sync}) == (ann.node, nodes, nodes) for leader, listed, in_sync, _ in found
            )

        await async_until(lambda: all(knows_topic(admin) for admin in admins))
        await async_until(both_serve)
        assert await produced(ann, "kept") is ErrorCode.NONE
        gone = bob.node
        await bob.gateway.node.drop()

        async def is_refused() -> bool:
            return await produced(ann, "refused") is ErrorCode.NOT_ENOUGH_REPLICAS

        await async_until(is_refused)

        async def shows_that_bob_is_gone() -> bool:
            return all(
                (leader, in_sync, offline) == (ann.node, (ann.node,), tuple(node for node in listed if node == gone))
                for leader, listed, in_sync, offline in await shown(ann)
            )

        await async_until(shows_that_bob_is_gone)


def knows_topic(admin: Admin) -> bool:
    return admin.backend.cluster.topic("orders") is not None


def test_an_append_that_was_sent_to_too_few_has_a_code_of_its_own() -> None:
    assert code_of(NotEnoughReplicasError("orders:0", 1, 2)) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert code_of(NotEnoughReplicasError("orders:0", 1, 2, True)) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
