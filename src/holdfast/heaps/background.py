"""Clients of heaps on the process's own thread: one per cluster, shared by everything in the process, never closed before its end.

The one rule: a lease outlives whoever popped it. Channels, connections and brokers of a framework come and go; the message stays
leased and renewed until it is settled, or the process ends.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any, TypeVar

from holdfast.client.topic_log import TopicLog
from holdfast.heaps.client import HeapClient, connect
from holdfast.heaps.message import Message
from holdfast.heaps.native_loop import NativeLoop, native_loop
from holdfast.vocabulary.errors import HoldfastError

T = TypeVar("T")


class BackgroundHeaps:
    """A client, and the thread it belongs to."""

    def __init__(self, loop: NativeLoop, bootstrap: str) -> None:
        self.loop, self.bootstrap = loop, bootstrap
        self._stack = AsyncExitStack()
        self.client: HeapClient
        self.log: TopicLog

    async def open(self) -> None:
        """Connects to nothing before that is needed."""
        self.client = await self._stack.enter_async_context(connect(self.bootstrap))
        self.log = TopicLog(self.bootstrap)
        self._stack.push_async_callback(self.log.close)
        self.loop.on_close(self._stack.aclose)

    def call(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """The result of a call of `client`."""
        return self.loop.call(work, timeout)

    def post(self, work: Coroutine[Any, Any, object]) -> None:
        """Start a call of `client`."""
        self.loop.post(work)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a call of `client`, for a caller on another event loop. It is not cancelled with its caller."""
        self.loop.check_process(work)
        return await asyncio.shield(asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop.loop)))

    async def pop(self, heap: str, **options: Any) -> list[Message]:
        """Pop, for a caller on another event loop. If that is cancelled, what was leased is given back."""
        popping: list[asyncio.Task[list[Message]]] = []

        async def pop() -> list[Message]:
            popping.append(asyncio.ensure_future(self.client.pop(heap, **options)))
            return await popping[0]

        try:
            return await self.run(pop())
        except asyncio.CancelledError:
            self.post(self._abandon(popping))
            raise

    async def _abandon(self, popping: "list[asyncio.Task[list[Message]]]") -> None:
        for task in popping:
            task.cancel()
            with suppress(asyncio.CancelledError, HoldfastError):
                await self.client.release(await task)


def background_heaps(bootstrap: str) -> BackgroundHeaps:
    """This process's client of a cluster, opened at the first use. Nothing is connected before it is needed."""
    loop = native_loop()
    found: BackgroundHeaps | None = loop.resources.get(bootstrap)
    return found if found is not None else loop.call(_opened(loop, bootstrap))


async def _opened(loop: NativeLoop, bootstrap: str) -> BackgroundHeaps:
    async with loop.opening:
        found: BackgroundHeaps | None = loop.resources.get(bootstrap)
        if found is None:
            found = BackgroundHeaps(loop, bootstrap)
            await found.open()
            loop.resources[bootstrap] = found
        return found
