"""CreateTopics, DeleteTopics and DeleteRecords: every version, and a sentence for everything that is refused."""

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.support.kafka_admin import admin_of, code, versions
from tests.support.partitions import batch

from holdfast.kafka.error_codes import ErrorCode
from holdfast.log.batches import Record, encode
from holdfast.log.errors import HeapTopicError, PendingRangeError
from holdfast.log.topics import PARTITIONS_MAX
from holdfast.vocabulary.errors import InvalidError

SOON = timedelta(seconds=10)


def topic(name: str, partitions: int = 1, replicas: int = 1, **given: Any) -> dict[str, Any]:
    configs = [{"name": key, "value": value} for key, value in given.pop("configs", {}).items()]
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas, "configs": configs, **given}


async def test_every_version_creates_a_topic_that_is_writable_at_once(tmp_path: Path) -> None:
    async with admin_of(tmp_path) as admin:
        for version in versions("CreateTopics"):
            name = f"orders-{version}"
            wanted = topic(name, 2, configs={"retention.ms": "60000", "cleanup.policy": "delete,compact"})
            answer = await admin.ask("CreateTopics", version, topics=[wanted], timeout=SOON)
            (made,) = answer.topics
            assert (code(made), made.name, made.error_message) == (ErrorCode.NONE, name, None)
            await admin.backend.log.produce(name, 1, batch_with_key())
            stored = await admin.backend.log.topics.get(name)
            assert (stored.partitions, stored.config.retention_ms) == (2, 60_000)
            assert stored.overrides == {"retention_ms": 60_000, "cleanup_policy": "compact,delete"}
            if version >= 5:
                assert (made.num_partitions, made.replication_factor) == (2, 1)
                configs = {each.name: each for each in made.configs}
                assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("60000", 1)
                assert configs["segment.bytes"].config_source == 5
                assert configs["remote.storage.enable"].config_source == 5
            if version >= 7:
                assert made.topic_id == UUID(stored.id)


def batch_with_key() -> bytes:
    return encode([Record(0, 1_000, b"key", b"value")])


async def test_validate_only_creates_nothing_and_refuses_the_same(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"there": 1}) as admin:
        for version in versions("CreateTopics"):
            answer = await admin.ask(
                "CreateTopics",
                version,
                topics=[topic("orders", 3), topic("there"), topic("bad", configs={"retention.ms": "soon"})],
                timeout=SOON,
                validate_only=True,
            )
            assert [code(each) for each in answer.topics] == [
                ErrorCode.NONE,
                ErrorCode.TOPIC_ALREADY_EXISTS,
                ErrorCode.INVALID_CONFIG,
            ]
            if version >= 5:
                assert answer.topics[0].num_partitions == 3
            if version >= 7:
                assert answer.topics[0].topic_id is None
        assert [each.name for each in await admin.backend.log.list_topics()] == ["there"]


async def test_numbers_default_to_the_brokers(tmp_path: Path) -> None:
    async with admin_of(tmp_path, auto_create_partitions=4) as admin:
        answer = await admin.ask("CreateTopics", topics=[topic("orders", -1, -1)], timeout=SOON)
        assert (answer.topics[0].num_partitions, answer.topics[0].replication_factor) == (4, 1)


REFUSED: dict[str, tuple[dict[str, Any], ErrorCode, str]] = {
    "a name that is taken": (topic("there"), ErrorCode.TOPIC_ALREADY_EXISTS, "already exists"),
    "a name no topic can have": (topic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "letters, digits"),
    "no partitions": (topic("x", 0), ErrorCode.INVALID_PARTITIONS, "between 1 and"),
    "fewer than none": (topic("x", -2), ErrorCode.INVALID_PARTITIONS, "between 1 and"),
    "too many partitions": (topic("x", PARTITIONS_MAX + 1), ErrorCode.INVALID_PARTITIONS, "between 1 and"),
    "more replicas than brokers": (
        topic("x", 1, 3),
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "The target replication factor of 3 cannot be reached because only 1 broker(s) are registered.",
    ),
    "no replica": (topic("x", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "larger than 0"),
    "more replicas than a partition has": (topic("x", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR, "between 1 and 3"),
    "a quorum of one": (
        topic("x", 1, -1, configs={"holdfast.durability": "quorum"}),
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "only 1 broker(s)",
    ),
    "several replicas that would not be used": (
        topic("x", 1, 2, configs={"holdfast.durability": "object"}),
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "1 or -1 with holdfast.durability=object",
    ),
    "a setting nobody has heard of": (topic("x", configs={"colour": "red"}), ErrorCode.INVALID_CONFIG, "colour"),
    "a value that does not fit": (
        topic("x", configs={"max.message.bytes": "1"}),
        ErrorCode.INVALID_CONFIG,
        "max.message",
    ),
    "a setting without a value": (topic("x", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG, "retention.ms"),
    "what Kafka refuses of a setting without effect": (
        topic("x", configs={"remote.storage.enable": "perhaps"}),
        ErrorCode.INVALID_CONFIG,
        "remote.storage.enable",
    ),
    "settings that exclude each other": (
        topic("x", configs={"cleanup.policy": "compact", "unclean.leader.election.enable": "true"}),
        ErrorCode.INVALID_CONFIG,
        "unclean.leader.election.enable",
    ),
    "a broker that is not there": (
        topic("x", -1, -1, assignments=[{"partition_index": 0, "broker_ids": [999]}]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "includes broker 999, but no such broker is registered",
    ),
    "a gap between partitions": (
        topic("x", -1, -1, assignments=[{"partition_index": 1, "broker_ids": [1]}]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "numbered from 0",
    ),
    "a broker twice": (
        topic("x", -1, -1, assignments=[{"partition_index": 0, "broker_ids": [1, 1]}]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "includes the broker 1 more than once",
    ),
    "no broker": (
        topic("x", -1, -1, assignments=[{"partition_index": 0, "broker_ids": []}]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "an empty replica list",
    ),
    "assignments and numbers": (
        topic("x", 1, 1, assignments=[{"partition_index": 0, "broker_ids": [1]}]),
        ErrorCode.INVALID_REQUEST,
        "exclude a number",
    ),
}


async def test_invalid_topics_are_refused_with_a_message_and_the_others_created(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"there": 1}) as admin:
        for at, (what, (wanted, refusal, text)) in enumerate(REFUSED.items()):
            answer = await admin.ask("CreateTopics", topics=[wanted, topic(f"fine-{at}")], timeout=SOON)
            refused, made = answer.topics
            assert (what, code(refused), refused.name) == (what, refusal, wanted["name"])
            assert text in refused.error_message, what
            assert code(made) is ErrorCode.NONE


async def test_a_replication_factor_is_capped_where_that_is_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with admin_of(tmp_path, replication_factor="cap") as admin:
        wanted = [topic("three", 1, 3), topic("none", 1, 0), topic("negative", 1, -2)]
        three, none, negative = (await admin.ask("CreateTopics", topics=wanted, timeout=SOON)).topics
        assert (code(three), three.replication_factor) == (ErrorCode.NONE, 1)
        assert code(none) is code(negative) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "topic three gets 1 replica instead of 3 (kafka.replication_factor=cap)" in caplog.text


async def test_a_duplicate_topic_is_not_created(tmp_path: Path) -> None:
    async with admin_of(tmp_path) as admin:
        answer = await admin.ask("CreateTopics", topics=[topic("x"), topic("x", 2), topic("y")], timeout=SOON)
        assert {each.name: code(each) for each in answer.topics} == {
            "x": ErrorCode.INVALID_REQUEST,
            "y": ErrorCode.NONE,
        }
        assert len(answer.topics) == 2


async def test_assignments_that_change_nothing_are_accepted(tmp_path: Path) -> None:
    async with admin_of(tmp_path) as admin:
        assignments = [{"partition_index": number, "broker_ids": [admin.node]} for number in range(3)]
        answer = await admin.ask("CreateTopics", topics=[topic("x", -1, -1, assignments=assignments)], timeout=SOON)
        assert (code(answer.topics[0]), answer.topics[0].num_partitions) == (ErrorCode.NONE, 3)


async def test_a_topic_that_is_not_placed_in_time_exists_all_the_same(tmp_path: Path) -> None:
    async with admin_of(tmp_path) as admin:
        answer = await admin.ask("CreateTopics", topics=[topic("x")], timeout=timedelta(0))
        assert code(answer.topics[0]) is ErrorCode.NONE
        assert (await admin.backend.log.topics.get("x")).partitions == 1


async def test_every_version_deletes_topics_at_once(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={f"t{version}": 1 for version in versions("DeleteTopics")}) as admin:
        for version in versions("DeleteTopics"):
            name = f"t{version}"
            topic_id = UUID((await admin.backend.log.topics.get(name)).id)
            wanted = [name, "nowhere", "a/b"]
            answer = await admin.ask(
                "DeleteTopics",
                version,
                topic_names=wanted,
                topics=[{"name": each, "topic_id": None} for each in wanted],
                timeout=SOON,
            )
            assert [(each.name, code(each)) for each in answer.responses] == [
                (name, ErrorCode.NONE),
                ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ]
            assert admin.backend.cluster.topic(name) is None
            if version >= 5:
                assert "nowhere" in answer.responses[1].error_message
            if version >= 6:
                assert answer.responses[0].topic_id == topic_id


async def test_a_topic_created_again_is_empty_and_writable_at_once(
    tmp_path: Path,
) -> None:
    async with admin_of(tmp_path) as admin:
        ids = set()
        for _ in range(5):
            made = (await admin.ask("CreateTopics", topics=[topic("again", 2)], timeout=SOON)).topics[0]
            assert code(made) is ErrorCode.NONE
            ids.add(made.topic_id)
            for number in range(2):
                assert (await admin.backend.log.produce("again", number, batch("x"))).base_offset == 0
            gone = await admin.ask("DeleteTopics", topics=[{"name": "again", "topic_id": None}], timeout=SOON)
            assert code(gone.responses[0]) is ErrorCode.NONE
        assert len(ids) == 5


async def test_topics_are_deleted_by_id_and_only_the_one_that_has_it(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"a": 1, "b": 1}) as admin:
        first = UUID((await admin.backend.log.topics.get("a")).id)
        wanted = [{"name": None, "topic_id": each} for each in (first, UUID(int=7))]
        answer = await admin.ask("DeleteTopics", topics=wanted, timeout=SOON)
        assert [(each.name, each.topic_id, code(each)) for each in answer.responses] == [
            ("a", first, ErrorCode.NONE),
            (None, UUID(int=7), ErrorCode.UNKNOWN_TOPIC_ID),
        ]
        await admin.backend.log.create_topic("a", 1)
        again = await admin.ask("DeleteTopics", topics=wanted[:1], timeout=SOON)
        assert code(again.responses[0]) is ErrorCode.UNKNOWN_TOPIC_ID
        assert [each.name for each in await admin.backend.log.list_topics()] == ["a", "b"]


async def test_a_topic_to_delete_has_a_name_or_an_id_and_no_duplicate(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"a": 1}) as admin:
        topic_id = UUID((await admin.backend.log.topics.get("a")).id)
        for wanted in (
            [{"name": "a", "topic_id": topic_id}],
            [{"name": None, "topic_id": None}],
            [{"name": "a", "topic_id": None}, {"name": "a", "topic_id": None}],
        ):
            answer = await admin.ask("DeleteTopics", topics=wanted, timeout=SOON)
            assert [code(each) for each in answer.responses] == [ErrorCode.INVALID_REQUEST]
        assert len(await admin.backend.log.list_topics()) == 1


def records(name: str, offsets: dict[int, int]) -> dict[str, Any]:
    return {
        "name": name,
        "partitions": [{"partition_index": number, "offset": offset} for number, offset in offsets.items()],
    }


async def test_every_version_deletes_records_below_an_offset(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"a": 4}) as admin:
        for version in versions("DeleteRecords"):
            for _ in range(3):
                await admin.backend.log.produce("a", version, batch("x"))
            answer = await admin.ask("DeleteRecords", version, topics=[records("a", {version: 2})], timeout=SOON)
            (partition,) = answer.topics[0].partitions
            assert (code(partition), partition.partition_index, partition.low_watermark) == (ErrorCode.NONE, version, 2)
        answer = await admin.ask("DeleteRecords", topics=[records("a", {0: -1})], timeout=SOON)
        assert answer.topics[0].partitions[0].low_watermark == 3


async def test_records_that_cannot_be_deleted_get_their_code(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"a": 1}) as admin:
        await admin.backend.log.create_topic("compacted", 1, {"cleanup_policy": "compact"})
        answer = await admin.ask(
            "DeleteRecords",
            topics=[
                records("a", {0: 1, 5: 0}),
                records("nowhere", {0: 0}),
                records("a", {0: -2}),
            ],
            timeout=SOON,
        )
        codes = [code(each) for topic in answer.topics for each in topic.partitions]
        assert codes == [
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.OFFSET_OUT_OF_RANGE,
        ]
        assert [each.low_watermark for topic in answer.topics for each in topic.partitions] == [-1] * 4
        answer = await admin.ask("DeleteRecords", topics=[records("compacted", {0: 0})], timeout=SOON)
        assert code(answer.topics[0].partitions[0]) is ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize(
    "refused", [PendingRangeError("a:0", 3, 2), HeapTopicError("a", "DeleteRecords")], ids=["pipeline", "heap"]
)
async def test_records_that_others_need_are_kept_by_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: InvalidError
) -> None:
    async def refuse(*_: Any) -> int:
        raise refused

    async with admin_of(tmp_path, topics={"a": 1}) as admin:
        monkeypatch.setattr(admin.backend.log, "delete_records", refuse)
        answer = await admin.ask("DeleteRecords", topics=[records("a", {0: 3})], timeout=SOON)
        assert code(answer.topics[0].partitions[0]) is ErrorCode.POLICY_VIOLATION


async def test_records_of_a_partition_led_elsewhere_are_not_deleted_here(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"a": 1}) as admin:
        agent = admin.gateway.node.agent
        assert agent.log._handler is not None
        agent.log._handler.leading.clear()
        answer = await admin.ask("DeleteRecords", topics=[records("a", {0: 0})], timeout=SOON)
        assert code(answer.topics[0].partitions[0]) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("name", ["CreateTopics", "DeleteTopics", "CreatePartitions", "DeleteRecords"])
async def test_an_empty_request_gets_an_empty_response(tmp_path: Path, name: str) -> None:
    async with admin_of(tmp_path) as admin:
        for version in versions(name):
            await admin.ask(name, version, topics=(), timeout=SOON)
