"""Who a request was authenticated as, and why one was not: the same for every gateway."""

from dataclasses import dataclass

from holdfast.security.acls import Operation, ResourceType
from holdfast.security.principals import Principal
from holdfast.vocabulary.errors import HoldfastError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Identity:
    """Somebody, from a host. Each is itself alone, so that decisions about one are found fast.

    `operations`: what the credential is good for at most; None: whatever the ACLs allow. `credential`: what was proven (a stored
    key, a SCRAM credential); the identity ends when it is no longer stored. `ends_at_ms`: wall clock; 0: never.
    """

    principal: Principal
    host: str
    method: str
    credential: object = None
    operations: frozenset[Operation] | None = None
    ends_at_ms: int = 0
    csrf: str = ""
    """Of a session: what requests that change something must carry, beside the cookie."""


class AuthenticationError(HoldfastError):
    """Nobody has proven who this is. Give credentials that are valid. `reason` is for the log: callers learn less."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return "authentication failed: the credentials are missing, wrong, expired or revoked"


class TooManyAttemptsError(HoldfastError):
    """Too many logins have failed. Try again later."""

    def __init__(self, retry_after_ms: int) -> None:
        super().__init__(retry_after_ms)
        self.retry_after_ms = retry_after_ms

    def __str__(self) -> str:
        return f"too many failed logins: try again in {-(-self.retry_after_ms // 1_000)} s"


class ForbiddenError(HoldfastError):
    """The principal may not do this. Ask an administrator for the permission that is named."""

    def __init__(self, principal: Principal, operation: Operation, kind: ResourceType, name: str) -> None:
        super().__init__(principal, operation, kind, name)
        self.principal, self.operation, self.kind, self.name = principal, operation, kind, name

    def __str__(self) -> str:
        return f"{self.principal} may not {self.operation} {self.kind} {self.name[:300]!r}"
