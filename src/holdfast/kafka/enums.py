"""Small enumerations of Kafka's protocol: acks, resource types, configuration sources and types, coordinators, ACL operations."""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final


class Acks(IntEnum):
    """What a producer waits for."""

    ALL = -1
    NONE = 0
    LEADER = 1


class ConfigResourceType(IntEnum):
    """Whose configuration is described or altered."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where the value of a configuration comes from."""

    DYNAMIC_TOPIC_CONFIG = 1
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6


class ConfigType(IntEnum):
    """The type of a configuration's value."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class AlterConfigOperation(IntEnum):
    """Operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class CoordinatorType(IntEnum):
    """What FindCoordinator looks up a coordinator for."""

    GROUP = 0
    TRANSACTION = 1


class EndpointType(IntEnum):
    """What DescribeCluster lists."""

    BROKER = 1
    CONTROLLER = 2


class AclResourceType(IntEnum):
    """What an ACL is about. ANY is for filters."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class AclPatternType(IntEnum):
    """How an ACL names its resources. ANY and MATCH are for filters."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclPermissionType(IntEnum):
    """What an ACL says. ANY is for filters."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class ScramMechanismType(IntEnum):
    """Mechanisms of SCRAM credentials."""

    SHA_256 = 1
    SHA_512 = 2


class AclOperation(IntEnum):
    """Operations a principal may be authorized for; each is a bit of an `authorized_operations` field. ANY is for filters."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


AUTHORIZED_OPERATIONS_OMITTED: Final = -(1 << 31)  # the request did not ask for them


def operation_bits(operations: Iterable[AclOperation]) -> int:
    """The value of an `authorized_operations` field."""
    return sum(1 << operation for operation in operations)


class QuotaMatchType(IntEnum):
    """How a component of a quota filter matches a name."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2
