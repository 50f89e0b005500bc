"""Texts without the secrets in them, for people, logs and errors.

The one rule: what cannot be read as a URL is shown without anything that stands before an @.
"""

import re
from typing import Final
from urllib.parse import SplitResult, unquote_plus, urlsplit

REDACTED: Final = "***"
URLS: Final = ("dsn", "url", "catalog_uri", "warehouse")
"""Fields of stored shapes that may hold a secret inside; `password` is one itself."""

_SECRET_OPTION: Final = re.compile(r"secret|password|passwd|token|credential|signature|key", re.IGNORECASE)
_USER_INFO: Final = re.compile("^([a-zA-Z][a-zA-Z0-9+.-]*://)?.*@", re.DOTALL)


def redacted_url(text: str) -> str:
    """A URL without its password and without options that are secrets."""
    parts = split(text)
    if parts is None:
        return _USER_INFO.sub(lambda found: f"{found[1] or ''}{REDACTED}@", text)
    place = parts.netloc
    if parts.password:
        user = place.rpartition("@")[0].partition(":")[0]
        place = f"{user}:{REDACTED}@{place.rpartition('@')[2]}"
    return written(parts, place, {name: REDACTED for name, _ in secret_options(parts)})


def split(text: str) -> SplitResult | None:
    """A URL with a host, taken apart; None if it cannot be."""
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return None
    # In http://user:12/3@host the password was written as it is, and everything behind its / is taken for the path.
    cut = "@" in parts.path and ":" in parts.netloc
    return parts if parts.netloc and not cut else None


def secret_options(parts: SplitResult) -> list[tuple[str, str]]:
    """Options of a URL that nobody is shown, by name, each as it is written."""
    pieces = (piece.partition("=") for piece in parts.query.split("&"))
    named = ((unquote_plus(name), value) for name, _, value in pieces)
    return [(name, value) for name, value in named if value and _SECRET_OPTION.search(name)]


def written(parts: SplitResult, place: str, options: dict[str, str]) -> str:
    """The URL with another user and host and with some options changed; everything else stays as it is written."""
    pieces = []
    for piece in parts.query.split("&"):
        name, equals, _ = piece.partition("=")
        changed = options.get(unquote_plus(name))
        pieces.append(piece if changed is None else f"{name}{equals}{changed}")
    return parts._replace(netloc=place, query="&".join(pieces)).geturl()
