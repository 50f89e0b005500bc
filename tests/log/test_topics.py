"""Topics: created, altered and deleted by single commits; settings as text; the table for people says the same."""

import asyncio
import re
from dataclasses import fields
from pathlib import Path

import msgspec
import pytest

from holdfast.contracts.store import Entry, Put
from holdfast.contracts.validation import StoreLimits
from holdfast.kernel.keys import workload_key
from holdfast.kernel.placement import Workload
from holdfast.log.keys import deleted_key, topic_id_key, topic_key
from holdfast.log.metadata import DeletedTopic
from holdfast.log.topic_config import TopicConfig, check_replication, read_config, replication_changes
from holdfast.log.topics import (
    PARTITIONS_MAX,
    FixedPartitionsError,
    PartitionCountError,
    Topic,
    TopicExistsError,
    Topics,
    UnknownTopicError,
    check_name,
)
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.clock import FakeClock, RealClock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import SeededRandom
from holdfast.vocabulary.settings import MIB


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(clock=FakeClock(), random=SeededRandom(1), limits=StoreLimits())


@pytest.fixture
def topics(store: MemoryStore) -> Topics:
    return Topics(store, clock=FakeClock(), random=SeededRandom(2))


async def test_a_topic_its_id_and_its_workload_are_created_by_one_commit(store: MemoryStore, topics: Topics) -> None:
    topic = await topics.create("orders", 3, {"retention_ms": "1000", "agent_group": "fast"})
    written = [await store.get(key) for key in (topic_key("orders"), topic_id_key(topic.id), workload_key("orders"))]
    assert len({entry.version for entry in written if entry is not None}) == 1
    assert written[2] is not None
    assert msgspec.json.decode(written[2].value, type=Workload) == Workload(
        topic="orders", partitions=3, group="fast", rotates=False
    )
    assert re.fullmatch("[0-9a-f]{32}", topic.id)
    assert await topics.get("orders") == await topics.by_id(topic.id) == topic
    assert topic.config == TopicConfig(retention_ms=1_000, agent_group="fast")


async def test_only_what_was_set_is_stored(store: MemoryStore, topics: Topics) -> None:
    await topics.create("orders", 1, {"roll_bytes": str(2 * MIB)})
    entry = await store.get(topic_key("orders"))
    assert entry is not None
    assert msgspec.json.decode(entry.value)["config"] == {"roll_bytes": 2 * MIB}


async def test_a_name_is_taken_once_and_a_name_that_placement_knows_is_taken_too(topics: Topics) -> None:
    await topics.create("orders", 1)
    with pytest.raises(TopicExistsError):
        await topics.create("orders", 2)
    assert (await topics.get("orders")).partitions == 1


async def test_creating_survives_a_lost_answer(store: MemoryStore) -> None:
    faulty = FaultyStore(store, random=SeededRandom(3))
    topics = Topics(faulty, clock=RealClock(), random=SeededRandom(4))
    faulty.lose_answer_to("topic/orders")
    topic = await topics.create("orders", 1)
    assert await topics.get("orders") == topic


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250, "a\n", "a:b"])
def test_names_that_kafka_refuses_are_refused(name: str) -> None:
    with pytest.raises(InvalidError):
        check_name(name)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "__consumer_offsets"])
def test_names_that_kafka_takes_are_taken(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("partitions", [0, -1, PARTITIONS_MAX + 1])
async def test_the_number_of_partitions_has_limits(topics: Topics, partitions: int) -> None:
    with pytest.raises(InvalidError):
        await topics.create("orders", partitions)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention_ms", "-2"),
        ("retention_ms", "a week"),
        ("cleanup_policy", "keep"),
        ("roll_bytes", str(MIB - 1)),
        ("roll_bytes", str(100 * MIB + 1)),
        ("roll_ms", "1"),
        ("durability", "quorum"),  # without a factor
        ("durability", "paper"),
        ("replication_factor", "4"),
        ("replication_factor", "0"),
        ("unclean_takeover", "perhaps"),
        ("max_message_bytes", "1"),
        ("message_timestamp_type", "LogAppendTime"),
        ("min_dirty_ratio", "1.5"),
        ("no_such_setting", "1"),
    ],
)
async def test_a_setting_that_does_not_fit_is_refused_and_nothing_is_created(
    topics: Topics, name: str, value: str
) -> None:
    with pytest.raises(InvalidError):
        await topics.create("orders", 1, {name: value})
    assert await topics.list() == []


def test_settings_are_read_from_text() -> None:
    config = read_config(
        {"cleanup_policy": "delete, compact", "min_dirty_ratio": "0.1", "durability": "object", "retention_bytes": "-1"}
    )
    assert config.cleanup_policy == "compact,delete"
    assert config.compacted
    assert config.policy().delete
    assert config.policy().retention_bytes is None
    assert config.partition_config().level == "object"
    assert not config.append_time


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidError, match="compacted"):
        read_config({"cleanup_policy": "compact", "unclean_takeover": "true"})


async def test_settings_are_altered_together_and_taken_back(topics: Topics) -> None:
    await topics.create("orders", 1, {"retention_ms": 5, "roll_ms": 200})
    altered = await topics.alter("orders", {"retention_ms": None, "roll_ms": "300", "durability": "object"})
    assert altered.overrides == {"roll_ms": 300, "durability": "object"}
    with pytest.raises(InvalidError):
        await topics.alter("orders", {"roll_ms": "400", "durability": "paper"})
    with pytest.raises(InvalidError, match="one of"):
        await topics.alter("orders", {"no_such_setting": None})
    await topics.alter("orders", {"cleanup_policy": "compact"})
    with pytest.raises(InvalidError, match="compacted"):
        await topics.alter("orders", {"unclean_takeover": True})
    assert (await topics.get("orders")).config == TopicConfig(
        roll_ms=300, durability="object", cleanup_policy="compact"
    )


# ── replicas ──


def test_a_factor_needs_quorum_and_quorum_a_factor() -> None:
    for given, allowed in (
        ({"durability": "quorum"}, "2 to 3 at durability quorum"),
        ({"replication_factor": 2}, "1 at durability local: several replicas are durability quorum"),
        ({"durability": "object", "replication_factor": 3}, "1 at durability object"),
        (
            {"durability": "quorum", "replication_factor": 2, "min_insync_replicas": 3},
            "at most 2, the replication factor",
        ),
    ):
        with pytest.raises(InvalidError, match=allowed):
            check_replication(read_config(given))
    for given in (
        {"durability": "quorum", "replication_factor": 3, "min_insync_replicas": 3},
        {"min_insync_replicas": 5},  # as MirrorMaker copies it: without effect
        {"durability": "object", "min_insync_replicas": 2},
    ):
        check_replication(read_config(given))


def test_a_partition_gets_its_replicas_and_how_many_of_them_must_have_an_append() -> None:
    quorum = read_config({"durability": "quorum", "replication_factor": 3, "min_insync_replicas": 2}).partition_config()
    assert (quorum.level, quorum.replicas, quorum.min_insync) == ("quorum", 3, 2)
    local = read_config({"min_insync_replicas": 2}).partition_config()
    assert (local.level, local.replicas, local.min_insync) == ("local", 1, 1)


@pytest.mark.parametrize(
    ("before", "changes", "added"),
    [
        ({}, {"replication_factor": 3}, {"durability": "quorum"}),
        ({}, {"durability": "quorum"}, {"replication_factor": 2}),
        ({}, {"durability": "object"}, {}),
        ({}, {"roll_ms": 500}, {}),
        ({"durability": "quorum", "replication_factor": 3}, {"replication_factor": 1}, {"durability": None}),
        ({"durability": "quorum", "replication_factor": 3}, {"durability": "object"}, {"replication_factor": None}),
        ({"durability": "quorum", "replication_factor": 3}, {"durability": None}, {"replication_factor": None}),
        ({"durability": "quorum", "replication_factor": 3}, {"replication_factor": 2}, {}),
        ({"durability": "object"}, {"replication_factor": 3}, {}),  # refused: it would be less than object
        ({}, {"durability": "quorum", "replication_factor": 3}, {}),
    ],
)
def test_a_factor_and_a_durability_bring_each_other_along(
    before: dict[str, object], changes: dict[str, object | None], added: dict[str, object | None]
) -> None:
    assert replication_changes(read_config(before), changes, default_factor=2) == {**changes, **added}


async def test_the_planner_gets_the_factor_by_the_commit_that_sets_it(store: MemoryStore, topics: Topics) -> None:
    async def placed() -> tuple[int, int, bool]:
        topic, workload = [await store.get(key) for key in (topic_key("orders"), workload_key("orders"))]
        assert topic is not None
        assert workload is not None
        found = msgspec.json.decode(workload.value, type=Workload)
        return found.partitions, found.replicas, topic.version == workload.version

    await topics.create("orders", 2, {"durability": "quorum", "replication_factor": 3})
    assert await placed() == (2, 3, True)
    await topics.alter("orders", {"replication_factor": 2})
    assert await placed() == (2, 2, True)
    await topics.add_partitions("orders", 4)
    assert await placed() == (4, 2, True)
    await topics.alter("orders", {"min_insync_replicas": 2})
    assert await placed() == (4, 2, False)  # nothing to place
    with pytest.raises(InvalidError, match="at most 2"):
        await topics.alter("orders", {"min_insync_replicas": 3})
    with pytest.raises(InvalidError, match="replication_factor"):
        await topics.alter("orders", {"durability": "local"})
    await topics.alter("orders", {"durability": None, "replication_factor": None, "min_insync_replicas": 3})
    assert await placed() == (4, 1, True)


async def test_two_who_alter_at_once_lose_nothing(store: MemoryStore, topics: Topics) -> None:
    await topics.create("orders", 1)

    class Overtaken(FaultyStore):
        """Somebody else alters the topic right after it was read."""

        overtaken = False

        async def get(self, key: str) -> Entry | None:
            entry = await super().get(key)
            if not self.overtaken:
                self.overtaken = True
                await topics.alter("orders", {"roll_ms": 200})
            return entry

    slow = Topics(Overtaken(store, random=SeededRandom(5)), clock=FakeClock(), random=SeededRandom(6))
    altered = await slow.alter("orders", {"retention_ms": 7})
    assert altered.overrides == {"roll_ms": 200, "retention_ms": 7}


async def test_a_deleted_topic_leaves_a_mark_for_maintenance_and_its_name_is_free(
    store: MemoryStore, topics: Topics
) -> None:
    old = await topics.create("orders", 1)
    await topics.delete("orders")
    mark = await store.get(deleted_key(old.id))
    assert mark is not None
    assert msgspec.json.decode(mark.value, type=DeletedTopic).topic == "orders"
    assert await store.get(workload_key("orders")) is None
    for looked_up in (topics.get("orders"), topics.by_id(old.id), topics.delete("orders"), topics.alter("orders", {})):
        with pytest.raises(UnknownTopicError):
            await looked_up
    assert (await topics.create("orders", 2)).id != old.id


async def test_topics_are_listed_by_name(topics: Topics) -> None:
    for name in ("b", "a", "c"):
        await topics.create(name, 1)
    assert [topic.name for topic in await topics.list()] == ["a", "b", "c"]


async def test_settings_of_a_newer_release_are_kept_and_not_looked_at(store: MemoryStore, topics: Topics) -> None:
    topic = await topics.create("orders", 1)
    newer = msgspec.structs.replace(topic, overrides={"from_the_future": 1})
    await store.commit(apply=[Put(topic_key("orders"), msgspec.json.encode(newer))])
    altered = await topics.alter("orders", {"roll_ms": 500})
    assert altered.overrides == {"from_the_future": 1, "roll_ms": 500}
    assert altered.config == TopicConfig(roll_ms=500)


def test_the_table_for_people_lists_every_setting_with_its_default() -> None:
    text = (Path(__file__).parents[2] / "docs" / "topics.md").read_text().partition("\n## What")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", text, re.MULTILINE))
    defaults = {field.name: getattr(TopicConfig(), field.name) for field in fields(TopicConfig)}
    shown = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in defaults.items()}
    assert {name: rows.get(name) for name in shown} == shown


async def test_a_topic_that_is_deleted_by_its_id_is_the_one_that_has_it(topics: Topics) -> None:
    first = await topics.create("orders", 1)
    await topics.delete("orders", topic_id=first.id)
    second = await topics.create("orders", 1)
    with pytest.raises(UnknownTopicError):
        await topics.delete("orders", topic_id=first.id)
    assert await topics.get("orders") == second


def test_a_topic_works_out_its_settings_once() -> None:
    topic = Topic(id="ab", name="orders", partitions=1, created_at_ms=0, overrides={"retention_ms": 5})
    assert topic.config is topic.config
    assert msgspec.structs.replace(topic, overrides={}).config.retention_ms == TopicConfig().retention_ms
    assert msgspec.json.decode(msgspec.json.encode(topic), type=Topic) == topic


# ── partitions are added ──


async def test_partitions_are_added_by_one_commit_for_readers_and_planner(store: MemoryStore, topics: Topics) -> None:
    topic = await topics.create("orders", 2, {"retention_ms": "1000", "agent_group": "fast"})
    grown = await topics.add_partitions("orders", 5)
    written = [await store.get(key) for key in (topic_key("orders"), workload_key("orders"))]
    assert len({entry.version for entry in written if entry is not None}) == 1
    assert written[1] is not None
    assert msgspec.json.decode(written[1].value, type=Workload) == Workload(
        topic="orders", partitions=5, group="fast", rotates=False
    )
    assert grown == await topics.by_id(topic.id) == msgspec.structs.replace(topic, partitions=5)


@pytest.mark.parametrize(
    ("count", "text"),
    [(3, "Topic already has 3 partition(s)."), (2, "currently has 3 partition(s); 2 would not be an increase.")],
)
async def test_only_more_partitions_are_added(topics: Topics, count: int, text: str) -> None:
    await topics.create("orders", 3)
    with pytest.raises(PartitionCountError) as refused:
        await topics.add_partitions("orders", count)
    assert text in str(refused.value)
    assert (await topics.get("orders")).partitions == 3


async def test_more_partitions_than_a_topic_may_have_are_not_added(topics: Topics) -> None:
    await topics.create("orders", 3)
    with pytest.raises(PartitionCountError, match=f"between 4 and {PARTITIONS_MAX}"):
        await topics.add_partitions("orders", PARTITIONS_MAX + 1)


async def test_a_topic_with_a_fixed_count_keeps_it(topics: Topics) -> None:
    await topics.create("orders", 3, {"partition_count": "fixed"})
    with pytest.raises(FixedPartitionsError, match="keeps its 3 partitions"):
        await topics.add_partitions("orders", 4)
    await topics.alter("orders", {"partition_count": None})
    assert (await topics.add_partitions("orders", 4)).partitions == 4


async def test_adding_partitions_survives_a_lost_answer(store: MemoryStore) -> None:
    faulty = FaultyStore(store, random=SeededRandom(3))
    topics = Topics(faulty, clock=RealClock(), random=SeededRandom(4))
    await topics.create("orders", 1)
    faulty.lose_answer_to("topic/orders")
    assert (await topics.add_partitions("orders", 4)).partitions == 4
    with pytest.raises(PartitionCountError):  # who never got the answer asks again
        await topics.add_partitions("orders", 4)


async def test_of_two_who_add_partitions_at_once_each_gets_a_true_answer(topics: Topics) -> None:
    await topics.create("orders", 1)
    outcomes = await asyncio.gather(
        topics.add_partitions("orders", 4), topics.add_partitions("orders", 4), return_exceptions=True
    )
    assert [type(each) for each in outcomes] == [Topic, PartitionCountError]
    await asyncio.gather(topics.add_partitions("orders", 6), topics.add_partitions("orders", 8), return_exceptions=True)
    assert (await topics.get("orders")).partitions == 8


async def test_partitions_added_while_the_topic_is_deleted_leave_nothing_behind(
    store: MemoryStore, topics: Topics
) -> None:
    for first, second in (("add", "delete"), ("delete", "add")):
        topic = await topics.create("orders", 1)
        calls = {"add": lambda: topics.add_partitions("orders", 4), "delete": lambda: topics.delete("orders")}
        await asyncio.gather(calls[first](), calls[second](), return_exceptions=True)
        left = [await store.get(key) for key in (topic_key("orders"), topic_id_key(topic.id), workload_key("orders"))]
        assert left == [None] * 3
