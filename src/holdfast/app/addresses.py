"""Where a face listens, and what others are told. The one rule: without protection, nothing listens beyond this machine unasked.

`0.0.0.0` and `::` are places to listen, never places to connect to: a node that listens there tells others its host's name.
"""

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from holdfast.vocabulary.errors import InvalidError

_FORM: Final = "HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092; port 0 picks a free one"
_HTTP_FORM: Final = "HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080; port 0 picks a free one; off does without"
_ADVERTISED_FORM: Final = "HOST, HOST:PORT or :PORT, as clients reach this node"
_PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, what: str, text: str) -> "Address":
        """`HOST:PORT`."""
        host, port = _split(text)
        if not host or port is None:
            raise InvalidError(what, text, _FORM)
        return cls(host, port)


def http_address(what: str, text: str, *, asked: bool) -> Address | None:
    """Where HTTP is spoken; None if it is switched off, or if nobody asked for it and what it needs is not installed."""
    if text.lower() in ("off", "none", "no", "false"):
        return None
    try:
        address = Address.parse(what, text)
    except InvalidError as error:
        raise InvalidError(what, error.given, _HTTP_FORM) from None
    if all(find_spec(name) for name in ("litestar", "uvicorn")):
        return address
    if asked:
        raise InvalidError(what, text, "off, or anything after pip install 'holdfast[http]'")
    return None


@dataclass(frozen=True, slots=True)
class AdvertisedAddress:
    """What clients are told; what is missing is taken from where the face listens."""

    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        if not self.port:
            return self.host
        return str(Address(self.host, self.port))

    @classmethod
    def parse(cls, what: str, text: str) -> "AdvertisedAddress":
        """`HOST`, `HOST:PORT`, `:PORT` or nothing."""
        host, port = _split(text)
        if not _is_advertisable(host) or (text and not host and not port):
            raise InvalidError(what, text, _ADVERTISED_FORM)
        return cls(host, port or 0)

    def resolve(self, bound: Address, *, host_name: str) -> Address:
        """The address to tell, for a face that listens at `bound`."""
        host = self.host or (host_name if is_wildcard(bound.host) else bound.host)
        return Address(host, self.port or bound.port)


def _split(text: str) -> tuple[str, int | None]:
    """(host, port) of a text; an unreadable one has neither."""
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port:
        host, port = text, ""
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return "", None  # an IPv6 address without brackets: where would its port begin?
    if port and not (port.isascii() and port.isdecimal() and int(port) <= _PORT_MAX):
        return "", None
    return host, int(port) if port else None


def _is_advertisable(host: str) -> bool:
    return not is_wildcard(host) and not any(char.isspace() or char in "/@?#" for char in host)


def is_wildcard(host: str) -> bool:
    """Whether this is "every address of this machine"."""
    return host in ("0.0.0.0", "::")  # noqa: S104 - compared with, not listened on


def check_exposure(at: Address, bound: Sequence[socket.socket], *, insecure: bool) -> bool:
    """Whether somebody beyond this machine can reach the sockets; `InvalidError` if so and nobody has said that it may be."""
    reachable = not all(ipaddress.ip_address(each.getsockname()[0].partition("%")[0]).is_loopback for each in bound)
    if reachable and not insecure:
        raise InvalidError(
            "listening address",
            str(at),
            "a loopback address, because nothing protects this server yet: whoever reaches it can read and delete "
            "everything. Listen on 127.0.0.1, or give --insecure if only machines you trust can reach it",
        )
    return reachable


def bound_address(bound: Sequence[socket.socket]) -> Address:
    """Where the sockets of one face really are. Of a name that is both, IPv4's: it works where IPv6 is switched off, too."""
    host, port, *_ = min(bound, key=lambda each: each.family != socket.AF_INET).getsockname()
    return Address(host, port)
