"""URLs of store and objects, for others: what brokers advertise to clients that read segments themselves, and what people see.

The one rule: a URL with a secret is not advertised at all; without its secret it would lead nowhere.
"""

from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from holdfast.vocabulary.redaction import redacted


def advertised_url(url: str) -> str | None:
    """The URL, its path made absolute; None if it holds a secret or names this process's memory."""
    parts = urlsplit(url)
    if redacted(url) != url or parts.scheme == "memory":
        return None
    if parts.scheme == "sqlite":  # sqlite:///a is the relative a
        path = str(Path(unquote(parts.path).removeprefix("/")).absolute())
        return parts._replace(path="/" + quote(path)).geturl().replace("sqlite:/", "sqlite:///", 1)
    if parts.scheme == "file":
        return parts._replace(path=quote(str(Path(unquote(parts.path)).absolute()))).geturl()
    return url


def located(url: str) -> str:
    """The URL without secrets, for people; a relative path is followed by the absolute one."""
    shown, absolute = redacted(url), advertised_url(url)
    if absolute is None or absolute == url or urlsplit(url).scheme not in ("sqlite", "file"):
        return shown
    path = unquote(urlsplit(absolute).path)
    return f"{shown} ({path.removeprefix('/') if urlsplit(url).scheme == 'sqlite' else path})"
