"""Every request, before its handler: who it is from, and whether the rule of its route allows it.

Credentials are, in this order, `Authorization: Bearer` (an API key), `Authorization: Basic` (a user's password, or a key as the
password), and the cookie of a session. The one rule: a request that changes something needs, beside a cookie, the token that the
login has answered (`X-CSRF-Token`): a page of another server makes the browser send the cookie, and does not know the token.
"""

import hmac
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final

from litestar.types import ASGIApp

from holdfast.gateways.http.access import ACCESS, RequestAccess
from holdfast.gateways.http.asgi import Scope, header_value
from holdfast.gateways.http.errors import CsrfError
from holdfast.gateways.http.route_rules import RULES, NameSource
from holdfast.gateways.http.security import HttpSecurity
from holdfast.security.acls import CLUSTER_NAME
from holdfast.security.basic_credentials import read_basic
from holdfast.security.identity import AuthenticationError, Identity

SESSION_COOKIE: Final = "holdfast_session"
CSRF_HEADER: Final = b"x-csrf-token"
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Guard:
    """The guard of an application with security: a middleware of the framework, which has found the route by then.

    Not one of its guards: for each of those it copies the handler, which takes longer than everything here.
    """

    def __init__(self, security: HttpSecurity) -> None:
        self._authenticator = security.authenticator

    def __call__(self, app: ASGIApp) -> ASGIApp:
        async def guarded(scope: Any, receive: Any, send: Any) -> None:
            await self.check(scope)
            await app(scope, receive, send)

        return guarded

    async def check(self, scope: Scope) -> None:
        """Give the request its access. `AuthenticationError`, `ForbiddenError`, `CsrfError`."""
        method = scope["method"]
        if method == "OPTIONS":
            return  # Litestar's own: it names the methods
        rule = RULES[f"{method} {scope['path_template']}"]
        if rule.public:
            scope[ACCESS] = RequestAccess(self._authenticator, None, rule)
            return
        identity = await self._identity(scope, method)
        access = scope[ACCESS] = RequestAccess(self._authenticator, identity, rule)
        for need in rule.checked_first:
            name = CLUSTER_NAME if need.source is NameSource.CLUSTER else str(scope["path_params"][need.parameter])
            access.require(need.operation, need.kind, name)

    async def _identity(self, scope: Scope, method: str) -> Identity:
        host = client_host(scope)
        authenticator = self._authenticator
        header = header_value(scope, b"authorization")
        if header is not None:
            kind, _, given = header.partition(" ")
            match kind.lower():
                case "bearer":
                    return await authenticator.api_key(given.strip(), host)
                case "basic":
                    return await authenticator.password(*read_basic(given), host)
            raise AuthenticationError("unknown scheme of Authorization")
        token = _session_token(scope)
        if token is None:
            raise AuthenticationError("no credentials")
        identity = authenticator.session(token, host)
        if method not in _SAFE_METHODS:
            given = header_value(scope, CSRF_HEADER) or ""
            if not hmac.compare_digest(given.encode(), identity.csrf.encode()):
                raise CsrfError
        return identity


def client_host(scope: Mapping[str, Any]) -> str:
    """The address of the client."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _session_token(scope: Scope) -> str | None:
    """The session in the cookies."""
    header = header_value(scope, b"cookie")
    if header is None:
        return None
    try:
        found = SimpleCookie(header).get(SESSION_COOKIE)
    except CookieError:
        return None
    return found.value if found is not None else None
