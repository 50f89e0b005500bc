"""Secrets redacted from URLs, for display, logs and errors. A reference to a secret is none, and stays.

The one rule: of a text that is no URL, everything before an @ is redacted.
"""

import re
from typing import Final
from urllib.parse import SplitResult, unquote_plus, urlsplit

from holdfast.pipeline.model.secret_references import is_mask, is_reference, masked, unmasked

REDACTED: Final = "***"
URLS: Final = ("dsn", "url", "catalog_uri", "warehouse")
"""Fields of stored parts whose value may contain a secret; `password` is one itself."""

_SECRET_OPTION: Final = re.compile(r"secret|password|passwd|token|credential|signature|key", re.IGNORECASE)
_USER_INFO: Final = re.compile("^([a-zA-Z][a-zA-Z0-9+.-]*://)?.*@", re.DOTALL)


def redacted_url(text: str) -> str:
    """A URL without its password and without options that are secrets."""
    shown, references = masked(text)
    parts = split(shown)
    if parts is None:
        return _USER_INFO.sub(lambda found: f"{found[1] or ''}{REDACTED}@", text)
    netloc = parts.netloc
    if parts.password and not is_mask(parts.password):
        user = netloc.rpartition("@")[0].partition(":")[0]
        netloc = f"{user}:{REDACTED}@{netloc.rpartition('@')[2]}"
    hidden = {name: REDACTED for name, value in secret_options(parts) if not is_mask(value)}
    return unmasked(unsplit(parts, netloc, hidden), references)


def redacted_options(options: dict[str, str]) -> dict[str, str]:
    """Options without those that are secrets by their names."""
    hidden = {name for name, value in options.items() if value and is_secret(name) and not is_reference(value)}
    return {name: REDACTED if name in hidden else value for name, value in options.items()}


def is_secret(name: str) -> bool:
    """Whether an option of this name is a secret."""
    return _SECRET_OPTION.search(name) is not None


def split(text: str) -> SplitResult | None:
    """The components of a URL with a host; None if it is none."""
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return None
    # In http://user:12/3@host the password is not percent-encoded, and urlsplit takes everything after its / for the path.
    cut = "@" in parts.path and ":" in parts.netloc
    return parts if parts.netloc and not cut else None


def secret_options(parts: SplitResult) -> list[tuple[str, str]]:
    """The secret options of a URL, by name, as they are written."""
    pieces = (piece.partition("=") for piece in parts.query.split("&"))
    named = ((unquote_plus(name), value) for name, _, value in pieces)
    return [(name, value) for name, value in named if value and _SECRET_OPTION.search(name)]


def unsplit(parts: SplitResult, netloc: str, options: dict[str, str]) -> str:
    """The URL with another netloc and some options changed; everything else stays as it is written."""
    pieces = []
    for piece in parts.query.split("&"):
        name, equals, _ = piece.partition("=")
        changed = options.get(unquote_plus(name))
        pieces.append(piece if changed is None else f"{name}{equals}{changed}")
    return parts._replace(netloc=netloc, query="&".join(pieces)).geturl()
