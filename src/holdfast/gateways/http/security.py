"""What the gateway has for security: who callers are, users, keys and ACLs, and the audit log."""

from dataclasses import dataclass
from http import HTTPStatus

from holdfast.agent.access_control import AccessControl
from holdfast.gateways.http.access import ACCESS, RequestAccess
from holdfast.gateways.http.asgi import Scope
from holdfast.security.audit import AuditEvent, AuditLog, AuditOutcome
from holdfast.security.authenticator import Authenticator
from holdfast.security.bootstrap import BootstrapToken

REFUSED = "holdfast.refused"  # in the scope: the error that a request was refused with
_REFUSALS = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSecurity:
    """Security of one node, as the HTTP gateway uses it."""

    authenticator: Authenticator
    control: AccessControl
    audit: AuditLog
    bootstrap: BootstrapToken

    def record(self, scope: Scope, status: int, request: str) -> None:
        """Write what deserves it to the audit log: refusals, and acts of administration."""
        access: RequestAccess | None = scope.get(ACCESS)
        refused = status in _REFUSALS
        if not refused and (scope["method"] in _SAFE_METHODS or access is None or not access.rule.administers):
            return
        identity = access.identity if access is not None else None
        done = AuditOutcome.ALLOWED if status < 400 else AuditOutcome.FAILED
        client = scope.get("client") or ("", 0)
        self.audit.record(
            AuditEvent(
                gateway="http",
                principal=str(identity.principal) if identity is not None else "",
                host=identity.host if identity is not None else client[0],
                action=f"{scope['method']} {scope.get('path_template') or ''}",
                resource=str(scope["path"]),
                outcome=AuditOutcome.REFUSED if refused else done,
                request=request,
                detail=_reason(scope.get(REFUSED)),
            )
        )


def _reason(error: object) -> str:
    return str(getattr(error, "reason", error or ""))
