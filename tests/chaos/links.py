"""The connections of a cluster that can be cut: fault proxies on an event loop of their own thread.

The one rule: whoever is measured or judged never waits for this thread's work; it only forwards.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Final, TypeVar

from holdfast.testing.fault_proxy import FaultProxy
from holdfast.vocabulary.clock import RealClock

T = TypeVar("T")

# What an S3 server answers while it asks its clients to slow down.
_BODY: Final = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)
SLOW_DOWN: Final = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
)


class Links:
    """Proxies, by the port they stand in front of. Made by `running`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stack: AsyncExitStack) -> None:
        self._loop, self._stack = loop, stack

    @classmethod
    @contextmanager
    def running(cls) -> "Iterator[Links]":
        """A thread with a loop, for the body."""
        loop, stack = asyncio.new_event_loop(), AsyncExitStack()
        thread = threading.Thread(target=loop.run_forever, name="links", daemon=True)
        thread.start()
        links = cls(loop, stack)
        try:
            yield links
        finally:
            links.run(stack.aclose)
            links.run(_until_closed, loop)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def run(self, call: Callable[..., Awaitable[T]], *args: Any) -> T:
        """The result of a coroutine on the loop."""

        async def called() -> T:
            return await call(*args)

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result()

    def do(self, call: Callable[..., object], *args: Any, **named: Any) -> None:
        """Call a function on the loop, and return when it is done."""

        async def called() -> None:
            call(*args, **named)

        self.run(called)

    def to(self, port: int) -> "Link":
        """A new proxy in front of a port of loopback."""
        proxy = self.run(self._stack.enter_async_context, FaultProxy.running("127.0.0.1", port, clock=RealClock()))
        return Link(self, proxy)


async def _until_closed(loop: asyncio.AbstractEventLoop) -> None:
    """What was aborted closes its socket in a later turn of the loop."""
    others = asyncio.all_tasks(loop) - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    for _ in range(3):
        await RealClock().sleep_ms(1)


class Link:
    """One proxy, from other threads."""

    def __init__(self, links: Links, proxy: FaultProxy) -> None:
        self._links, self._proxy = links, proxy
        self.port = proxy.port

    def hold(self, *, requests: bool = True, answers: bool = True, opening: str = "") -> None:
        """Nothing gets through in these directions."""
        self._links.do(self._proxy.hold, requests=requests, answers=answers, opening=opening)

    def release(self) -> None:
        """What was held gets through."""
        self._links.do(self._proxy.release)

    def slow_down(self, on: bool) -> None:
        """Answer 503 to everything, or no more."""
        self._links.do(self._proxy.respond, SLOW_DOWN if on else None)

    def cut(self) -> None:
        """Every connection ends; new ones are accepted."""
        self._links.run(self._proxy.cut)

    def set_listening(self, listening: bool) -> None:
        """Whether the port is open: closed while there is no process behind it, so that it refuses as that one's would."""
        self._links.run(self._proxy.set_listening, listening)
