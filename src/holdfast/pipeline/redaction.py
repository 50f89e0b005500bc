"""Texts without the secrets in them, for people, logs and errors.

The one rule: what cannot be read as a URL is shown without anything that stands before an @.
"""

import re
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, urlsplit

REDACTED: Final = "***"
URLS: Final = ("dsn", "url", "catalog_uri", "warehouse")
"""Fields of stored shapes that may hold a secret inside; `password` is one itself."""

_SECRET_OPTION: Final = re.compile(r"secret|password|passwd|token|credential|signature|key", re.IGNORECASE)
_USER_INFO: Final = re.compile("//.*@", re.DOTALL)


def redacted_url(text: str) -> str:
    """A URL without its password and without options that are secrets."""
    parts = split(text)
    if parts is None:
        return _USER_INFO.sub(f"//{REDACTED}@", text)
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
    """Options of a URL that nobody is shown."""
    return [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if _SECRET_OPTION.search(pair[0])]


def written(parts: SplitResult, place: str, options: dict[str, str]) -> str:
    """The URL with another user and host, and with some options changed."""
    if not options:
        return parts._replace(netloc=place).geturl()
    pairs = [(name, options.get(name, value)) for name, value in parse_qsl(parts.query, keep_blank_values=True)]
    query = "&".join(f"{quote(name, safe='')}={quote(value, safe='*')}" for name, value in pairs)
    return parts._replace(netloc=place, query=query).geturl()
