"""Which requests are accepted. The one rule: a web page in a user's browser does not act for that user.

Every page a user opens can reach a server on loopback. Two things distinguish such a page from a program: a request to a rebound
DNS name has that name in `Host`, and a write from a page of another server has that server in `Origin` or is marked by
`Sec-Fetch-Site`. Responses have no CORS headers, so no other origin can read them.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from holdfast.gateways.http.problems import (
    FOREIGN_ORIGIN,
    MALFORMED,
    MISDIRECTED,
    UNSUPPORTED_MEDIA_TYPE,
    Fault,
    Problem,
    problem,
)
from holdfast.gateways.http.settings import HttpSettings, comma_separated

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_MEDIA_TYPES: Final = frozenset({"application/json", "application/x-ndjson", "application/octet-stream"})
_NEVER_PUBLIC: Final = (".local", ".internal", ".home.arpa")  # reserved: RFC 6762, ICANN, RFC 8375
_SAME_SITE: Final = frozenset({"same-origin", "none"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPolicy:
    """Accepted host names, and origins that may write.

    `loopback`: only this machine reaches the server. `listed`: the operator has listed the names, so no others are accepted.
    """

    loopback: bool
    listed: bool
    hosts: frozenset[str]
    origins: frozenset[str]

    @classmethod
    def of(cls, settings: HttpSettings, *, loopback: bool, own: Iterable[str] = ()) -> "HostPolicy":
        """The policy of the settings. `own`: names of this node."""
        hosts = comma_separated(settings.hosts) | {name.lower().rstrip(".") for name in own if name}
        origins = comma_separated(settings.origins)
        return cls(loopback=loopback, listed=bool(settings.hosts), hosts=hosts, origins=origins)

    def refusal(self, method: str, headers: Mapping[str, str]) -> Problem | None:
        """Why a request is rejected; None if it is accepted."""
        host = headers.get("host", "")
        if not self._is_allowed_host(host):
            beyond = "a loopback address" if self.loopback else "an address, a name without dots"
            allowed = f"localhost, {beyond}, or a name in the setting http.hosts"
            return problem(
                MISDIRECTED,
                f"this server is not {host!r}",
                Fault(detail="unknown host name", header="host", allowed=allowed),
            )
        if method in _SAFE_METHODS:
            return None
        return self._foreign_origin_problem(host, headers) or _media_type_problem(headers)

    def _is_allowed_host(self, host: str) -> bool:
        name = _host_name(host)
        if not name:
            return False
        if name in self.hosts or _is_loopback(name):
            return True
        return not self.loopback and not self.listed and _is_never_public(name)

    def _foreign_origin_problem(self, host: str, headers: Mapping[str, str]) -> Problem | None:
        origin = headers.get("origin")
        if origin is None:
            site = headers.get("sec-fetch-site", "none").lower()
            if site in _SAME_SITE:
                return None
            origin = f"a {site} page"
        elif origin.lower() in self.origins or _origin_host(origin) == host.lower():
            return None
        allowed = f"pages of {host}, and origins in the setting http.origins"
        return problem(
            FOREIGN_ORIGIN,
            f"{origin} may not write here",
            Fault(detail="cross-origin write", header="origin", allowed=allowed),
        )


def _media_type_problem(headers: Mapping[str, str]) -> Problem | None:
    """A body of a type that a form on any page could send is rejected."""
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return None
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media in _MEDIA_TYPES or (media.startswith("application/") and media.endswith("+json")):
        return None
    fault = Fault(detail=f"{media or 'none'} is not JSON", header="content-type", allowed="application/json")
    return problem(UNSUPPORTED_MEDIA_TYPE, f"invalid content-type {media!r}: must be application/json", fault)


def duplicate_header_problem(names: list[str]) -> Problem | None:
    """Headers that a decision depends on must occur once."""
    for name in ("host", "origin", "content-type", "if-match", "idempotency-key", "authorization", "cookie"):
        if names.count(name) > 1:
            return problem(
                MALFORMED, f"{name} occurs more than once", Fault(detail="occurs more than once", header=name)
            )
    return None


def _host_name(host: str) -> str:
    """The name in a `Host` header, without its port; empty if it is invalid."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return ""
    if parts.netloc != host or parts.username is not None or parts.password is not None:
        return ""
    return (parts.hostname or "").lower().rstrip(".")


def _origin_host(origin: str) -> str:
    parts = urlsplit(origin)
    return parts.netloc.lower() if parts.scheme in ("http", "https") else ""


def _is_never_public(name: str) -> bool:
    """Whether no stranger can make this name lead here: an address, or a name that the public DNS cannot hold."""
    if "." not in name or name.endswith(_NEVER_PUBLIC):
        return True
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


def _is_loopback(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False
