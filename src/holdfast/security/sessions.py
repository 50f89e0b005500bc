"""Sessions of people in a browser: short tokens (JWT, HS256) that every node can check.

The one rule: a session is good for no longer than its password. It names the version of the user's credentials and ends with it, or
after its lifetime. Pure, but for PyJWT: it looks at no clock of its own.
"""

from dataclasses import dataclass
from typing import Any, Final

from holdfast.security.identity import AuthenticationError

_ALGORITHM: Final = "HS256"
_ISSUER: Final = "holdfast"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginSession:
    """A session. `version`: of the user's credentials. `csrf`: what requests that change something must carry as well."""

    user: str
    version: int
    csrf: str
    ends_at_ms: int


def encode_session(session: LoginSession, key: str) -> str:
    """The token."""
    import jwt

    claims = {
        "iss": _ISSUER,
        "sub": session.user,
        "ver": session.version,
        "csrf": session.csrf,
        "end": session.ends_at_ms,
    }
    return jwt.encode(claims, key, algorithm=_ALGORITHM)


def decode_session(token: str, key: str, *, now_ms: int) -> LoginSession:
    """The session of a token that is signed by this key and has not ended. `AuthenticationError`."""
    import jwt

    try:
        claims: dict[str, Any] = jwt.decode(
            token, key, algorithms=[_ALGORITHM], issuer=_ISSUER, options={"require": ["sub", "ver", "csrf", "end"]}
        )
        session = LoginSession(
            user=str(claims["sub"]),
            version=int(claims["ver"]),
            csrf=str(claims["csrf"]),
            ends_at_ms=int(claims["end"]),
        )
    except (jwt.InvalidTokenError, ValueError, TypeError):
        raise AuthenticationError("invalid session token") from None
    if now_ms >= session.ends_at_ms:
        raise AuthenticationError(f"the session of {session.user} has expired")
    return session
