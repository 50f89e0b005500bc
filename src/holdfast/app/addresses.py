"""Listen addresses and advertised addresses. The one rule: without authentication nothing listens beyond loopback unless asked.

`0.0.0.0` and `::` are addresses to listen on, never to connect to: a node that listens there advertises its host name.
"""

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.vocabulary.errors import InvalidError, UsageError
from holdfast.vocabulary.host_port import join_host_port, split_host_port
from holdfast.vocabulary.sockets import is_loopback

_FORM: Final = "HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092; port 0 picks a free one"
_ADVERTISED_FORM: Final = "HOST, HOST:PORT or :PORT, reachable for clients"


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return join_host_port(self.host, self.port)

    @classmethod
    def parse(cls, what: str, text: str) -> "Address":
        """`HOST:PORT`."""
        found = split_host_port(text)
        if found is None or not found.host or found.port is None:
            raise InvalidError(what, text, _FORM)
        return cls(found.host, found.port)


def address_or_off(what: str, text: str, *, usual_port: int) -> Address | None:
    """The listen address of a gateway; None if it is `off`."""
    if text.lower() in ("off", "none", "no", "false"):
        return None
    try:
        return Address.parse(what, text)
    except InvalidError as error:
        form = f"HOST:PORT, such as 127.0.0.1:{usual_port} or [::1]:{usual_port}; port 0 picks a free one; or off"
        raise InvalidError(what, error.given, form) from None


@dataclass(frozen=True, slots=True)
class AdvertisedAddress:
    """The advertised address; missing parts are taken from the listen address."""

    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        if not self.port:
            return self.host
        return str(Address(self.host, self.port))

    @classmethod
    def parse(cls, what: str, text: str) -> "AdvertisedAddress":
        """`HOST`, `HOST:PORT`, `:PORT` or nothing."""
        found = split_host_port(text)
        if found is None or is_wildcard(found.host) or (text and not found.host and not found.port):
            raise InvalidError(what, text, _ADVERTISED_FORM)
        return cls(found.host, found.port or 0)

    def resolve(self, bound: Address, *, host_name: str) -> Address:
        """The address to advertise for a gateway that listens on `bound`."""
        host = self.host or (host_name if is_wildcard(bound.host) else bound.host)
        return Address(host, self.port or bound.port)


def is_wildcard(host: str) -> bool:
    """Whether it means every address of this machine."""
    return host in ("0.0.0.0", "::")  # noqa: S104 - compared with, not listened on


def check_exposure(at: Address, bound: Sequence[socket.socket], *, insecure: bool, remedy: str = "") -> bool:
    """Whether other machines can reach the sockets; `UsageError` if so and `insecure` is not set. `remedy`: what else helps."""
    reachable = not all(map(is_loopback, bound))
    if reachable and not insecure:
        raise UsageError(
            f"{at} is reachable from other machines and has no authentication: anyone who can reach it can read and delete "
            f"everything. {remedy or 'Listen on 127.0.0.1'}, or pass --insecure if only trusted machines can reach it"
        )
    return reachable


def bound_address(bound: Sequence[socket.socket]) -> Address:
    """The address the sockets of one gateway are bound to. IPv4 is preferred: it works where IPv6 is disabled."""
    host, port, *_ = min(bound, key=lambda each: each.family != socket.AF_INET).getsockname()
    return Address(host, port)
