"""The sockets of a gateway, bound before anything else: an address that is in use fails before a data directory is created."""

import asyncio
import logging
import re
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from holdfast.app.addresses import Address, bound_address, check_exposure
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.sockets import bind, is_loopback

_log: Final = logging.getLogger(__name__)
_FREE_PORT: Final = re.compile(r"; port (\d+) is free")


@dataclass(frozen=True, slots=True)
class Listener:
    """Bound sockets, not accepting yet. `exposed`: reachable from other machines, without authentication.

    `loopback`: only this machine reaches it.
    """

    sockets: Sequence[socket.socket]
    address: Address
    exposed: bool
    loopback: bool


@asynccontextmanager
async def bound_listener(
    flag: str, address: Address, *, insecure: bool, authenticates: bool = False, remedy: str = ""
) -> AsyncIterator[Listener]:
    """Sockets bound to an address, closed after the body. An address in use raises with a free one, as `flag` takes it.

    Without authentication, one beyond loopback raises unless it is to be `insecure`; `remedy` says what else to do.
    """
    with ExitStack() as stack:
        sockets = await asyncio.to_thread(_bind, flag, address)
        for each in sockets:
            stack.callback(each.close)
        bound = bound_address(sockets)
        exposed = not authenticates and check_exposure(address, sockets, insecure=insecure, remedy=remedy)
        if exposed:
            _log.warning("listening on %s without authentication: anyone who can reach it has full access", bound)
        yield Listener(sockets, bound, exposed, all(map(is_loopback, sockets)))


def _bind(flag: str, address: Address) -> list[socket.socket]:
    try:
        return bind(address.host, address.port)
    except UnavailableError as error:
        free = _FREE_PORT.search(error.reason)
        if free is None:
            raise
        hint = f"already in use; try {flag} {Address(address.host, int(free[1]))}"
        raise UnavailableError(f"address {address}", hint) from None
