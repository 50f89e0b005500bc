"""Who the client of a text connection is, and what each verb needs: the one table of the gateway.

The rules: a verb without a rule is not served; importing this fails. Until `AUTH key` has succeeded nothing else is answered. What
other nodes forward was authorised by them, for their clients: only a node may send it, and a node is known by what the cluster's
secret gives it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.gateways.text.requests import Request, RequestError, Verb
from holdfast.security.acls import CLUSTER_NAME, Operation, ResourceType
from holdfast.security.audit import AuditEvent, AuditLog, AuditOutcome
from holdfast.security.authenticator import Authenticator
from holdfast.security.cluster_secret import NODE, ClusterSecret
from holdfast.security.identity import AuthenticationError, Identity, TooManyAttemptsError
from holdfast.vocabulary.errors import UnavailableError

NODE_MARK: Final = "node:"
NOT_AUTHENTICATED: Final = "authentication required: send AUTH key"


@dataclass(frozen=True, slots=True)
class VerbRule:
    """What a verb needs on its topic, or on the cluster. `node`: only another node may send it. `public`: before AUTH, too."""

    operation: Operation | None = None
    kind: ResourceType = ResourceType.TOPIC
    node: bool = False
    public: bool = False


RULES: Final[Mapping[Verb, VerbRule]] = {
    Verb.REGISTER: VerbRule(Operation.CREATE),  # or CREATE on the cluster
    Verb.PUT: VerbRule(Operation.WRITE),  # and CREATE, where the topic is missing
    Verb.GET: VerbRule(Operation.READ),
    Verb.FETCH: VerbRule(Operation.READ),
    Verb.STATE: VerbRule(Operation.DESCRIBE),
    Verb.METRICS: VerbRule(Operation.DESCRIBE, ResourceType.CLUSTER),
    Verb.AUTH: VerbRule(public=True),
    Verb.PUTS: VerbRule(node=True),
    Verb.READ: VerbRule(node=True),
    Verb.TAKE: VerbRule(node=True),
    Verb.SETTLE: VerbRule(node=True),
}


def check_rules(rules: Mapping[Verb, VerbRule]) -> None:
    """Raise `LookupError` unless each verb has a rule."""
    missing = [str(verb) for verb in Verb if verb not in rules]
    if missing:
        raise LookupError(f"no rule for {', '.join(missing)}: add it to gateways.text.security")


check_rules(RULES)


class NotAuthorizedError(RequestError):
    """The client may not do this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSecurity:
    """Security of one node, as the text gateway uses it."""

    authenticator: Authenticator
    audit: AuditLog
    secret: ClusterSecret


class ConnectionLogin:
    """The client of one connection."""

    def __init__(self, security: TextSecurity, host: str) -> None:
        self._security, self._host = security, host
        self._identity: Identity | None = None
        self.started_at_ms = security.authenticator.clock.boot_ms()

    @property
    def is_logged_in(self) -> bool:
        """Whether AUTH has succeeded."""
        return self._identity is not None

    @property
    def has_ended(self) -> bool:
        """Whether what the client has logged in with is no longer good."""
        return self._identity is not None and not self._security.authenticator.is_valid(self._identity)

    async def log_in(self, given: str) -> None:
        """`AUTH key`. `RequestError`."""
        security, identity = self._security, None
        try:
            if given.startswith(NODE_MARK):
                if security.secret.is_text_token(given.removeprefix(NODE_MARK)):
                    identity = Identity(principal=NODE, host=self._host, method="node")
            else:
                identity = await security.authenticator.api_key(given, self._host)
        except (AuthenticationError, TooManyAttemptsError):
            pass
        except UnavailableError as error:
            raise RequestError(f"unavailable: {error.reason}") from None
        if identity is None:
            self._record("AUTH", "", AuditOutcome.REFUSED)
            raise NotAuthorizedError("authentication failed")
        if self._identity is not None and self._identity.principal != identity.principal:
            raise NotAuthorizedError("the principal of a connection cannot be changed")
        self._identity = identity

    def check(self, request: Request) -> None:
        """Raise `NotAuthorizedError` unless the client may send this request."""
        rule, identity = RULES[request.verb], self._identity
        if rule.public and not request.forwarded:
            return
        if identity is None or self.has_ended:
            raise NotAuthorizedError(NOT_AUTHENTICATED)
        is_node = identity.principal == NODE
        if request.forwarded or rule.node:
            if not is_node:
                self._record(request.verb, request.topic, AuditOutcome.REFUSED)
                raise NotAuthorizedError("not authorized: only nodes forward requests")
            return
        assert rule.operation is not None
        name = request.topic if rule.kind is ResourceType.TOPIC else CLUSTER_NAME
        allowed = self._allows(rule.operation, rule.kind, name)
        if request.verb is Verb.REGISTER and not allowed:
            allowed = self._allows(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
        if request.verb is Verb.REGISTER or not allowed:
            self._record(request.verb, f"{rule.kind}:{name}", AuditOutcome.ALLOWED if allowed else AuditOutcome.REFUSED)
        if not allowed:
            raise NotAuthorizedError(
                f"not authorized: {identity.principal} may not {rule.operation} {rule.kind} {name}"
            )

    def may_create(self, topic: str) -> bool:
        """Whether a PUT may create its topic."""
        return self._allows(Operation.CREATE, ResourceType.TOPIC, topic) or self._allows(
            Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME
        )

    def _allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        return self._identity is not None and self._security.authenticator.allows(self._identity, operation, kind, name)

    def _record(self, verb: str, resource: str, outcome: AuditOutcome) -> None:
        principal = str(self._identity.principal) if self._identity is not None else ""
        self._security.audit.record(
            AuditEvent(
                gateway="text", principal=principal, host=self._host, action=verb, resource=resource, outcome=outcome
            )
        )
