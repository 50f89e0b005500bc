"""Logins of people: a session in a cookie for a password, its end, and the first administrator."""

import msgspec
from litestar import Response, get, post
from litestar.params import JSONBody

from holdfast.gateways.http.access import access_of
from holdfast.gateways.http.guard import SESSION_COOKIE, client_host
from holdfast.gateways.http.routes.bodies import RequestBody
from holdfast.gateways.http.routes.dependencies import HttpRequest
from holdfast.gateways.http.routes.security_dependencies import SecurityDependency, new_credentials, secured
from holdfast.security.api_keys import MARK
from holdfast.security.identity import AuthenticationError, Identity


class LoginRequest(RequestBody, frozen=True):
    """A user and the password."""

    user: str
    password: str


class BootstrapRequest(RequestBody, frozen=True):
    """The token that the first start has printed, and the administrator to make."""

    token: str
    user: str
    password: str


class SessionDescription(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who is logged in, and for how long. Requests that change something carry `csrfToken` as `X-CSRF-Token`."""

    principal: str
    method: str
    csrf_token: str
    expires_at_ms: int

    @classmethod
    def of(cls, identity: Identity) -> "SessionDescription":
        """The description of an identity."""
        return cls(
            principal=str(identity.principal),
            method=identity.method,
            csrf_token=identity.csrf,
            expires_at_ms=identity.ends_at_ms,
        )


@post("/api/v1/login", tags=["security"], summary="Log in", status_code=200)
async def login(
    security: SecurityDependency, request: HttpRequest, data: JSONBody[LoginRequest]
) -> Response[SessionDescription]:
    """Open a session for a password; it is in the cookie. 429 after too many failures of a user or an address."""
    authenticator = secured(security).authenticator
    if data.password.startswith(MARK):
        raise AuthenticationError("a key opens no session")
    identity = await authenticator.password(data.user, data.password, client_host(request.scope))
    token, session = authenticator.open_session(identity)
    seconds = authenticator.settings.session_ms // 1_000
    return Response(SessionDescription.of(session), headers={"set-cookie": _cookie(request, token, seconds)})


@post("/api/v1/logout", tags=["security"], summary="Log out", status_code=204)
async def logout(security: SecurityDependency, request: HttpRequest) -> Response[None]:
    """Remove the cookie of the session."""
    secured(security)
    return Response(None, headers={"set-cookie": _cookie(request, "", 0)})


@get("/api/v1/session", tags=["security"], summary="Who is logged in")
async def get_session(security: SecurityDependency, request: HttpRequest) -> SessionDescription:
    """The caller of this request."""
    secured(security)
    access = access_of(request)
    if access is None or access.identity is None:
        raise AuthenticationError("no credentials")
    return SessionDescription.of(access.identity)


@post("/api/v1/bootstrap", tags=["security"], summary="Make the first administrator", status_code=204)
async def bootstrap(security: SecurityDependency, data: JSONBody[BootstrapRequest]) -> None:
    """Make a user who may do everything, with the token that the first start has printed. It is good for one use."""
    service = secured(security)
    if service.control.has_administrator:  # one who was made at the store: the token that was printed is void
        raise AuthenticationError("there is an administrator already")
    await service.bootstrap.check(data.token)  # before anything slow is done for somebody unknown
    version = await service.bootstrap.use(data.token, data.user, await new_credentials(security, data.password))
    await service.control.users_seen(version)
    await service.control.acls_seen(version)


def _cookie(request: HttpRequest, token: str, seconds: int) -> str:
    secure = "; Secure" if request.scope["scheme"] == "https" else ""
    return f"{SESSION_COOKIE}={token}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict{secure}"


HANDLERS = (login, logout, get_session, bootstrap)
