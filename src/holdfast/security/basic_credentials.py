"""The credentials of `Authorization: Basic` (RFC 7617): a user and a password. Pure."""

import base64

from holdfast.security.identity import AuthenticationError


def read_basic(given: str) -> tuple[str, str]:
    """User and password of what follows `Basic`, whatever a client has put there. `AuthenticationError`: it is neither."""
    try:
        name, colon, password = base64.b64decode(given.strip(), validate=True).decode().partition(":")
    except ValueError:  # not ASCII, not base64, not UTF-8
        raise AuthenticationError("malformed Basic credentials") from None
    if not colon:
        raise AuthenticationError("malformed Basic credentials")
    return name, password
