"""What a replication factor means: pure, and what a cluster of three brokers makes of it.

Replicas of topics that are created here are those of the plan: that partitions are led and kept by them is for the log's own tests.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka_admin import Admin, code
from tests.support.replicas import admins_of
from tests.support.waiting import async_until

from holdfast.gateways.kafka.errors import ApiError
from holdfast.gateways.kafka.replication_factor import altered_settings, new_topic_settings
from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kernel.keys import plan_key
from holdfast.kernel.placement_requests import assigned_partitions
from holdfast.kernel.planner import decode_placements
from holdfast.log.topics import Topic

SOON = timedelta(seconds=10)
QUORUM: dict[str, object] = {"durability": "quorum"}
TWO: dict[str, object] = {**QUORUM, "replication_factor": 2}
THREE: dict[str, object] = {**QUORUM, "replication_factor": 3}
REFUSED: dict[str, object] = {"refused": True}


def settings(**given: Any) -> KafkaSettings:
    return KafkaSettings(**{"replication_factor": "refuse", **given})


@pytest.mark.parametrize(
    ("requested", "given", "agents", "expected"),
    [
        (-1, {}, 3, {}),
        (1, {}, 3, {}),
        (-1, {"durability": "object"}, 3, {"durability": "object"}),
        (2, {}, 3, TWO),
        (3, {}, 3, THREE),
        (3, QUORUM, 3, THREE),
        (-1, QUORUM, 5, THREE),
        (1, QUORUM, 2, TWO),
        (-1, THREE, 3, THREE),
        (2, THREE, 3, TWO),  # the request's own field counts
        (-1, QUORUM, 1, REFUSED),
        (2, QUORUM, 1, REFUSED),
        (3, {}, 2, REFUSED),
        (3, {}, 0, REFUSED),
        (4, {}, 9, REFUSED),
        (0, {}, 3, REFUSED),
        (-2, {}, 3, REFUSED),
        (2, {"durability": "local"}, 3, REFUSED),
        (2, {"durability": "object"}, 3, REFUSED),
    ],
)
def test_a_factor_follows_the_durability_or_is_quorum(
    requested: int, given: dict[str, object], agents: int, expected: dict[str, object]
) -> None:
    if expected is not REFUSED:
        assert new_topic_settings("x", requested, given, agents=agents, settings=settings()) == expected
        return
    with pytest.raises(ApiError) as refused:
        new_topic_settings("x", requested, given, agents=agents, settings=settings())
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize(
    ("requested", "given", "agents", "expected"),
    [
        (3, {}, 1, {}),
        (3, {}, 2, TWO),
        (9, {}, 5, THREE),
        (3, {"durability": "object"}, 3, {"durability": "object"}),
        (3, {"durability": "local"}, 1, {"durability": "local"}),
        (3, {"replication_factor": 3}, 1, {}),
        (3, QUORUM, 2, TWO),
        (3, QUORUM, 1, REFUSED),  # asked for by name, and not there
        (0, {}, 1, REFUSED),
    ],
)
def test_a_cap_gives_what_there_is_and_says_so(
    requested: int,
    given: dict[str, object],
    agents: int,
    expected: dict[str, object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    cap = settings(replication_factor="cap")
    if expected is REFUSED:
        with pytest.raises(ApiError):
            new_topic_settings("x", requested, given, agents=agents, settings=cap)
        return
    assert new_topic_settings("x", requested, given, agents=agents, settings=cap) == expected
    assert f"instead of {requested}" in caplog.text


@pytest.mark.parametrize(
    ("default", "given", "expected"),
    [(3, {}, THREE), (2, {}, TWO), (3, {"durability": "object"}, {"durability": "object"}), (2, QUORUM, TWO)],
)
def test_the_default_factor_counts_where_neither_factor_nor_durability_is_given(
    default: int, given: dict[str, object], expected: dict[str, object]
) -> None:
    found = settings(default_replication_factor=default)
    assert new_topic_settings("x", -1, given, agents=3, settings=found) == expected
    assert "durability" not in new_topic_settings("x", 1, {}, agents=3, settings=found)


def test_a_topic_gets_a_factor_only_if_there_are_agents_for_it() -> None:
    topic = Topic(id="ab", name="x", partitions=1, created_at_ms=0)
    assert altered_settings(topic, QUORUM, agents=2, settings=settings()) == TWO
    assert altered_settings(topic, {"replication_factor": 3}, agents=3, settings=settings()) == THREE
    with pytest.raises(ApiError, match="only 2 broker"):
        altered_settings(topic, {"replication_factor": 3}, agents=2, settings=settings())
    assert (
        altered_settings(topic, {"replication_factor": 3}, agents=2, settings=settings(replication_factor="cap")) == TWO
    )
    lowered = Topic(id="ab", name="x", partitions=1, created_at_ms=0, overrides=THREE)
    assert altered_settings(lowered, {"replication_factor": 2}, agents=1, settings=settings()) == {
        "replication_factor": 2
    }


def wanted(name: str, factor: int, partitions: int = 4, **configs: str) -> dict[str, Any]:
    found = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return {"name": name, "num_partitions": partitions, "replication_factor": factor, "configs": found}


async def create(admin: Admin, **topic: Any) -> tuple[ErrorCode, int, str]:
    (made,) = (await admin.ask("CreateTopics", topics=[topic], timeout=timedelta(0))).topics
    return code(made), made.replication_factor, made.error_message or ""


async def until_planned(admin: Admin, name: str, replicas: int) -> None:
    """Wait until every partition of a topic has so many agents in the plan."""

    async def planned() -> bool:
        entry = await admin.gateway.cluster.store.get(plan_key(name))
        placements = decode_placements(entry.value) if entry is not None else ()
        return {len(set(placement)) for placement in placements} == {replicas}

    await async_until(planned)


async def alter(admin: Admin, name: str, **configs: str | None) -> tuple[ErrorCode, str]:
    changes = [
        {"name": key.replace("_", "."), "config_operation": 0 if value is not None else 1, "value": value}
        for key, value in configs.items()
    ]
    resource = {"resource_type": 2, "resource_name": name, "configs": changes}
    (result,) = (await admin.ask("IncrementalAlterConfigs", resources=[resource])).responses
    return code(result), result.error_message or ""


async def test_three_brokers_give_three_replicas_and_refuse_more(tmp_path: Path) -> None:
    async with admins_of(tmp_path, "ann", "bob", "cat") as (admin, *_):
        assert await create(admin, **wanted("three", 3, min_insync_replicas="2")) == (ErrorCode.NONE, 3, "")
        topic = await admin.backend.log.topics.get("three")
        assert topic.overrides == {"durability": "quorum", "replication_factor": 3, "min_insync_replicas": 2}
        await until_planned(admin, "three", 3)
        assert (await create(admin, **wanted("default", -1, holdfast_durability="quorum")))[:2] == (ErrorCode.NONE, 3)
        assert (await create(admin, **wanted("plain", -1)))[:2] == (ErrorCode.NONE, 1)
        refused = await create(admin, **wanted("more", 4))
        assert refused[0] is ErrorCode.INVALID_REPLICATION_FACTOR
        refused = await create(admin, **wanted("unmet", 2, min_insync_replicas="3"))
        assert (refused[0], "at most 2" in refused[2]) == (ErrorCode.INVALID_CONFIG, True)
        # As Kafka accepts it, and MirrorMaker sends it: without effect.
        assert (await create(admin, **wanted("mirrored", 1, min_insync_replicas="3")))[0] is ErrorCode.NONE


async def test_durability_and_min_insync_are_changed_live(tmp_path: Path) -> None:
    async with admins_of(tmp_path, "ann", "bob", "cat") as (admin, *_):
        assert (await create(admin, **wanted("orders", 1)))[0] is ErrorCode.NONE
        assert await alter(admin, "orders", holdfast_durability="quorum") == (ErrorCode.NONE, "")
        await until_planned(admin, "orders", 3)
        assert await alter(admin, "orders", min_insync_replicas="3") == (ErrorCode.NONE, "")
        refused, text = await alter(admin, "orders", holdfast_replication_factor="2")
        assert (refused, "at most 2, the replication factor" in text) == (ErrorCode.INVALID_CONFIG, True)
        both = {"holdfast_replication_factor": "2", "min_insync_replicas": "2"}
        assert await alter(admin, "orders", **both) == (ErrorCode.NONE, "")
        await until_planned(admin, "orders", 2)
        # Kafka's AlterConfigs replaces every setting; a factor is none of them.
        configs = [{"name": "retention.ms", "value": "60000"}]
        resource = {"resource_type": 2, "resource_name": "orders", "configs": configs}
        (result,) = (await admin.ask("AlterConfigs", resources=[resource])).responses
        assert code(result) is ErrorCode.NONE
        topic = await admin.backend.log.topics.get("orders")
        assert topic.overrides == {"durability": "quorum", "replication_factor": 2, "retention_ms": 60_000}
        assert await alter(admin, "orders", holdfast_durability=None) == (ErrorCode.NONE, "")
        assert (await admin.backend.log.topics.get("orders")).overrides == {"retention_ms": 60_000}
        await until_planned(admin, "orders", 1)


async def test_auto_created_topics_get_the_default_factor(tmp_path: Path) -> None:
    for factor, found in (
        (2, (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)),
        (3, (ErrorCode.INVALID_REPLICATION_FACTOR,)),
    ):
        made = KafkaSettings(default_replication_factor=factor)
        async with admins_of(tmp_path / str(factor), "ann", "bob", settings=made) as (admin, *_):
            (topic,) = (await admin.ask("Metadata", topics=[{"name": "orders"}])).topics
            assert code(topic) in found
            (config,) = (
                (
                    await admin.ask(
                        "DescribeConfigs",
                        resources=[
                            {
                                "resource_type": 4,
                                "resource_name": str(admin.node),
                                "configuration_keys": ["default.replication.factor"],
                            }
                        ],
                    )
                )
                .results[0]
                .configs
            )
            assert config.value == str(factor)
            if factor == 2:
                stored = await admin.backend.log.topics.get("orders")
                assert stored.overrides == {"durability": "quorum", "replication_factor": 2}


async def test_brokers_that_are_named_for_partitions_get_them(tmp_path: Path) -> None:
    async with admins_of(tmp_path, "ann", "bob", "cat") as admins:
        ann, bob, cat = (admin.node for admin in admins)
        admin, store = admins[0], admins[0].gateway.cluster.store
        told: dict[str, Any] = {"clock": admin.backend.clock, "random": admin.backend.random}

        def assignments(*replicas: list[int]) -> list[dict[str, Any]]:
            return [{"partition_index": number, "broker_ids": nodes} for number, nodes in enumerate(replicas)]

        uneven = assignments([ann, bob], [bob])
        named = {"name": "orders", "num_partitions": -1, "replication_factor": -1, "configs": []}
        refused = await create(admin, **{**named, "assignments": uneven})
        assert refused[0] is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert "not consistent with previous partitions, which have 2 replica(s)" in refused[2]
        made = await create(admin, **{**named, "assignments": assignments([bob, cat], [cat, ann])})
        assert made == (ErrorCode.NONE, 2, "")
        assert await assigned_partitions(store, **told) == {"orders": {0: ("bob", "cat"), 1: ("cat", "ann")}}

        async def grow(*replicas: list[int]) -> ErrorCode:
            more = {
                "name": "orders",
                "count": 2 + len(replicas),
                "assignments": [{"broker_ids": each} for each in replicas],
            }
            answer = await admin.ask("CreatePartitions", topics=[more], timeout=timedelta(0))
            return code(answer.results[0])

        assert await grow([ann]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT  # one replica, and the others have two
        assert await grow([ann, cat]) is ErrorCode.NONE
        assert (await assigned_partitions(store, **told))["orders"][2] == ("ann", "cat")

        async def planned() -> bool:
            entry = await store.get(plan_key("orders"))
            found = decode_placements(entry.value) if entry is not None else ()
            return found == (("bob", "cat"), ("cat", "ann"), ("ann", "cat"))

        await async_until(planned)
