"""Who may call what: every API of the gateway's table of rules × principals with none, all, some and denied permissions.

Each API has requests here, each with the permissions it needs: all lines of them, and of a line any. The test fails if an API has
no request, if its requests do not use exactly what its rule names, or if a cell is answered otherwise than these say.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka_admin import code
from tests.support.kafka_security import ROOT, SecureClient, SecureGateway, allow, secure_gateway
from tests.support.kafka_wire import fetch_request, produce_request
from tests.support.partitions import batch

from holdfast.agent.access_control import AccessControl
from holdfast.gateways.kafka.api import RequestContext
from holdfast.gateways.kafka.api_rules import RULES
from holdfast.gateways.kafka.connection_access import ConnectionAccess
from holdfast.gateways.kafka.login import Login
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.enums import ConfigResourceType, CoordinatorType
from holdfast.kafka.error_codes import ErrorCode
from holdfast.security.acls import CLUSTER_NAME, Acl, Operation, Permission, ResourceType

Need = tuple[Operation, ResourceType]
Op, Kind = Operation, ResourceType
TOPIC, GROUP, TRANSACTION = "t-orders", "g-readers", "x-transfer"
ABSENT = "t-absent"  # for what would change something
PREFIXES = {Kind.TOPIC: "t-", Kind.GROUP: "g-", Kind.TRANSACTIONAL_ID: "x-"}
SOON = timedelta(seconds=5)
DENIED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
IMPLYING = {Op.DESCRIBE: (Op.READ, Op.WRITE, Op.DELETE, Op.ALTER), Op.DESCRIBE_CONFIGS: (Op.ALTER_CONFIGS,)}
_numbers = itertools.count()


def codes(answer: Any) -> Iterator[ErrorCode]:
    """Every error code in a response."""
    if isinstance(answer, tuple):
        for each in answer:
            yield from codes(each)
    for name in getattr(answer, "__dataclass_fields__", ()):
        if name == "error_code":
            yield code(answer)
        else:
            yield from codes(getattr(answer, name))


def is_denied(answer: Any) -> bool:
    return not DENIED.isdisjoint(codes(answer))


@dataclass(frozen=True)
class Request:
    """A request of an API. `needs`: all of these lines, of each line any."""

    key: ApiKey
    given: Callable[[], dict[str, Any]]
    needs: tuple[tuple[Need, ...], ...]
    version: int | None = None
    denied: Callable[[Any], bool] = field(default=is_denied)

    @property
    def every_need(self) -> set[Need]:
        return {need for line in self.needs for need in line}

    def allowed_with(self, granted: set[Need], denied: set[Need]) -> bool:
        def has(need: Need) -> bool:
            operation, kind = need
            enough = {need, *((each, kind) for each in IMPLYING.get(operation, ()))}
            return need not in denied and bool(enough & granted)

        return all(any(map(has, line)) for line in self.needs)


def request(key: ApiKey, *needs: tuple[Need, ...], **given: Any) -> Request:
    return Request(key, lambda: given, needs)


def on(kind: ResourceType, *operations: Operation) -> tuple[Need, ...]:
    return tuple((operation, kind) for operation in operations)


TOPIC_PARTITION = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
MEMBER = {"group_id": GROUP, "member_id": "nobody", "generation_id": 1, "group_instance_id": None}
ANY_ACL = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
NO_ACL = {**ANY_ACL, "principal_filter": "User:nobody"}
CREATABLE = {"num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
QUOTA = {"entity": [{"entity_type": "user", "entity_name": None}], "ops": ()}


def config(kind: ConfigResourceType, name: str) -> dict[str, Any]:
    return {"resources": [{"resource_type": kind, "resource_name": name, "configs": (), "configuration_keys": None}]}


def cluster_operations_hidden(answer: Any) -> bool:
    return bool(answer.cluster_authorized_operations == 0)


REQUESTS = [
    Request(ApiKey.PRODUCE, lambda: produce_request(TOPIC, {0: batch("x")}), (on(Kind.TOPIC, Op.WRITE),), version=9),
    Request(ApiKey.FETCH, lambda: fetch_request(TOPIC, {0: 0}), (on(Kind.TOPIC, Op.READ),), version=12),
    request(
        ApiKey.LIST_OFFSETS,
        on(Kind.TOPIC, Op.DESCRIBE),
        replica_id=-1,
        isolation_level=0,
        topics=[{"name": TOPIC, "partitions": [TOPIC_PARTITION]}],
        timeout=SOON,
    ),
    request(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        on(Kind.TOPIC, Op.DESCRIBE),
        topics=[{"topic": TOPIC, "partitions": [{"partition": 0, "leader_epoch": 0, "current_leader_epoch": -1}]}],
    ),
    request(ApiKey.METADATA, on(Kind.TOPIC, Op.DESCRIBE), topics=[{"name": TOPIC, "topic_id": None}]),
    Request(
        ApiKey.METADATA,
        lambda: {"topics": None},
        (on(Kind.TOPIC, Op.DESCRIBE),),
        denied=lambda answer: TOPIC not in {each.name for each in answer.topics},
    ),
    Request(
        ApiKey.METADATA,
        lambda: {
            "topics": [{"name": f"t-new-{next(_numbers)}", "topic_id": None}],
            "allow_auto_topic_creation": True,
        },
        (on(Kind.TOPIC, Op.DESCRIBE), (*on(Kind.TOPIC, Op.CREATE), *on(Kind.CLUSTER, Op.CREATE))),
    ),
    Request(
        ApiKey.METADATA,
        lambda: {"topics": (), "include_cluster_authorized_operations": True},
        (on(Kind.CLUSTER, Op.DESCRIBE),),
        version=10,
        denied=cluster_operations_hidden,
    ),
    Request(
        ApiKey.DESCRIBE_CLUSTER,
        lambda: {"include_cluster_authorized_operations": True, "endpoint_type": 1},
        (on(Kind.CLUSTER, Op.DESCRIBE),),
        denied=cluster_operations_hidden,
    ),
    request(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        on(Kind.TOPIC, Op.DESCRIBE),
        topics=[{"name": TOPIC}],
        response_partition_limit=10,
        cursor=None,
    ),
    request(
        ApiKey.CREATE_TOPICS,
        (*on(Kind.TOPIC, Op.CREATE), *on(Kind.CLUSTER, Op.CREATE)),
        topics=[{"name": ABSENT, **CREATABLE}],
        validate_only=True,
        timeout=SOON,
    ),
    request(ApiKey.DELETE_TOPICS, on(Kind.TOPIC, Op.DELETE), topics=[{"name": ABSENT, "topic_id": None}], timeout=SOON),
    request(
        ApiKey.DELETE_RECORDS,
        on(Kind.TOPIC, Op.DELETE),
        topics=[{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 0}]}],
        timeout=SOON,
    ),
    request(
        ApiKey.CREATE_PARTITIONS,
        on(Kind.TOPIC, Op.ALTER),
        topics=[{"name": TOPIC, "count": 2, "assignments": None}],
        validate_only=True,
        timeout=SOON,
    ),
    request(
        ApiKey.FIND_COORDINATOR,
        on(Kind.GROUP, Op.DESCRIBE),
        key_type=CoordinatorType.GROUP,
        coordinator_keys=[GROUP],
    ),
    request(
        ApiKey.FIND_COORDINATOR,
        on(Kind.TRANSACTIONAL_ID, Op.DESCRIBE),
        key_type=CoordinatorType.TRANSACTION,
        coordinator_keys=[TRANSACTION],
    ),
    request(
        ApiKey.JOIN_GROUP,
        on(Kind.GROUP, Op.READ),
        **MEMBER,
        session_timeout=SOON,
        rebalance_timeout=SOON,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
        reason=None,
    ),
    request(
        ApiKey.SYNC_GROUP,
        on(Kind.GROUP, Op.READ),
        **MEMBER,
        protocol_type=None,
        protocol_name=None,
        assignments=(),
    ),
    request(ApiKey.HEARTBEAT, on(Kind.GROUP, Op.READ), **MEMBER),
    request(
        ApiKey.LEAVE_GROUP,
        on(Kind.GROUP, Op.READ),
        group_id=GROUP,
        members=[{"member_id": "nobody", "group_instance_id": None, "reason": None}],
    ),
    request(ApiKey.CONSUMER_GROUP_HEARTBEAT, on(Kind.GROUP, Op.READ), group_id=GROUP, member_id="m", member_epoch=0),
    request(ApiKey.DESCRIBE_GROUPS, on(Kind.GROUP, Op.DESCRIBE), groups=[GROUP], include_authorized_operations=True),
    Request(
        ApiKey.LIST_GROUPS,
        lambda: {"states_filter": (), "types_filter": ()},
        ((*on(Kind.CLUSTER, Op.DESCRIBE), *on(Kind.GROUP, Op.DESCRIBE)),),
        denied=lambda answer: GROUP not in {each.group_id for each in answer.groups},
    ),
    request(ApiKey.DELETE_GROUPS, on(Kind.GROUP, Op.DELETE), groups_names=["g-absent"]),
    Request(
        ApiKey.OFFSET_COMMIT,
        lambda: {
            "group_id": GROUP,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [
                {
                    "name": TOPIC,
                    "partitions": [{"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1}],
                }
            ],
        },
        (on(Kind.GROUP, Op.READ), on(Kind.TOPIC, Op.READ)),
        version=9,
    ),
    Request(
        ApiKey.OFFSET_FETCH,
        lambda: {"groups": [{"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}]},
        (on(Kind.GROUP, Op.DESCRIBE), on(Kind.TOPIC, Op.DESCRIBE)),
        version=9,
    ),
    Request(
        ApiKey.OFFSET_FETCH,
        lambda: {"groups": [{"group_id": GROUP, "topics": None}]},
        (on(Kind.GROUP, Op.DESCRIBE), on(Kind.TOPIC, Op.DESCRIBE)),
        version=9,
        denied=lambda answer: not answer.groups[0].topics,
    ),
    request(
        ApiKey.OFFSET_DELETE,
        on(Kind.GROUP, Op.DELETE),
        on(Kind.TOPIC, Op.READ),
        group_id=GROUP,
        topics=[{"name": TOPIC, "partitions": [{"partition_index": 9}]}],
    ),
    request(
        ApiKey.INIT_PRODUCER_ID,
        (*on(Kind.CLUSTER, Op.IDEMPOTENT_WRITE), *on(Kind.TOPIC, Op.WRITE)),
        transactional_id=None,
        transaction_timeout=SOON,
        producer_id=-1,
        producer_epoch=-1,
    ),
    request(
        ApiKey.INIT_PRODUCER_ID,
        on(Kind.TRANSACTIONAL_ID, Op.WRITE),
        transactional_id=TRANSACTION,
        transaction_timeout=SOON,
        producer_id=-1,
        producer_epoch=-1,
    ),
    request(ApiKey.DESCRIBE_PRODUCERS, on(Kind.TOPIC, Op.READ), topics=[{"name": TOPIC, "partition_indexes": [0]}]),
    request(ApiKey.DESCRIBE_TRANSACTIONS, on(Kind.TRANSACTIONAL_ID, Op.DESCRIBE), transactional_ids=[TRANSACTION]),
    request(ApiKey.LIST_TRANSACTIONS, state_filters=(), producer_id_filters=(), duration_filter=-1),
    request(ApiKey.DESCRIBE_ACLS, on(Kind.CLUSTER, Op.DESCRIBE), **ANY_ACL),
    request(ApiKey.CREATE_ACLS, on(Kind.CLUSTER, Op.ALTER), creations=[{"principal": "nobody"}]),
    request(ApiKey.DELETE_ACLS, on(Kind.CLUSTER, Op.ALTER), filters=[NO_ACL]),
    request(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, on(Kind.CLUSTER, Op.DESCRIBE), users=None),
    request(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        on(Kind.CLUSTER, Op.ALTER),
        deletions=[{"name": "nobody", "mechanism": 1}],
        upsertions=(),
    ),
    request(ApiKey.DESCRIBE_CLIENT_QUOTAS, on(Kind.CLUSTER, Op.DESCRIBE_CONFIGS), components=(), strict=False),
    request(ApiKey.ALTER_CLIENT_QUOTAS, on(Kind.CLUSTER, Op.ALTER_CONFIGS), entries=[QUOTA], validate_only=True),
    request(ApiKey.DESCRIBE_CONFIGS, on(Kind.TOPIC, Op.DESCRIBE_CONFIGS), **config(ConfigResourceType.TOPIC, TOPIC)),
    request(ApiKey.DESCRIBE_CONFIGS, on(Kind.GROUP, Op.DESCRIBE_CONFIGS), **config(ConfigResourceType.GROUP, GROUP)),
    request(ApiKey.DESCRIBE_CONFIGS, on(Kind.CLUSTER, Op.DESCRIBE_CONFIGS), **config(ConfigResourceType.BROKER, "1")),
    *(
        request(key, on(kind, Op.ALTER_CONFIGS), **config(resource, name), validate_only=True)
        for key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
        for kind, resource, name in (
            (Kind.TOPIC, ConfigResourceType.TOPIC, TOPIC),
            (Kind.GROUP, ConfigResourceType.GROUP, GROUP),
            (Kind.CLUSTER, ConfigResourceType.BROKER, "1"),
        )
    ),
    request(ApiKey.LIST_CONFIG_RESOURCES, on(Kind.CLUSTER, Op.DESCRIBE_CONFIGS), resource_types=()),
    request(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        on(Kind.CLUSTER, Op.ALTER),
        dirs=[{"path": "/", "topics": [{"name": TOPIC, "partitions": [0]}]}],
    ),
    request(ApiKey.DESCRIBE_LOG_DIRS, on(Kind.CLUSTER, Op.DESCRIBE), topics=None),
    request(
        ApiKey.ELECT_LEADERS,
        on(Kind.CLUSTER, Op.ALTER),
        election_type=0,
        topic_partitions=[{"topic": TOPIC, "partitions": [0]}],
        timeout=SOON,
    ),
    request(ApiKey.DESCRIBE_QUORUM, on(Kind.CLUSTER, Op.DESCRIBE), topics=()),
    request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, on(Kind.CLUSTER, Op.ALTER), timeout=SOON, topics=()),
    request(ApiKey.LIST_PARTITION_REASSIGNMENTS, on(Kind.CLUSTER, Op.DESCRIBE), timeout=SOON, topics=None),
]


def test_the_requests_use_exactly_what_the_rules_name() -> None:
    used: dict[ApiKey, set[Need]] = {}
    for each in REQUESTS:
        used.setdefault(each.key, set()).update(each.every_need)
    assert used == {key: set(rule.needs) for key, rule in RULES.items() if not rule.before_login}


def acl(need: Need, permission: Permission = Permission.ALLOW) -> Acl:
    operation, kind = need
    prefix = PREFIXES.get(kind)
    return allow("ann", operation, kind, prefix or CLUSTER_NAME, prefixed=prefix is not None, permission=permission)


def cells(needs: set[Need]) -> Iterator[tuple[set[Need], set[Need]]]:
    """What is granted, and what is denied: nothing, everything, one, all but one, everything with one denied."""
    yield set(), set()
    yield needs, set()
    for need in needs if len(needs) > 1 else ():
        yield {need}, set()
        yield needs - {need}, set()
    for need in needs:
        yield needs, {need}


async def prepared(secure: SecureGateway) -> tuple[SecureClient, SecureClient]:
    """Ann, and the super user; the group has an offset."""
    root, ann = await secure.logged_in(ROOT.name), await secure.logged_in("ann")
    await root.ask("OffsetCommit", 9, **next(each for each in REQUESTS if each.key is ApiKey.OFFSET_COMMIT).given())
    return root, ann


async def failures(secure: SecureGateway, requests: list[Request]) -> tuple[int, list[str]]:
    """How many cells there are, and those that were answered otherwise than expected."""
    root, ann = await prepared(secure)
    count, failed = 0, []
    for each in requests:
        for client, granted, denied in (
            (root, set[Need](), set[Need]()),
            *((ann, granted, denied) for granted, denied in cells(each.every_need)),
        ):
            await secure.set_acls([*map(acl, granted), *(acl(need, Permission.DENY) for need in denied)])
            answer = await client.ask(each.key.api_name, each.version, **each.given())
            allowed = client is root or each.allowed_with(granted, denied)
            count += 1
            if each.denied(answer) == allowed:
                who = "root" if client is root else f"ann with {sorted(granted)} without {sorted(denied)}"
                failed.append(f"{each.key.api_name} by {who}: {answer}")
    return count, failed


async def test_every_cell_of_the_matrix_is_as_the_rules_say(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path, topics={TOPIC: 1}) as secure:
        count, failed = await failures(secure, REQUESTS)
        assert not failed
        assert count > 200


async def test_a_decision_that_is_kept_for_ever_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the cache of decisions is never cleared."""
    async with secure_gateway(tmp_path, topics={TOPIC: 1}) as secure:
        monkeypatch.setattr(AccessControl, "version", 0)
        _, failed = await failures(secure, [each for each in REQUESTS if each.key in (ApiKey.PRODUCE, ApiKey.FETCH)])
        assert failed


async def test_a_handler_that_does_not_ask_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a handler that lets everybody in."""

    def lenient(call: RequestContext, operation: Operation, kind: ResourceType, name: str) -> bool:
        return call.api.key is ApiKey.DELETE_RECORDS or asked(call, operation, kind, name)

    asked = RequestContext.allows
    async with secure_gateway(tmp_path, topics={TOPIC: 1}) as secure:
        monkeypatch.setattr(RequestContext, "allows", lenient)
        _, failed = await failures(secure, [each for each in REQUESTS if each.key is ApiKey.DELETE_RECORDS])
        assert failed


async def test_a_connection_that_never_logged_in_may_do_nothing(tmp_path: Path) -> None:
    """Whatever reached a handler without a login would be refused there once more."""
    async with secure_gateway(tmp_path) as secure:
        access = ConnectionAccess(Login(secure.security, "127.0.0.1"))
        for rule in RULES.values():
            assert not any(access.allows(rule, operation, kind, TOPIC) for operation, kind in rule.needs)


async def test_names_that_no_resource_can_have_are_not_kept(tmp_path: Path) -> None:
    """Who has logged in may ask for names of 32 KiB: 20,000 of them would be 640 MB for one connection."""
    async with secure_gateway(tmp_path) as secure:
        access = ConnectionAccess(Login(secure.security, "127.0.0.1"))
        rule = RULES[ApiKey.METADATA]
        for name in ("x" * 32_000, "x" * 300):
            assert not access.allows(rule, Operation.DESCRIBE, ResourceType.TOPIC, name)
        assert [len(name) for _, _, name in access._decisions] == [300]
