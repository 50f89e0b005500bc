"""Who calls, and what the rule of the rpc lets them do.

Credentials are metadata: `authorization: Bearer` with an API key, or `Basic` with a user's password, or a key as the password. The
rules: with security on, no method runs without an identity, and a question that the rule of the rpc does not name is an error of
ours. What lasts ends when its credentials do.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.gateways.grpc.rules import Need, RpcRule
from holdfast.security.acls import CLUSTER_NAME, Operation, ResourceType
from holdfast.security.audit import AuditEvent, AuditLog, AuditOutcome
from holdfast.security.authenticator import Authenticator
from holdfast.security.basic_credentials import read_basic
from holdfast.security.identity import AuthenticationError, ForbiddenError, Identity, TooManyAttemptsError
from holdfast.vocabulary.errors import HoldfastError

_AUTHORIZATION: Final = "authorization"
_POLL_MS: Final = 500
_DECISIONS_MAX: Final = 10_000
_REFUSALS: Final = (AuthenticationError, ForbiddenError, TooManyAttemptsError)

Metadata = Iterable[tuple[str, str | bytes]]


class UnnamedNeedError(LookupError):
    """A method asked for what the rule of its rpc does not name."""

    def __init__(self, operation: Operation, kind: ResourceType) -> None:
        super().__init__(f"{operation} on a {kind} is not in the rule of this rpc: see gateways.grpc.rules")


class SomeDecisions:
    """Whether callers may do something to any resource at all. Decisions are kept until anything changes."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._directory = authenticator.directory
        self._decided: dict[tuple[Identity, Operation, ResourceType], bool] = {}
        self._decided_at = self._directory.version

    def allows(self, identity: Identity, operation: Operation, kind: ResourceType) -> bool:
        """Whether there may be a resource of this kind that the identity may do this to."""
        if self._decided_at != self._directory.version or len(self._decided) > _DECISIONS_MAX:
            self._decided.clear()
            self._decided_at = self._directory.version
        asked = (identity, operation, kind)
        decided = self._decided.get(asked)
        if decided is None:
            decided = self._decided[asked] = (
                identity.operations is None or operation in identity.operations
            ) and self._directory.authorizer.authorize_any(identity.principal, identity.host, operation, kind)
        return decided


class CallAccess:
    """The caller of one call, and the rule of its rpc. Without security everything is allowed."""

    def __init__(
        self,
        rule: RpcRule,
        authenticator: Authenticator | None = None,
        identity: Identity | None = None,
        some: SomeDecisions | None = None,
    ) -> None:
        self._rule, self._authenticator, self.identity, self._some = rule, authenticator, identity, some
        self._throughout: list[tuple[Operation, ResourceType, str]] = []

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the caller may do this, which the rule must name."""
        if not any(need.operation is operation and need.kind is kind for need in self._rule.needs):
            raise UnnamedNeedError(operation, kind)
        if self._authenticator is None:
            return True
        return self.identity is not None and self._authenticator.allows(self.identity, operation, kind, name)

    def require(self, operation: Operation, kind: ResourceType, name: str) -> None:
        """Raise `ForbiddenError` unless the caller may do this."""
        if not self.allows(operation, kind, name):
            if self.identity is None:
                raise AuthenticationError("no credentials")
            raise ForbiddenError(self.identity.principal, operation, kind, name)

    def require_throughout(self, operation: Operation, kind: ResourceType, name: str) -> None:
        """Raise `ForbiddenError` unless the caller may do this; a stream ends once that is no longer so."""
        self.require(operation, kind, name)
        self._throughout.append((operation, kind, name))

    def require_cluster_or(self, operation: Operation, kind: ResourceType, name: str) -> None:
        """The operation on the cluster, or on the resource, as in Kafka."""
        if not self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME):
            self.require(operation, kind, name)

    def check_unread(self) -> None:
        """Raise `ForbiddenError` if the caller may not do what the rule asks for, whatever the request names."""
        if self._some is None or self.identity is None:
            return
        for need in self._rule.unread:
            if need.kind is ResourceType.CLUSTER:
                self.require(need.operation, need.kind, CLUSTER_NAME)
            elif not self._some.allows(self.identity, need.operation, need.kind):
                raise ForbiddenError(self.identity.principal, need.operation, need.kind, "*")

    def check(self, request: Any) -> None:
        """Raise `ForbiddenError` unless the caller may do what the rule asks for first."""
        for need in self._rule.first:
            self.require(need.operation, need.kind, _name(need, request))

    async def ended(self, request: Any) -> None:
        """Raise once the credentials are no longer good, or no longer allow this."""
        while self._authenticator is not None and self.identity is not None:
            await self._authenticator.clock.sleep_ms(_POLL_MS)
            if not self._authenticator.is_valid(self.identity):
                raise AuthenticationError("revoked or expired during the call")
            self.check(request)
            for need in self._throughout:
                self.require(*need)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcSecurity:
    """Security of one node, as the gRPC gateway uses it."""

    authenticator: Authenticator
    audit: AuditLog
    some: SomeDecisions = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "some", SomeDecisions(self.authenticator))

    async def access(self, rule: RpcRule, metadata: Metadata, peer: str) -> CallAccess:
        """The access of a call. `AuthenticationError`, `TooManyAttemptsError`."""
        if rule.public:
            return CallAccess(rule, self.authenticator)
        identity = await self._identity(metadata, peer_host(peer))
        return CallAccess(rule, self.authenticator, identity, self.some)

    async def _identity(self, metadata: Metadata, host: str) -> Identity:
        given = [str(value) for name, value in metadata if name == _AUTHORIZATION]
        if len(given) != 1:
            raise AuthenticationError("no credentials" if not given else "several credentials")
        kind, _, secret = given[0].partition(" ")
        match kind.lower():
            case "bearer":
                return await self.authenticator.api_key(secret.strip(), host)
            case "basic":
                return await self.authenticator.password(*read_basic(secret), host)
        raise AuthenticationError("unknown scheme of authorization")

    def record(
        self, rpc: str, rule: RpcRule, access: CallAccess | None, peer: str, request: Any, error: Exception | None
    ) -> None:
        """Write what deserves it to the audit log: refusals, and acts of administration."""
        refused = isinstance(error, _REFUSALS)
        if not refused and not rule.administers:
            return
        identity = None if access is None else access.identity
        failed = AuditOutcome.FAILED if error is not None else AuditOutcome.ALLOWED
        self.audit.record(
            AuditEvent(
                gateway="grpc",
                principal="" if identity is None else str(identity.principal),
                host=peer_host(peer),
                action=rpc,
                resource=next((_name(need, request) for need in rule.needs if need.field), ""),
                outcome=AuditOutcome.REFUSED if refused else failed,
                detail=str(getattr(error, "reason", error or "")) if isinstance(error, HoldfastError) else "",
            )
        )


def peer_host(peer: str) -> str:
    """The address in a peer as gRPC names it: `ipv4:127.0.0.1:54321`, `ipv6:%5B::1%5D:54321`."""
    host = peer.partition(":")[2].rpartition(":")[0]
    return host.replace("%5B", "").replace("%5D", "").strip("[]")


def _name(need: Need, request: Any) -> str:
    return CLUSTER_NAME if need.kind is ResourceType.CLUSTER else str(getattr(request, need.field, ""))
