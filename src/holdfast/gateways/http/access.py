"""What the caller of a request may do: asked by the guard before a handler, and by handlers for what query and body name.

The one rule: with security on, no handler runs without an access, and a question that the rule of the route does not name is an
error of ours. Without security there is none, and nothing is asked.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from holdfast.gateways.http.route_rules import RouteRule
from holdfast.security.acls import CLUSTER_NAME, Operation, ResourceType
from holdfast.security.authenticator import Authenticator
from holdfast.security.identity import AuthenticationError, ForbiddenError, Identity

if TYPE_CHECKING:
    from litestar.connection import ASGIConnection

T = TypeVar("T")

ACCESS: Final = "holdfast.access"  # in the scope
_POLL_MS: Final = 500


class UnnamedNeedError(LookupError):
    """A handler asked for what the rule of its route does not name."""

    def __init__(self, operation: Operation, kind: ResourceType) -> None:
        super().__init__(f"{operation} on a {kind} is not in the rule of this route: see gateways.http.route_rules")


@dataclass(frozen=True, slots=True)
class RequestAccess:
    """The caller of one request, and the rule of its route. `identity` is None for a public route."""

    authenticator: Authenticator
    identity: Identity | None
    rule: RouteRule

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the caller may do this, which the rule of the route must name."""
        if not self.rule.names(operation, kind):
            raise UnnamedNeedError(operation, kind)
        return self.identity is not None and self.authenticator.allows(self.identity, operation, kind, name)

    def require(self, operation: Operation, kind: ResourceType, name: str) -> None:
        """Raise `ForbiddenError` unless the caller may do this."""
        if not self.allows(operation, kind, name):
            if self.identity is None:
                raise AuthenticationError("no credentials")
            raise ForbiddenError(self.identity.principal, operation, kind, name)

    def is_valid(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the credentials are still good, and still allow this."""
        return (
            self.identity is not None
            and self.authenticator.is_valid(self.identity)
            and self.allows(operation, kind, name)
        )

    async def ended(self, operation: Operation, kind: ResourceType, name: str) -> None:
        """Return once the caller may no longer do this: what lasts, ends with it."""
        while self.is_valid(operation, kind, name):
            await self.authenticator.clock.sleep_ms(_POLL_MS)


def access_of(request: "ASGIConnection[Any, Any, Any, Any]") -> RequestAccess | None:
    """The access of a request; None: security is off."""
    return cast("RequestAccess | None", request.scope.get(ACCESS))


def require(request: "ASGIConnection[Any, Any, Any, Any]", operation: Operation, kind: ResourceType, name: str) -> None:
    """Raise `ForbiddenError` unless the caller of the request may do this."""
    access = access_of(request)
    if access is not None:
        access.require(operation, kind, name)


def require_create_topic(request: "ASGIConnection[Any, Any, Any, Any]", name: str) -> None:
    """CREATE on the cluster, or on the topic, as in Kafka."""
    access = access_of(request)
    if access is not None and not access.allows(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
        access.require(Operation.CREATE, ResourceType.TOPIC, name)


def visible(
    request: "ASGIConnection[Any, Any, Any, Any]", kind: ResourceType, found: Iterable[T], name: Callable[[T], str]
) -> list[T]:
    """Those that the caller may describe."""
    access = access_of(request)
    return [each for each in found if access is None or access.allows(Operation.DESCRIBE, kind, name(each))]
