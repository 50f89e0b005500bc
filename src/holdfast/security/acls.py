"""ACLs: Kafka's own model, which every gateway maps its routes to.

An ACL says that a principal, from a host, may or may not do an operation on the resources of a pattern. Values; the decision is
`authorizer`'s.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from holdfast.security.principals import Principal
from holdfast.vocabulary.errors import InvalidError

CLUSTER_NAME: Final = "kafka-cluster"
WILDCARD: Final = "*"
ANY_HOST: Final = "*"
_NAME_BYTES_MAX: Final = 300  # a group's name; as a key in the store each byte may take three


class ResourceType(StrEnum):
    """What there is to protect. The cluster is one resource, `kafka-cluster`."""

    __hash__ = str.__hash__  # an enumeration's own is ten times as slow, and hashed for every request

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional-id"


class PatternType(StrEnum):
    """LITERAL names one resource, or all with `*`; PREFIXED all that begin with it."""

    LITERAL = "literal"
    PREFIXED = "prefixed"


class Operation(StrEnum):
    """What a principal does."""

    __hash__ = str.__hash__

    ALL = "all"
    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    CLUSTER_ACTION = "cluster-action"
    DESCRIBE_CONFIGS = "describe-configs"
    ALTER_CONFIGS = "alter-configs"
    IDEMPOTENT_WRITE = "idempotent-write"


class Permission(StrEnum):
    """Deny wins."""

    ALLOW = "allow"
    DENY = "deny"


# The operations of each resource type; ALL stands for those.
OPERATIONS: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}


@dataclass(frozen=True, slots=True, order=True)
class ResourcePattern:
    """The resources that an ACL is about."""

    type: ResourceType
    name: str
    pattern: PatternType = PatternType.LITERAL

    def covers(self, name: str) -> bool:
        """Whether it is about the resource of this name and its type."""
        if self.pattern is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One entry."""

    resource: ResourcePattern
    principal: Principal
    operation: Operation
    permission: Permission = Permission.ALLOW
    host: str = ANY_HOST


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Which ACLs are listed or deleted; None is any.

    `match`: with a name, also ACLs whose pattern covers it, as Kafka's MATCH.
    """

    type: ResourceType | None = None
    name: str | None = None
    pattern: PatternType | None = None
    match: bool = False
    principal: Principal | None = None
    host: str | None = None
    operation: Operation | None = None
    permission: Permission | None = None

    def accepts(self, acl: Acl) -> bool:
        """Whether the ACL is one of those."""
        return (
            self._accepts_resource(acl.resource)
            and self.principal in (None, acl.principal)
            and (self.host is None or canonical_host(self.host) == canonical_host(acl.host))
            and self.operation in (None, acl.operation)
            and self.permission in (None, acl.permission)
        )

    def _accepts_resource(self, resource: ResourcePattern) -> bool:
        if self.type not in (None, resource.type) or self.pattern not in (None, resource.pattern):
            return False
        if self.name is None:
            return True
        return resource.covers(self.name) if self.match else resource.name == self.name


def check_acl(acl: Acl) -> None:
    """Refuse what could never apply, or not be stored."""
    resource = acl.resource
    if not resource.name or not resource.name.isprintable() or len(resource.name.encode()) > _NAME_BYTES_MAX:
        raise InvalidError("resource name", resource.name[:80], f"1 to {_NAME_BYTES_MAX} bytes of printable text")
    if resource.type is ResourceType.CLUSTER and (resource.name, resource.pattern) != (
        CLUSTER_NAME,
        PatternType.LITERAL,
    ):
        raise InvalidError("resource name", resource.name, f"{CLUSTER_NAME}, literal: there is one cluster")
    allowed = (Operation.ALL, *OPERATIONS[resource.type])
    if acl.operation not in allowed:
        raise InvalidError(f"operation on a {resource.type}", str(acl.operation), "one of " + ", ".join(allowed))
    if acl.host != ANY_HOST and parse_address(acl.host) is None:
        raise InvalidError("host", acl.host[:80], "an IP address, or * for any")


def canonical_host(host: str) -> str:
    """A host in the one form that is compared: an IPv6 address has many."""
    address = parse_address(host)
    return host if address is None else str(address)


def parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An IP address, an IPv4 one that is mapped to IPv6 as itself; None: it is none."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def by_resource(acls: Iterable[Acl]) -> dict[ResourcePattern, list[Acl]]:
    """ACLs by what they are about."""
    found: dict[ResourcePattern, list[Acl]] = {}
    for acl in acls:
        found.setdefault(acl.resource, []).append(acl)
    return found
