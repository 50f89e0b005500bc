"""What blocks while a client connects: names, certificates, passwords.

The one rule: each has a thread of its own. Those of an event loop's default executor are its program's, which may keep all of them
busy with work that needs this connection.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def on_own_thread(work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """The result of work that blocks."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-connect")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, lambda: work(*given, **named))
    finally:
        thread.shutdown(wait=False)


async def ip_addresses(host: str, port: int) -> list[str]:
    """The addresses of a host, the best first; there is one at least. `OSError`."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        found = await on_own_thread(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(address[0]) for *_, address in found))
    return [host]
