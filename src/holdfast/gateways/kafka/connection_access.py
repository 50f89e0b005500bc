"""What the client of a connection may do: decisions by its principal, kept for as long as no ACL changes.

The one rule: a decision that was kept is the one that would be made now. A change of any ACL or user forgets them all. So a request
costs a look-up per topic, and nothing per record.
"""

from collections.abc import Iterable
from typing import Final

from holdfast.gateways.kafka.api_rules import ApiRule
from holdfast.gateways.kafka.login import Login
from holdfast.kafka.enums import AclOperation, operation_bits
from holdfast.security.acls import OPERATIONS, Operation, ResourceType
from holdfast.security.audit import AuditEvent, AuditOutcome

_DECISIONS_MAX: Final = 20_000
_NAME_CHARS_MAX: Final = (
    300  # of a decision that is kept: no resource that exists has a longer name, but whoever logs in may ask
)

ADMINISTRATION: Final = frozenset(
    {Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS, Operation.CLUSTER_ACTION}
)
# A topic's own CREATE is asked for next; an idempotent producer needs WRITE on some topic instead.
_ONE_OF_TWO: Final = frozenset(
    {(Operation.CREATE, ResourceType.CLUSTER), (Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)}
)


class ConnectionAccess:
    """The decisions about one connection. Its principal is the login's, and never changes once it is known."""

    def __init__(self, login: Login) -> None:
        self.login = login
        self._control = login.security.control
        self._version = -1
        self._decisions: dict[tuple[Operation, ResourceType, str], bool] = {}

    def allows(self, rule: ApiRule, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the client may do this, which the rule of its request must name. A decision that is kept was named before."""
        if self._version != self._control.version or len(self._decisions) > _DECISIONS_MAX:
            self._decisions.clear()
            self._version = self._control.version
        asked = (operation, kind, name)
        decided = self._decisions.get(asked)
        if decided is None:
            if (operation, kind) not in rule.needs:
                raise UnnamedNeedError(operation, kind)
            decided = self._decide(operation, kind, name)
            if len(name) <= _NAME_CHARS_MAX:
                self._decisions[asked] = decided
        return decided

    def allows_any(self, rule: ApiRule, operation: Operation, kind: ResourceType) -> bool:
        """Whether there may be a resource of this type that the client may do this to."""
        if (operation, kind) not in rule.needs:
            raise UnnamedNeedError(operation, kind)
        login = self.login
        assert login.principal is not None
        return self._is_within_scopes(operation) and self._control.authorizer.authorize_any(
            login.principal, login.host, operation, kind
        )

    def operations(self, kind: ResourceType, name: str) -> int:
        """The `authorized_operations` field of a resource."""
        login = self.login
        assert login.principal is not None
        found = self._control.authorizer.authorized_operations(login.principal, login.host, kind, name)
        return _bits(filter(self._is_within_scopes, found))

    def _is_within_scopes(self, operation: Operation) -> bool:
        """Whether the client's API key, if it has one, may be used for this."""
        identity = self.login.identity
        return identity is None or identity.operations is None or operation in identity.operations

    def record(
        self, api: str, request: str, operation: Operation, kind: ResourceType, name: str, allowed: bool
    ) -> None:
        """Write what deserves it to the audit log. Not what a listing leaves out, nor the one of two needs that is not met."""
        if not allowed and (operation is Operation.DESCRIBE or (operation, kind) in _ONE_OF_TWO):
            return
        login = self.login
        login.security.audit.record(
            AuditEvent(
                gateway="kafka",
                principal=str(login.principal or ""),
                host=login.host,
                action=f"{api} {operation}",
                resource=f"{kind}:{name}",
                outcome=AuditOutcome.ALLOWED if allowed else AuditOutcome.REFUSED,
                request=request,
            )
        )

    def _decide(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        login = self.login
        if login.principal is None or not self._is_within_scopes(operation):
            return False
        return self._control.authorizer.authorize(login.principal, login.host, operation, kind, name)


class UnnamedNeedError(LookupError):
    """A handler asked for what the rule of its API does not name."""

    def __init__(self, operation: Operation, kind: ResourceType) -> None:
        super().__init__(f"{operation} on a {kind} is not in the rule of this API: see gateways.kafka.api_rules")


def _bits(operations: Iterable[Operation]) -> int:
    return operation_bits(AclOperation[operation.name] for operation in operations)


ALL_OPERATIONS: Final = {kind: _bits(operations) for kind, operations in OPERATIONS.items()}
