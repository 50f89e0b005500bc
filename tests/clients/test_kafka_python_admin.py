"""kafka-python: topics, settings, records and groups through its admin client, with the error each mistake deserves."""

from typing import Any
from uuid import UUID

import pytest
from tests.support.broker import Broker
from tests.support.kafka_python_client import TIMEOUT_S, administering, consuming, joined, producing, read, send, take
from tests.support.kafka_python_import import (
    ConfigResource,
    ConfigResourceType,
    MemberToRemove,
    OffsetAndMetadata,
    OffsetSpec,
    OffsetTimestamp,
    TopicPartition,
    errors,
)
from tests.support.record_shapes import KEEP
from tests.support.waiting import until

OLDER = [None, (0, 11), (1, 0), (2, 0), (2, 4)]


def topic_resource(topic: str, settings: Any = None) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, topic, settings)


@pytest.mark.parametrize("version", OLDER, ids=str)
def test_topics_are_created_listed_described_and_deleted(broker: Broker, version: tuple[int, ...] | None) -> None:
    topic = broker.unique("made")
    with administering(broker, api_version=version) as admin:
        told = {topic: {"num_partitions": 3, "replication_factor": 1, "configs": {"retention.ms": "1000000"}}}
        created = admin.create_topics(told, wait_for_metadata=True)
        assert [(each["name"], each["error_code"]) for each in created["topics"]] == [(topic, 0)]
        assert topic in admin.list_topics()
        (described,) = admin.describe_topics([topic])
        assert (described["name"], described["error_code"], described["is_internal"]) == (topic, 0, False)
        assert sorted(each["partition_index"] for each in described["partitions"]) == [0, 1, 2]
        assert {each["leader_id"] for each in described["partitions"]} == {
            each.get("broker_id", each.get("node_id")) for each in admin.describe_cluster()["brokers"]
        }
        admin.delete_topics([topic])
        until(lambda: topic not in admin.list_topics(), what=f"{topic} is gone")


def test_defaults_fill_missing_values(broker: Broker) -> None:
    topic = broker.unique("default")
    with administering(broker) as admin:
        admin.create_topics([topic], wait_for_metadata=True)
        (described,) = admin.describe_topics([topic])
        assert len(described["partitions"]) == 1


def test_a_topic_has_an_id_that_a_new_one_of_its_name_does_not_share(broker: Broker) -> None:
    topic = broker.create_topic("identity")
    with administering(broker) as admin:
        (before,) = admin.describe_topics([topic])
        (by_id,) = admin.describe_topics([UUID(before["topic_id"])])
        assert by_id["name"] == topic
        admin.delete_topics([topic])
        until(lambda: topic not in admin.list_topics(), what=f"{topic} is gone")
        admin.create_topics([topic], wait_for_metadata=True)
        (after,) = admin.describe_topics([topic])
        assert after["topic_id"] != before["topic_id"]


@pytest.mark.parametrize(
    ("name", "partitions", "replicas", "error"),
    [
        ("none", 0, 1, errors.InvalidPartitionsError),
        ("copies", 1, 99, errors.InvalidReplicationFactorError),
        ("a name/with#what is forbidden", 1, 1, errors.InvalidTopicError),
    ],
    ids=["no-partitions", "too-many-replicas", "characters"],
)
def test_a_wrong_topic_is_refused(
    broker: Broker, name: str, partitions: int, replicas: int, error: type[Exception]
) -> None:
    with administering(broker) as admin, pytest.raises(error):
        admin.create_topics({name: {"num_partitions": partitions, "replication_factor": replicas}})


def test_a_topic_is_created_once_and_an_unknown_one_is_not_deleted(broker: Broker) -> None:
    topic = broker.create_topic("once")
    with administering(broker) as admin:
        with pytest.raises(errors.TopicAlreadyExistsError):
            admin.create_topics([topic])
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            admin.delete_topics([broker.unique("unknown")])
        (unknown,) = admin.describe_topics([broker.unique("unknown")])
        assert unknown["error_code"] == errors.UnknownTopicOrPartitionError.errno


def test_a_wrong_setting_of_a_new_topic_is_refused(broker: Broker) -> None:
    with administering(broker) as admin:
        for wrong in ({"retention.ms": "soon"}, {"no.such.setting": "1"}, {"cleanup.policy": "burn"}):
            told = {broker.unique("wrong"): {"num_partitions": 1, "replication_factor": 1, "configs": wrong}}
            with pytest.raises(errors.InvalidConfigurationError):
                admin.create_topics(told)


def test_partitions_are_added_and_never_removed(broker: Broker) -> None:
    topic = broker.create_topic("grown", 2)
    with administering(broker) as admin:
        for refused in (1, 2):
            with pytest.raises(errors.InvalidPartitionsError):
                admin.create_partitions({topic: refused})
        admin.create_partitions({topic: 4})
        (described,) = admin.describe_topics([topic])
        assert len(described["partitions"]) == 4


@pytest.mark.parametrize("incremental", [True, False], ids=["incremental", "whole"])
def test_settings_of_a_topic_are_described_altered_and_reset(broker: Broker, incremental: bool) -> None:
    topic = broker.create_topic("settings", config={"retention.ms": "86400000"})
    with administering(broker) as admin:

        def found(which: str = "modified") -> dict[str, str]:
            entries = admin.describe_configs([topic_resource(topic)], config_filter=which)["topic"][topic]
            return {name: entry["value"] for name, entry in entries.items()}

        assert found()["retention.ms"] == "86400000"
        assert found("all").keys() >= {"cleanup.policy", "max.message.bytes", "retention.bytes", "segment.bytes"}
        changed = topic_resource(topic, {"max.message.bytes": "50000"})
        assert admin.alter_configs([changed], incremental=incremental) == {"topic": {topic: "OK"}}
        until(lambda: found().get("max.message.bytes") == "50000", what="the new setting is seen")
        assert found()["retention.ms"] == "86400000"
        admin.reset_configs([topic_resource(topic, ["max.message.bytes"])], incremental=incremental)
        until(lambda: "max.message.bytes" not in found(), what="the setting is what it was")
        assert found()["retention.ms"] == "86400000"


def test_a_wrong_setting_is_refused(broker: Broker) -> None:
    topic = broker.create_topic("wrong")
    with administering(broker) as admin:
        answer = admin.alter_configs([topic_resource(topic, {"retention.ms": "soon"})])["topic"][topic]
        assert "InvalidConfig" in answer
        answer = admin.alter_configs([topic_resource(topic, {"no.such.setting": "1"})], raise_on_unknown=False)
        assert "InvalidConfig" in answer["topic"][topic]


def test_a_setting_takes_effect(broker: Broker) -> None:
    topic = broker.create_topic("effect")
    with administering(broker) as admin, producing(broker, enable_idempotence=False) as producer:
        assert producer.send(topic, b"x" * 5_000).get(TIMEOUT_S).offset == 0
        admin.alter_configs([topic_resource(topic, {"max.message.bytes": "2000"})])

        def refused() -> bool:
            try:
                producer.send(topic, b"x" * 5_000).get(TIMEOUT_S)
            except errors.MessageSizeTooLargeError:
                return True
            return False

        until(refused, what="the new limit holds")


def test_the_cluster_is_described(broker: Broker) -> None:
    with administering(broker) as admin:
        cluster = admin.describe_cluster()
        host, _, port = broker.bootstrap.rpartition(":")
        assert [(each["host"], each["port"]) for each in cluster["brokers"]] == [(host, int(port))]
        assert cluster["controller_id"] == cluster["brokers"][0]["broker_id"]
        assert cluster["cluster_id"]


def test_log_dirs_are_described(broker: Broker) -> None:
    topic = broker.create_topic("dirs", 2)
    with producing(broker) as producer, administering(broker) as admin:
        send(producer, topic, [b"x" * 1_000] * 3)
        described = admin.describe_log_dirs({topic: [0, 1]})
        found = [
            (entry["name"], partition["partition_index"], partition["partition_size"])
            for folder in described
            for result in folder.get("log_dirs", [folder])
            for entry in result.get("topics", [])
            for partition in entry["partitions"]
        ]
        sizes = {number: size for name, number, size in found if name == topic}
        assert sizes.keys() == {0, 1}
        assert sizes[0] >= 3_000
        assert sizes[1] == 0


def test_topics_are_described_page_by_page(broker: Broker) -> None:
    topic = broker.create_topic("pages", 5)
    with administering(broker) as admin:
        first = admin.describe_topic_partitions([topic], response_partition_limit=3)
        cursor = first["next_cursor"]
        assert cursor == {"topic_name": topic, "partition_index": 3}
        second = admin.describe_topic_partitions([topic], cursor=cursor)
        pages = [first["topics"][0]["partitions"], second["topics"][0]["partitions"]]
        assert [[each["partition_index"] for each in page] for page in pages] == [[0, 1, 2], [3, 4]]
        assert second["next_cursor"] is None


def test_offsets_are_listed_by_every_measure(broker: Broker) -> None:
    topic = broker.create_topic("measures", config=KEEP)
    place = TopicPartition(topic, 0)
    with producing(broker) as producer, administering(broker) as admin:
        for at_ms in (1_000, 9_000, 5_000):
            producer.send(topic, b"x", timestamp_ms=at_ms).get(TIMEOUT_S)
        wanted = [(OffsetSpec.EARLIEST, 0), (OffsetSpec.LATEST, 3), (OffsetSpec.MAX_TIMESTAMP, 1), (4_000, 1)]
        for measure, offset in wanted:
            assert admin.list_partition_offsets({place: measure})[place].offset == offset
        found = admin.list_partition_offsets({place: OffsetSpec.MAX_TIMESTAMP})[place]
        assert found.timestamp == 9_000
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            admin.list_partition_offsets({TopicPartition(topic, 9): OffsetSpec.LATEST})


@pytest.mark.parametrize("version", OLDER, ids=str)
def test_deleted_records_are_gone_and_the_rest_stays(broker: Broker, version: tuple[int, ...] | None) -> None:
    topic = broker.create_topic("trimmed", 2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with producing(broker) as producer, administering(broker, api_version=version) as admin:
        for partition in (0, 1):
            send(producer, topic, [b"%d" % number for number in range(10)], partition)
        answer = admin.delete_records({first: 4, second: -1})
        assert {place: each["low_watermark"] for place, each in answer.items()} == {first: 4, second: 10}
        with pytest.raises(errors.OffsetOutOfRangeError):
            admin.delete_records({first: 11})
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            admin.delete_records({TopicPartition(topic, 9): 1})
    records = read(broker, topic, 6, partitions=2)
    assert [(record.partition, record.offset) for record in records] == [(0, offset) for offset in range(4, 10)]


@pytest.mark.parametrize("version", OLDER, ids=str)
def test_groups_are_listed_described_and_deleted(broker: Broker, version: tuple[int, ...] | None) -> None:
    topic, group = broker.create_topic("grouped", 2), broker.unique("group")
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with producing(broker) as producer:
        send(producer, topic, [b"a", b"b"])
    with administering(broker, api_version=version) as admin:
        told = {"group_id": group, "client_id": "a-client", "api_version": version}
        with consuming(broker, topic, **told) as consumer:
            take(consumer, 2)
            consumer.commit({first: OffsetAndMetadata(2, "how it was", -1)})
            described = admin.describe_groups([group])[group]
            assert (described["error"], described["group_state"]) == (None, "Stable")
            (member,) = described["members"]
            assert member["client_id"] == "a-client"
            assert group in [each["group_id"] for each in admin.list_groups()]
            if version is None or version >= (1, 1):
                assert admin.delete_groups([group]) == {group: "NonEmptyGroupError"}
        assert admin.describe_groups([group])[group]["group_state"] == "Empty"
        (offsets,) = admin.list_group_offsets({group: [first, second]}).values()
        assert (offsets[first].offset, offsets[first].metadata, offsets[second].offset) == (2, "how it was", -1)
        if version is None or version >= (1, 1):
            assert admin.delete_groups([group]) == {group: "OK"}
            assert group not in [each["group_id"] for each in admin.list_groups()]
            assert admin.delete_groups([broker.unique("never")]) != {group: "OK"}


def test_offsets_of_a_group_are_altered_reset_and_deleted(broker: Broker) -> None:
    topic, group = broker.create_topic("moved", config=KEEP), broker.unique("group")
    place = TopicPartition(topic, 0)
    with producing(broker) as producer:
        for at_ms in range(1_000, 11_000, 1_000):
            producer.send(topic, b"x", timestamp_ms=at_ms).get(TIMEOUT_S)
    with administering(broker) as admin:
        assert admin.alter_group_offsets(group, {place: OffsetAndMetadata(4, "four", -1)}) == {place: errors.NoError}
        assert admin.list_group_offsets(group)[group][place].offset == 4
        for target, offset in (
            (OffsetSpec.EARLIEST, 0),
            (OffsetSpec.LATEST, 10),
            (OffsetTimestamp(6_500), 6),
            (99, 10),
        ):
            answer = admin.reset_group_offsets(group, {place: target})
            assert answer == {place: {"error": errors.NoError, "offset": offset}}
            assert admin.list_group_offsets(group)[group][place].offset == offset
        assert admin.delete_group_offsets(group, [place]) == {place: errors.NoError}
        assert place not in admin.list_group_offsets(group)[group]


def test_offsets_of_a_group_at_work_are_its_own(broker: Broker) -> None:
    topic, group = broker.create_topic("owned"), broker.unique("group")
    place = TopicPartition(topic, 0)
    with consuming(broker, topic, group_id=group) as consumer, administering(broker) as admin:
        joined(consumer)
        consumer.commit({place: OffsetAndMetadata(0, "", -1)})
        altered = admin.alter_group_offsets(group, {place: OffsetAndMetadata(4, "", -1)})
        assert altered == {place: errors.UnknownMemberIdError}
        assert admin.delete_group_offsets(group, [place]) == {place: errors.GroupSubscribedToTopicError}


def test_a_member_is_removed_by_its_instance(broker: Broker) -> None:
    topic, group = broker.create_topic("removed", 2), broker.unique("group")
    with administering(broker) as admin:
        with consuming(broker, topic, group_id=group, group_instance_id="ann") as consumer:
            joined(consumer)
        (member,) = admin.describe_groups([group])[group]["members"]  # a static member stays when it is closed
        assert member["group_instance_id"] == "ann"
        strange = admin.remove_group_members(group, [MemberToRemove(group_instance_id="nobody")])
        assert list(strange.values()) == [errors.UnknownMemberIdError]
        removed = admin.remove_group_members(group, [MemberToRemove(group_instance_id="ann")])
        assert list(removed.values()) == [errors.NoError]
        assert admin.describe_groups([group])[group]["members"] == []


def test_groups_are_listed_by_state(broker: Broker) -> None:
    topic, group = broker.create_topic("states"), broker.unique("group")
    with administering(broker) as admin:
        with consuming(broker, topic, group_id=group) as consumer:
            joined(consumer)
            consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(0, "", -1)})
            assert group in [each["group_id"] for each in admin.list_groups(states_filter=["Stable"])]
            assert group not in [each["group_id"] for each in admin.list_groups(states_filter=["Empty"])]
        assert group in [each["group_id"] for each in admin.list_groups(states_filter=["Empty"])]


def test_a_group_that_never_was_is_dead(broker: Broker) -> None:
    group = broker.unique("never")
    with administering(broker) as admin:
        described = admin.describe_groups([group])[group]
        assert described["group_state"] == "Dead"
        assert admin.list_group_offsets({group: None}) == {group: {}}


def test_producers_of_a_partition_are_described(broker: Broker) -> None:
    topic = broker.create_topic("producers")
    place = TopicPartition(topic, 0)
    with administering(broker) as admin, producing(broker, enable_idempotence=True) as producer:
        send(producer, topic, [b"x"] * 3)
        (state,) = admin.describe_producers([place])[place].active_producers
        assert state.last_sequence == 2
        assert state.producer_epoch == 0
