"""What blocks while a client connects: names, certificates, passwords.

The one rule: each has a thread of its own, of the operating system. Those of an event loop's default executor are its program's,
which may keep all of them busy with work that needs this connection; gevent's are greenlets, which never run beside an event loop.
"""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

from holdfast.vocabulary.unpatched import unpatched

P = ParamSpec("P")
T = TypeVar("T")


async def on_own_thread(work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """The result of work that blocks. The process ends without waiting for it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = work(*given, **named)
        except BaseException as error:
            settle(done.set_exception, error)
        else:
            settle(done.set_result, result)

    def settle(setter: Callable[[Any], None], outcome: object) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(lambda: None if done.done() else setter(outcome))

    unpatched("_thread", "start_new_thread")(run, ())
    return await done


async def at_first_address(host: str, port: int, connect: Callable[[str], Awaitable[T]]) -> T:
    """What connects to the first address of a host that can be reached. `OSError`."""
    failure: OSError | None = None
    for address in await _ip_addresses(host, port):
        try:
            return await connect(address)
        except ssl.SSLError:
            raise
        except OSError as error:
            failure = error
    assert failure is not None
    raise failure


async def _ip_addresses(host: str, port: int) -> list[str]:
    """The addresses of a host, the best first; there is one at least. `OSError`."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        find = unpatched("socket", "getaddrinfo")
        found = await on_own_thread(find, host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(address[0]) for *_, address in found))
    return [host]
