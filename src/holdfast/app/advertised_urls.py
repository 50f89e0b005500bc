"""Which URLs brokers tell to those who read past them: whole, or not at all.

The one rule: a URL with a secret in it is not told, not even with the secret cut out: it would lead nowhere.
"""

from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from holdfast.app.config import redacted


def advertised_url(url: str) -> str | None:
    """The URL, with its path from the root on if it names a file; None if it holds a secret, or names what others cannot reach."""
    parts = urlsplit(url)
    if redacted(url) != url or parts.scheme == "memory":
        return None
    if parts.scheme == "sqlite":  # sqlite:///a is the relative a
        path = str(Path(unquote(parts.path).removeprefix("/")).absolute())
        return parts._replace(path="/" + quote(path)).geturl().replace("sqlite:/", "sqlite:///", 1)
    if parts.scheme == "file":
        return parts._replace(path=quote(str(Path(unquote(parts.path)).absolute()))).geturl()
    return url
