"""A request of every API of the gateway, with the permissions it needs."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tests.support.kafka_admin import code
from tests.support.kafka_wire import fetch_request, produce_request
from tests.support.partitions import batch

from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.enums import ConfigResourceType, CoordinatorType
from holdfast.kafka.error_codes import ErrorCode
from holdfast.security.acls import Operation, ResourceType

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
