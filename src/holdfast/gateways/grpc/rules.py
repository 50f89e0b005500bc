"""What each rpc needs a principal to be allowed: the one table of the gateway, in the words of Kafka's ACLs.

The one rule: an rpc without a rule is not served; the server does not start.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from holdfast.security.acls import Operation, ResourceType
from holdfast.vocabulary.settings import KIB

_PACKAGE: Final = "holdfast.v1"


@dataclass(frozen=True, slots=True)
class Need:
    """An operation on a resource. `field`: of the request, the name of the resource. `first`: it is needed before anything else.

    What is not needed first is asked by the method: for each of what it lists, or for what a request asks for beside the rest.
    `some`: no request is served to who may not do this to any resource at all.
    """

    kind: ResourceType
    operation: Operation
    field: str = ""
    first: bool = True
    some: bool = False


@dataclass(frozen=True, slots=True)
class RpcRule:
    """What a call may need. `public`: it is answered before anybody has logged in. `administers`: it goes to the audit log.

    `bytes_max`: of a request; None: what the server takes.
    """

    needs: tuple[Need, ...] = ()
    public: bool = False
    administers: bool = False
    bytes_max: int | None = None

    @property
    def first(self) -> tuple[Need, ...]:
        """What every call needs."""
        return tuple(need for need in self.needs if need.first)

    @property
    def unread(self) -> tuple[Need, ...]:
        """What every call needs for some resource, whichever its request names: known before it is read."""
        return tuple(need for need in self.needs if need.first or need.some)


def _topic(operation: Operation, field: str = "topic", *, first: bool = True, some: bool = False) -> Need:
    return Need(ResourceType.TOPIC, operation, field, first, some)


def _group(operation: Operation) -> Need:
    return Need(ResourceType.GROUP, operation, "group")


def _cluster(operation: Operation, *, first: bool = True) -> Need:
    return Need(ResourceType.CLUSTER, operation, "", first)


def _administers(*needs: Need) -> RpcRule:
    return RpcRule(needs, administers=True)


_DESCRIBED_TOPICS: Final = _topic(Operation.DESCRIBE, "", first=False)
CONTROL_BYTES_MAX: Final = 16 * KIB  # of a request that has a few names and numbers
_PUBLIC: Final = RpcRule(public=True, bytes_max=4 * KIB)
_SEE, _DO = RpcRule((_cluster(Operation.DESCRIBE),)), RpcRule((_cluster(Operation.ALTER),))
_SERVICES: Final[Mapping[str, Mapping[str, RpcRule]]] = {
    "grpc.health.v1.Health": {"Check": _PUBLIC, "List": _PUBLIC, "Watch": _PUBLIC},
    "grpc.reflection.v1alpha.ServerReflection": {"ServerReflectionInfo": _PUBLIC},
    f"{_PACKAGE}.TopicService": {
        "CreateTopic": _administers(
            _topic(Operation.CREATE, "name", first=False), _cluster(Operation.CREATE, first=False)
        ),
        "GetTopic": RpcRule((_topic(Operation.DESCRIBE, "name"), _topic(Operation.DESCRIBE_CONFIGS, "name"))),
        "ListTopics": RpcRule((_DESCRIBED_TOPICS,)),
        "AlterTopic": _administers(
            _topic(Operation.DESCRIBE_CONFIGS, "name"),
            _topic(Operation.ALTER, "name", first=False),
            _topic(Operation.ALTER_CONFIGS, "name", first=False),
            _cluster(Operation.ALTER, first=False),
        ),
        "DeleteTopic": _administers(_topic(Operation.DELETE, "name")),
        "DescribePartitions": RpcRule((_topic(Operation.DESCRIBE),)),
    },
    f"{_PACKAGE}.ProduceService": {
        "Produce": RpcRule((_topic(Operation.WRITE),)),
        "ProduceStream": RpcRule((_topic(Operation.WRITE, first=False, some=True),)),
    },
    f"{_PACKAGE}.FetchService": {"Fetch": RpcRule((_topic(Operation.READ),))},
    f"{_PACKAGE}.ConsumerGroupService": {
        "ListConsumerGroups": RpcRule((Need(ResourceType.GROUP, Operation.DESCRIBE, first=False),)),
        "DescribeConsumerGroup": RpcRule((_group(Operation.DESCRIBE), _DESCRIBED_TOPICS)),
        "GetConsumerGroupLag": RpcRule((_group(Operation.DESCRIBE), _DESCRIBED_TOPICS)),
        "CommitOffsets": RpcRule((_group(Operation.READ), _topic(Operation.READ, "", first=False))),
        "ResetOffsets": _administers(_group(Operation.READ), _topic(Operation.READ, "", first=False)),
        "SeekOffset": _administers(_group(Operation.READ), _topic(Operation.READ)),
        "DeleteConsumerGroup": _administers(_group(Operation.DELETE)),
    },
    f"{_PACKAGE}.ClusterService": {
        **dict.fromkeys(("ListAgents", "GetAgent", "ListPartitions", "ListLeases", "ListTransfers"), _SEE),
    },
    f"{_PACKAGE}.HeapService": {
        "MakeHeap": _administers(
            _topic(Operation.CREATE, "topic", first=False), _cluster(Operation.CREATE, first=False)
        ),
        "DeleteHeap": _administers(_topic(Operation.DELETE)),
        "UpdateHeapConfig": _administers(_topic(Operation.ALTER)),
        "ListHeaps": RpcRule((_DESCRIBED_TOPICS,)),
        "Stats": RpcRule((_topic(Operation.DESCRIBE, first=False),)),
        "Purge": _administers(_topic(Operation.DELETE)),
        "CreateConfirmation": RpcRule((_topic(Operation.DELETE, "resource"),)),
        "Enqueue": RpcRule((_topic(Operation.WRITE),)),
        "EnqueueBatch": RpcRule((_topic(Operation.WRITE, "", first=False, some=True),)),
        "PopStream": RpcRule((_topic(Operation.READ, "", first=False, some=True),), bytes_max=CONTROL_BYTES_MAX),
        # Peek and ListDeadLetters show payloads.
        **dict.fromkeys(
            ("Ack", "Nack", "Release", "Extend", "Peek", "ListDeadLetters"), RpcRule((_topic(Operation.READ),))
        ),
        **dict.fromkeys(
            ("Reprioritise", "Cancel", "MoveToDlq", "ReplayDeadLetters"), _administers(_topic(Operation.ALTER))
        ),
        "DeleteDeadLetters": _administers(_topic(Operation.DELETE)),
    },
    f"{_PACKAGE}.CoordinationService": {
        **dict.fromkeys(("GetKey", "ScanKeys", "Watch"), _SEE),
        **dict.fromkeys(
            ("OpenSession", "RenewSession", "KeepAlive", "CloseSession"), replace(_DO, bytes_max=CONTROL_BYTES_MAX)
        ),
        **dict.fromkeys(("AcquireLease", "ReleaseLease", "Commit"), _DO),
    },
}
RULES: Final[Mapping[str, RpcRule]] = {
    f"/{service}/{method}": rule for service, methods in _SERVICES.items() for method, rule in methods.items()
}


class MissingRuleError(LookupError):
    """An rpc that nobody has said who may call."""

    def __init__(self, rpc: str) -> None:
        super().__init__(f"{rpc} has no rule: add it to gateways.grpc.rules")


def rule_of(rpc: str) -> RpcRule:
    """The rule of an rpc, `/package.Service/Method`. `MissingRuleError`."""
    rule = RULES.get(rpc)
    if rule is None:
        raise MissingRuleError(rpc)
    return rule
