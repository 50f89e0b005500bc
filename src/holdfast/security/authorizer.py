"""The one decision: may this principal, from this host, do this to that?

The one rule: nothing is allowed that no ACL allows, and what one denies is denied, whatever others allow. Only super users need no
ACL. Pure: an authorizer is a value over a set of ACLs; a changed set is another authorizer.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from holdfast.security.acls import (
    ANY_HOST,
    OPERATIONS,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    by_resource,
)
from holdfast.security.principals import EVERYBODY, Principal

# Who may do one of these may also look: the operation → those that imply it. Denials imply nothing.
_IMPLIED_BY: Final = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
_NONE: Final[frozenset[Operation]] = frozenset()


class Authorizer:
    """A set of ACLs, indexed by what they are about."""

    def __init__(self, acls: Iterable[Acl] = (), super_users: Collection[Principal] = ()) -> None:
        self._super_users = frozenset(super_users)
        self._by_resource = by_resource(acls)
        # An ACL for a prefix is found by the beginnings of a name: only lengths that some prefix has are looked up.
        lengths: dict[ResourceType, set[int]] = {}
        for resource in self._by_resource:
            if resource.pattern is PatternType.PREFIXED:
                lengths.setdefault(resource.type, set()).add(len(resource.name))
        self._prefix_lengths = {kind: sorted(found) for kind, found in lengths.items()}

    def is_super_user(self, principal: Principal) -> bool:
        """Whether the principal needs no ACL."""
        return principal in self._super_users

    def authorize(self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the operation on the resource is allowed."""
        if principal in self._super_users:
            return True
        allowed = False
        for acl in self._about(kind, name):
            if not _concerns(acl, principal, host):
                continue
            if acl.permission is Permission.DENY:
                if acl.operation in (operation, Operation.ALL):
                    return False
            else:
                allowed = allowed or _allows(acl, operation)
        return allowed

    def authorize_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Whether there may be a resource of this type that the operation is allowed on.

        An allowed pattern counts unless a denied one covers all of it.
        """
        if principal in self._super_users:
            return True
        denied: list[ResourcePattern] = []
        allowed: list[ResourcePattern] = []
        for resource, acls in self._by_resource.items():
            if resource.type is not kind:
                continue
            mine = [acl for acl in acls if _concerns(acl, principal, host)]
            if any(acl.permission is Permission.DENY and acl.operation in (operation, Operation.ALL) for acl in mine):
                denied.append(resource)
            elif any(acl.permission is Permission.ALLOW and _allows(acl, operation) for acl in mine):
                allowed.append(resource)
        return any(not any(_contains(no, yes) for no in denied) for yes in allowed)

    def authorized_operations(
        self, principal: Principal, host: str, kind: ResourceType, name: str
    ) -> tuple[Operation, ...]:
        """All that the principal may do to the resource."""
        return tuple(
            operation for operation in OPERATIONS[kind] if self.authorize(principal, host, operation, kind, name)
        )

    def _about(self, kind: ResourceType, name: str) -> Iterator[Acl]:
        """The ACLs about a resource."""
        found = self._by_resource
        yield from found.get(ResourcePattern(kind, name), ())
        if name != WILDCARD:
            yield from found.get(ResourcePattern(kind, WILDCARD), ())
        for length in self._prefix_lengths.get(kind, ()):
            if length > len(name):
                break
            yield from found.get(ResourcePattern(kind, name[:length], PatternType.PREFIXED), ())


def _concerns(acl: Acl, principal: Principal, host: str) -> bool:
    return acl.principal in (principal, EVERYBODY) and acl.host in (host, ANY_HOST)


def _allows(acl: Acl, operation: Operation) -> bool:
    return acl.operation in (operation, Operation.ALL) or acl.operation in _IMPLIED_BY.get(operation, _NONE)


def _contains(outer: ResourcePattern, inner: ResourcePattern) -> bool:
    """Whether every resource of `inner` is one of `outer`."""
    if outer.pattern is PatternType.PREFIXED:
        # `*` as a literal is everything, not a name that begins with the prefix.
        everything = inner.pattern is PatternType.LITERAL and inner.name == WILDCARD
        return not everything and inner.name.startswith(outer.name)
    if outer.name == WILDCARD:
        return True
    return inner.pattern is PatternType.LITERAL and inner.name == outer.name
