"""ACLs and SCRAM credentials over Kafka's APIs, in every version: what is stored, what is found, what is refused and why."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka_admin import code, versions
from tests.support.kafka_security import PASSWORD, ROOT, SecureClient, allow, secure_gateway

from holdfast.gateways.kafka.connection_access import ALL_OPERATIONS
from holdfast.kafka.enums import AclOperation, AclPatternType, AclPermissionType, AclResourceType, operation_bits
from holdfast.kafka.error_codes import ErrorCode
from holdfast.security.acls import Operation, ResourceType
from holdfast.security.scram import ScramMechanism, salted_password

ANY: dict[str, Any] = {
    "resource_type_filter": AclResourceType.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": AclPatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": AclOperation.ANY,
    "permission_type": AclPermissionType.ANY,
}
ACL: dict[str, Any] = {
    "resource_type": AclResourceType.TOPIC,
    "resource_name": "orders",
    "resource_pattern_type": AclPatternType.LITERAL,
    "principal": "User:ann",
    "host": "*",
    "operation": AclOperation.READ,
    "permission_type": AclPermissionType.ALLOW,
}
PREFIXED = {**ACL, "resource_name": "ord", "resource_pattern_type": AclPatternType.PREFIXED}


def upsertion(name: str) -> dict[str, Any]:
    salted = salted_password(ScramMechanism.SHA_512, PASSWORD, b"salt", 4_096)
    return {"name": name, "mechanism": 2, "iterations": 4_096, "salt": b"salt", "salted_password": salted}


async def names(client: SecureClient, version: int, **wanted: Any) -> list[tuple[str, int]]:
    answer = await client.ask("DescribeAcls", version, **{**ANY, **wanted})
    assert code(answer) is ErrorCode.NONE
    return [(each.resource_name, len(each.acls)) for each in answer.resources]


@pytest.mark.parametrize("version", versions("CreateAcls"))
async def test_acls_are_created_found_and_deleted(tmp_path: Path, version: int) -> None:
    async with secure_gateway(tmp_path) as secure:
        root = await secure.logged_in(ROOT.name)
        denial = {**ACL, "permission_type": AclPermissionType.DENY, "principal": "User:*"}
        answer = await root.ask("CreateAcls", version, creations=[ACL, PREFIXED, denial])
        assert [code(each) for each in answer.results] == [ErrorCode.NONE] * 3
        assert await names(root, version) == [("ord", 1), ("orders", 2)]
        matching = {"resource_type_filter": AclResourceType.TOPIC, "resource_name_filter": "orders"}
        assert await names(root, version, **matching) == [("orders", 2)]
        assert await names(root, version, **matching, pattern_type_filter=AclPatternType.MATCH) == [
            ("ord", 1),
            ("orders", 2),
        ]
        assert await names(root, version, pattern_type_filter=AclPatternType.PREFIXED) == [("ord", 1)]
        assert await names(root, version, principal_filter="User:*") == [("orders", 1)]
        assert await names(root, version, operation=AclOperation.WRITE) == []
        assert await names(root, version, resource_type_filter=7) == [], "of users"
        answer = await root.ask("DeleteAcls", version, filters=[{**ANY, "principal_filter": "User:ann"}])
        (found,) = answer.filter_results
        assert [(each.resource_name, each.principal) for each in found.matching_acls] == [
            ("ord", "User:ann"),
            ("orders", "User:ann"),
        ]
        assert await names(root, version) == [("orders", 1)]


@pytest.mark.parametrize(
    "changes",
    [
        {"resource_type": AclResourceType.ANY},
        {"resource_type": 7},
        {"resource_pattern_type": AclPatternType.MATCH},
        {"operation": AclOperation.ANY},
        {"operation": 99},
        {"operation": AclOperation.IDEMPOTENT_WRITE},
        {"permission_type": AclPermissionType.ANY},
        {"principal": "ann"},
        {"resource_name": ""},
        {"resource_type": AclResourceType.CLUSTER},
    ],
)
async def test_an_acl_that_cannot_be_is_refused_and_the_others_are_created(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    async with secure_gateway(tmp_path) as secure:
        root = await secure.logged_in(ROOT.name)
        answer = await root.ask("CreateAcls", creations=[{**ACL, **changes}, ACL])
        assert [code(each) for each in answer.results] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
        assert answer.results[0].error_message
        assert await names(root, 3) == [("orders", 1)]


async def test_a_filter_that_is_not_understood_is_refused(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path) as secure:
        root = await secure.logged_in(ROOT.name)
        assert code(await root.ask("DescribeAcls", **{**ANY, "operation": 99})) is ErrorCode.INVALID_REQUEST
        answer = await root.ask("DeleteAcls", filters=[{**ANY, "principal_filter": "ann"}])
        assert code(answer.filter_results[0]) is ErrorCode.INVALID_REQUEST


async def test_a_permission_counts_for_the_next_request_of_a_connection(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path, topics={"orders": 1, "other": 1}) as secure:
        root, ann = await secure.logged_in(ROOT.name), await secure.logged_in("ann")

        async def visible() -> list[str]:
            return [each.name for each in (await ann.ask("Metadata", topics=None)).topics]

        assert await visible() == []
        await root.ask("CreateAcls", creations=[ACL])
        assert await visible() == ["orders"]
        await root.ask("DeleteAcls", filters=[ANY])
        assert await visible() == []


async def test_authorized_operations_are_those_of_the_client(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path, topics={"orders": 1}) as secure:
        root, ann = await secure.logged_in(ROOT.name), await secure.logged_in("ann")
        await secure.set_acls(
            [
                allow("ann", Operation.READ, ResourceType.TOPIC, "orders"),
                allow("ann", Operation.DESCRIBE, ResourceType.GROUP, "g"),
            ]
        )
        wanted = [{"name": "orders", "topic_id": None}]
        read = operation_bits([AclOperation.READ, AclOperation.DESCRIBE])
        for client, bits in ((root, ALL_OPERATIONS[ResourceType.TOPIC]), (ann, read)):
            (topic,) = (await client.ask("Metadata", topics=wanted, include_topic_authorized_operations=True)).topics
            assert topic.topic_authorized_operations == bits
            described = await client.ask("DescribeTopicPartitions", topics=[{"name": "orders"}], cursor=None)
            assert described.topics[0].topic_authorized_operations == bits
        answer = await ann.ask("DescribeGroups", groups=["g"], include_authorized_operations=True)
        assert answer.groups[0].authorized_operations == operation_bits([AclOperation.DESCRIBE])


async def test_users_are_set_described_and_deleted(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path) as secure:
        root = await secure.logged_in(ROOT.name)
        answer = await root.ask("AlterUserScramCredentials", deletions=(), upsertions=[upsertion("bob")])
        assert [(each.user, code(each)) for each in answer.results] == [("bob", ErrorCode.NONE)]
        bob = SecureClient(await secure.client())
        assert await bob.log_in("SCRAM-SHA-512", "bob") is ErrorCode.NONE
        answer = await root.ask("DescribeUserScramCredentials", users=None)
        found = {
            each.user: [(info.mechanism, info.iterations) for info in each.credential_infos] for each in answer.results
        }
        assert found == {"bob": [(2, 4_096)], "root": [(1, 4_096), (2, 4_096)]}
        asked = [{"name": "bob"}, {"name": "bob"}, {"name": "nobody"}]
        answer = await root.ask("DescribeUserScramCredentials", users=asked)
        assert {each.user: code(each) for each in answer.results} == {
            "bob": ErrorCode.DUPLICATE_RESOURCE,
            "nobody": ErrorCode.RESOURCE_NOT_FOUND,
        }
        deletion = {"name": "bob", "mechanism": 2}
        for expected in (ErrorCode.NONE, ErrorCode.RESOURCE_NOT_FOUND):
            answer = await root.ask("AlterUserScramCredentials", deletions=[deletion], upsertions=())
            assert [code(each) for each in answer.results] == [expected]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"mechanism": 0}, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ({"iterations": 4_095}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"iterations": 16_385}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"salt": b""}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"salted_password": b"x"}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({"name": ""}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
async def test_a_credential_that_is_too_weak_is_refused(
    tmp_path: Path, changes: dict[str, Any], expected: ErrorCode
) -> None:
    async with secure_gateway(tmp_path) as secure:
        root = await secure.logged_in(ROOT.name)
        given = {**upsertion("bob"), **changes}
        answer = await root.ask("AlterUserScramCredentials", deletions=(), upsertions=[given])
        assert [code(each) for each in answer.results] == [expected]
        twice = [upsertion("bob"), upsertion("bob")]
        answer = await root.ask("AlterUserScramCredentials", deletions=(), upsertions=twice)
        assert [code(each) for each in answer.results] == [ErrorCode.DUPLICATE_RESOURCE]
        assert secure.security.control.user("bob") is None
