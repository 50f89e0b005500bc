"""A token of an identity provider for a client id and its secret (OAuth's client credentials), for logins with OAUTHBEARER.

The one rule: the secret is sent over https, or to loopback, and no error shows it. A token is fetched for each login: connections
are few, and last as long as their token.
"""

import base64
import json
import ssl
import urllib.error
import urllib.request
from typing import Final
from urllib.parse import quote, urlsplit

from holdfast.vocabulary.errors import InvalidError, UnavailableError

_TIMEOUT_S: Final = 10
_BYTES_MAX: Final = 256 * 1024
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


def check_token_url(what: str, url: str) -> None:
    """Refuse a URL that a secret must not be sent to."""
    parts = urlsplit(url)
    if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)):
        raise InvalidError(what, url[:200], "https://…, or http on loopback")


def fetch_token(url: str, client_id: str, secret: str, *, ca: str = "") -> str:
    """A token. Blocks. `ca`: a file of authorities; empty: those of the system. `UnavailableError`."""
    check_token_url("token endpoint", url)
    given = base64.b64encode(f"{quote(client_id, safe='')}:{quote(secret, safe='')}".encode()).decode()
    headers = {"authorization": f"Basic {given}", "content-type": "application/x-www-form-urlencoded"}
    asked = urllib.request.Request(url, b"grant_type=client_credentials", headers)  # noqa: S310 (checked above)
    context = ssl.create_default_context(cafile=ca or None) if url.startswith("https") else None
    try:
        with urllib.request.urlopen(asked, timeout=_TIMEOUT_S, context=context) as answer:  # noqa: S310
            found = json.loads(answer.read(_BYTES_MAX))["access_token"]
    except urllib.error.HTTPError as error:
        error.close()
        raise UnavailableError("token endpoint", f"HTTP status {error.code} for client {client_id!r}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnavailableError("token endpoint", f"no token: {type(error).__name__}: {error}") from None
    return str(found)
