"""What each API needs a principal to be allowed: the one table of the gateway, as Kafka's brokers have it.

The one rule: an API without a rule is not served; importing the table of APIs fails. Handlers ask through their request
(`RequestContext.allows`), which refuses a question that the rule of its API does not name. Several needs are not all needed: which
of them for what is Kafka's own, and the handler's business (CreateTopics: the cluster's CREATE, or the topic's).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.kafka.api_keys import ApiKey
from holdfast.security.acls import Operation, ResourceType


@dataclass(frozen=True, slots=True)
class ApiRule:
    """What a request may ask for. `before_login`: it is answered before a client has logged in."""

    needs: frozenset[tuple[Operation, ResourceType]] = frozenset()
    before_login: bool = False


def _needs(*needs: tuple[ResourceType, Operation]) -> ApiRule:
    return ApiRule(frozenset((operation, kind) for kind, operation in needs))


_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_CLUSTER, _TRANSACTIONAL_ID = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
_READ, _WRITE, _CREATE, _DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
_ALTER, _DESCRIBE = Operation.ALTER, Operation.DESCRIBE
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS

_BEFORE_LOGIN: Final = ApiRule(before_login=True)
_LOGGED_IN: Final = ApiRule()

RULES: Final[Mapping[ApiKey, ApiRule]] = {
    ApiKey.API_VERSIONS: _BEFORE_LOGIN,
    ApiKey.SASL_HANDSHAKE: _BEFORE_LOGIN,
    ApiKey.SASL_AUTHENTICATE: _BEFORE_LOGIN,
    ApiKey.DESCRIBE_CLUSTER: _needs((_CLUSTER, _DESCRIBE)),  # for the authorized operations; brokers are for everybody
    ApiKey.PRODUCE: _needs((_TOPIC, _WRITE)),
    ApiKey.FETCH: _needs((_TOPIC, _READ)),
    ApiKey.LIST_OFFSETS: _needs((_TOPIC, _DESCRIBE)),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _needs((_TOPIC, _DESCRIBE)),
    ApiKey.METADATA: _needs((_TOPIC, _DESCRIBE), (_TOPIC, _CREATE), (_CLUSTER, _CREATE), (_CLUSTER, _DESCRIBE)),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _needs((_TOPIC, _DESCRIBE)),
    ApiKey.CREATE_TOPICS: _needs((_CLUSTER, _CREATE), (_TOPIC, _CREATE)),
    ApiKey.DELETE_TOPICS: _needs((_TOPIC, _DELETE)),
    ApiKey.DELETE_RECORDS: _needs((_TOPIC, _DELETE)),
    ApiKey.CREATE_PARTITIONS: _needs((_TOPIC, _ALTER)),
    ApiKey.FIND_COORDINATOR: _needs((_GROUP, _DESCRIBE), (_TRANSACTIONAL_ID, _DESCRIBE)),
    ApiKey.JOIN_GROUP: _needs((_GROUP, _READ)),
    ApiKey.SYNC_GROUP: _needs((_GROUP, _READ)),
    ApiKey.HEARTBEAT: _needs((_GROUP, _READ)),
    ApiKey.LEAVE_GROUP: _needs((_GROUP, _READ)),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _needs((_GROUP, _READ)),
    ApiKey.DESCRIBE_GROUPS: _needs((_GROUP, _DESCRIBE)),
    ApiKey.LIST_GROUPS: _needs((_CLUSTER, _DESCRIBE), (_GROUP, _DESCRIBE)),
    ApiKey.DELETE_GROUPS: _needs((_GROUP, _DELETE)),
    ApiKey.OFFSET_COMMIT: _needs((_GROUP, _READ), (_TOPIC, _READ)),
    ApiKey.OFFSET_FETCH: _needs((_GROUP, _DESCRIBE), (_TOPIC, _DESCRIBE)),
    ApiKey.OFFSET_DELETE: _needs((_GROUP, _DELETE), (_TOPIC, _READ)),
    ApiKey.INIT_PRODUCER_ID: _needs(
        (_CLUSTER, Operation.IDEMPOTENT_WRITE), (_TOPIC, _WRITE), (_TRANSACTIONAL_ID, _WRITE)
    ),
    ApiKey.DESCRIBE_PRODUCERS: _needs((_TOPIC, _READ)),
    ApiKey.DESCRIBE_TRANSACTIONS: _needs((_TRANSACTIONAL_ID, _DESCRIBE)),
    ApiKey.LIST_TRANSACTIONS: _LOGGED_IN,  # there are none to hide
    ApiKey.DESCRIBE_ACLS: _needs((_CLUSTER, _DESCRIBE)),
    ApiKey.CREATE_ACLS: _needs((_CLUSTER, _ALTER)),
    ApiKey.DELETE_ACLS: _needs((_CLUSTER, _ALTER)),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _needs((_CLUSTER, _DESCRIBE)),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _needs((_CLUSTER, _ALTER)),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _needs((_CLUSTER, _DESCRIBE_CONFIGS)),
    ApiKey.ALTER_CLIENT_QUOTAS: _needs((_CLUSTER, _ALTER_CONFIGS)),
    ApiKey.DESCRIBE_CONFIGS: _needs(
        (_TOPIC, _DESCRIBE_CONFIGS), (_GROUP, _DESCRIBE_CONFIGS), (_CLUSTER, _DESCRIBE_CONFIGS)
    ),
    ApiKey.ALTER_CONFIGS: _needs((_TOPIC, _ALTER_CONFIGS), (_GROUP, _ALTER_CONFIGS), (_CLUSTER, _ALTER_CONFIGS)),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _needs(
        (_TOPIC, _ALTER_CONFIGS), (_GROUP, _ALTER_CONFIGS), (_CLUSTER, _ALTER_CONFIGS)
    ),
    ApiKey.LIST_CONFIG_RESOURCES: _needs((_CLUSTER, _DESCRIBE_CONFIGS)),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _needs((_CLUSTER, _ALTER)),
    ApiKey.DESCRIBE_LOG_DIRS: _needs((_CLUSTER, _DESCRIBE)),
    ApiKey.ELECT_LEADERS: _needs((_CLUSTER, _ALTER)),
    ApiKey.DESCRIBE_QUORUM: _needs((_CLUSTER, _DESCRIBE)),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _needs((_CLUSTER, _ALTER)),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _needs((_CLUSTER, _DESCRIBE)),
    ApiKey.HEAP: _needs(
        *((_TOPIC, _WRITE), (_TOPIC, _READ), (_TOPIC, _DESCRIBE), (_TOPIC, _ALTER), (_TOPIC, _DELETE)),
        (_TOPIC, _CREATE),
        (_CLUSTER, Operation.CLUSTER_ACTION),  # messages on their way from heap to heap
    ),
    ApiKey.HEAP_POP: _needs((_TOPIC, _READ)),
}


class MissingRuleError(LookupError):
    """An API that nobody has said who may call."""

    def __init__(self, key: ApiKey) -> None:
        super().__init__(f"{key.api_name} has no rule: add it to gateways.kafka.api_rules")


def rule_of(key: ApiKey) -> ApiRule:
    """The rule of an API. `MissingRuleError`."""
    rule = RULES.get(key)
    if rule is None:
        raise MissingRuleError(key)
    return rule
