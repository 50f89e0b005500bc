"""Sockets: the one place that binds those that listen, and which connected ones their other end has left.

Binding and listening are two steps, so that a node knows all its addresses before it accepts on any of them.
"""

import errno
import ipaddress
import select
import socket
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final

from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.host_port import join_host_port

BACKLOG: Final = 256
_FREE_PORT_TRIES: Final = 20
# A name may resolve to an address of a kind this machine does not have (IPv6 in a container): the others are enough.
_ADDRESS_UNAVAILABLE: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_HUNG_UP: Final = getattr(select, "POLLRDHUP", 0)  # without it (macOS), only a reset is noticed


def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets bound to every address of `host`, not yet listening. Port 0 takes a free one, the same for all of them.

    `UnavailableError`: the port is in use (it names a free one) or no address is this machine's; `InvalidError`: an unknown host.
    """
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise InvalidError(
            "address to listen on", join_host_port(host, port), f"a host of this machine ({error})"
        ) from None
    sockets: list[socket.socket] = []
    failure: OSError | None = None
    for family, kind, protocol, _, address in dict.fromkeys(found):
        try:
            sockets.append(_bound(family, kind, protocol, (address[0], port, *address[2:])))
            port = sockets[-1].getsockname()[1]
        except OSError as error:
            failure = error
            if error.errno not in _ADDRESS_UNAVAILABLE:
                break
    if failure is not None and (not sockets or failure.errno not in _ADDRESS_UNAVAILABLE):
        for each in sockets:
            each.close()
        hint = _free_port_hint(host, port) if failure.errno == errno.EADDRINUSE else ""
        raise UnavailableError(
            f"address {join_host_port(host, port)}", f"cannot listen there: {failure.strerror or failure}{hint}"
        )
    return sockets


def bind_one(host: str, port: int) -> socket.socket:
    """The first of the sockets `bind` returns, for a server that has one."""
    first, *others = bind(host, port)
    for each in others:
        each.close()
    return first


def listen(sockets: Sequence[socket.socket], *, backlog: int = BACKLOG) -> None:
    """Queue connections from now on instead of refusing them. `UnavailableError`: another socket listens there by now."""
    for each in sockets:
        try:
            each.listen(backlog)
        except OSError as error:
            host, port = each.getsockname()[:2]
            raise UnavailableError(
                f"address {join_host_port(host, port)}", f"cannot listen there: {error.strerror}"
            ) from None


def is_loopback(bound: socket.socket) -> bool:
    """Whether only this machine can reach a bound socket."""
    return ipaddress.ip_address(bound.getsockname()[0].partition("%")[0]).is_loopback


def hung_up(descriptors: Collection[int]) -> list[int]:
    """Those of connected sockets whose other end sends no more, whether or not all that it sent was read."""
    poll = select.poll()
    for each in descriptors:
        poll.register(each, _HUNG_UP)
    return [each for each, _ in poll.poll(0)] if descriptors else []


def _bound(family: int, kind: int, protocol: int, address: tuple[object, ...]) -> socket.socket:
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
    except OSError:
        made.close()
        raise
    return made


def _free_port_hint(host: str, port: int) -> str:
    """The next port that is free now. It is not reserved: another process may take it first."""
    for candidate in range(port + 1, min(port + 1 + _FREE_PORT_TRIES, 65_536)):
        with suppress(OSError), socket.create_server((host or "127.0.0.1", candidate)):
            return f"; port {candidate} is free"
    return ""
