"""Administration that is not here yet is answered in every version, as Apache Kafka answers without the feature."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka_admin import admin_of, code, versions

from holdfast.kafka.enums import ConfigResourceType
from holdfast.kafka.error_codes import ErrorCode

SOON = timedelta(seconds=10)
ANY_ACL: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
ACL: dict[str, Any] = {
    "resource_type": 2,
    "resource_name": "orders",
    "resource_pattern_type": 3,
    "principal": "User:ann",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


async def test_acls_are_disabled_as_in_a_kafka_without_an_authorizer(tmp_path: Path) -> None:
    async with admin_of(tmp_path) as admin:
        for version in versions("DescribeAcls"):
            answer = await admin.ask("DescribeAcls", version, **ANY_ACL)
            assert (code(answer), answer.resources) == (ErrorCode.SECURITY_DISABLED, ())
            assert "No Authorizer is configured" in answer.error_message
        for version in versions("CreateAcls"):
            answer = await admin.ask("CreateAcls", version, creations=[ACL, ACL])
            assert [code(each) for each in answer.results] == [ErrorCode.SECURITY_DISABLED] * 2
        for version in versions("DeleteAcls"):
            answer = await admin.ask("DeleteAcls", version, filters=[ANY_ACL])
            assert [(code(each), each.matching_acls) for each in answer.filter_results] == [
                (ErrorCode.SECURITY_DISABLED, ())
            ]


async def test_there_are_no_scram_credentials_and_none_can_be_set(tmp_path: Path) -> None:
    async with admin_of(tmp_path) as admin:
        for everybody in (None, ()):
            answer = await admin.ask("DescribeUserScramCredentials", users=everybody)
            assert (code(answer), answer.results) == (ErrorCode.NONE, ())
        answer = await admin.ask("DescribeUserScramCredentials", users=[{"name": "ann"}])
        assert [(each.user, code(each)) for each in answer.results] == [("ann", ErrorCode.RESOURCE_NOT_FOUND)]
        upsertion = {"name": "bob", "mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p"}
        answer = await admin.ask(
            "AlterUserScramCredentials", deletions=[{"name": "ann", "mechanism": 1}], upsertions=[upsertion]
        )
        assert {each.user: code(each) for each in answer.results} == {
            "ann": ErrorCode.RESOURCE_NOT_FOUND,
            "bob": ErrorCode.UNSUPPORTED_VERSION,
        }


async def test_leaders_need_no_election(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 2}) as admin:
        wanted = [{"topic": "orders", "partitions": [0, 1, 2]}, {"topic": "nowhere", "partitions": [0]}]
        for version in versions("ElectLeaders"):
            answer = await admin.ask("ElectLeaders", version, election_type=0, topic_partitions=wanted, timeout=SOON)
            codes = {
                (topic.topic, each.partition_id): code(each)
                for topic in answer.replica_election_results
                for each in topic.partition_result
            }
            assert codes == {
                ("orders", 0): ErrorCode.ELECTION_NOT_NEEDED,
                ("orders", 1): ErrorCode.ELECTION_NOT_NEEDED,
                ("orders", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
            answer = await admin.ask("ElectLeaders", version, topic_partitions=None, timeout=SOON)
            assert answer.replica_election_results == (), "for all partitions, only elections are listed"


async def test_there_is_no_metadata_quorum(tmp_path: Path) -> None:
    wanted = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    async with admin_of(tmp_path) as admin:
        for version in versions("DescribeQuorum"):
            answer = await admin.ask("DescribeQuorum", version, topics=wanted)
            assert (code(answer), answer.topics) == (ErrorCode.UNSUPPORTED_VERSION, ())
        assert "in the store" in answer.error_message


async def test_there_are_no_transactions(tmp_path: Path) -> None:
    async with admin_of(tmp_path) as admin:
        for version in versions("ListTransactions"):
            answer = await admin.ask("ListTransactions", version, state_filters=["Ongoing", "Lost"])
            assert (code(answer), answer.transaction_states) == (ErrorCode.NONE, ())
            assert answer.unknown_state_filters == ("Lost",)
        answer = await admin.ask("DescribeTransactions", transactional_ids=["a", "b"])
        assert [(each.transactional_id, code(each)) for each in answer.transaction_states] == [
            (name, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND) for name in ("a", "b")
        ]


async def test_groups_of_the_newer_protocol_are_refused_in_words(tmp_path: Path) -> None:
    async with admin_of(tmp_path) as admin:
        for version in versions("ConsumerGroupHeartbeat"):
            answer = await admin.ask(
                "ConsumerGroupHeartbeat", version, group_id="g", member_id="m", member_epoch=0, topic_partitions=None
            )
            assert code(answer) is ErrorCode.UNSUPPORTED_VERSION
            assert "group.protocol=classic" in answer.error_message


async def test_config_resources_are_listed(tmp_path: Path) -> None:
    async with admin_of(tmp_path, topics={"orders": 1, "users": 1}) as admin:
        answer = await admin.ask("ListConfigResources", 0)  # ListClientMetricsResources, until it got this name
        assert (code(answer), answer.config_resources) == (ErrorCode.NONE, ())
        answer = await admin.ask("ListConfigResources", 1)
        found = {(each.resource_type, each.resource_name) for each in answer.config_resources}
        topics = {(ConfigResourceType.TOPIC, name) for name in ("orders", "users")}
        node = str(admin.node)
        assert found == topics | {(ConfigResourceType.BROKER, node), (ConfigResourceType.BROKER_LOGGER, node)}
        answer = await admin.ask("ListConfigResources", 1, resource_types=[ConfigResourceType.TOPIC])
        assert {(each.resource_type, each.resource_name) for each in answer.config_resources} == topics
        answer = await admin.ask("ListConfigResources", 1, resource_types=[99])
        assert code(answer) is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("kind", [ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS])
async def test_groups_and_client_metrics_have_no_settings(tmp_path: Path, kind: ConfigResourceType) -> None:
    async with admin_of(tmp_path) as admin:
        resource = {"resource_type": kind, "resource_name": "billing"}
        answer = await admin.ask("DescribeConfigs", resources=[{**resource, "configuration_keys": None}])
        assert (code(answer.results[0]), answer.results[0].configs) == (ErrorCode.NONE, ())
        configs = [{"name": "consumer.session.timeout.ms", "value": "9000", "config_operation": 0}]
        answer = await admin.ask("IncrementalAlterConfigs", resources=[{**resource, "configs": configs}])
        assert code(answer.responses[0]) is ErrorCode.INVALID_CONFIG
        assert "no settings" in answer.responses[0].error_message
