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
        self.client: HeapClient = loop.call(self._open())
        self.log: TopicLog = loop.call(self._open_log())
        loop.on_close(self._stack.aclose)

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

    async def _open(self) -> HeapClient:
        return await self._stack.enter_async_context(connect(self.bootstrap))

    async def _open_log(self) -> TopicLog:
        log = TopicLog(self.bootstrap)
        self._stack.push_async_callback(log.close)
        return log


def background_heaps(bootstrap: str) -> BackgroundHeaps:
    """This process's client of a cluster, opened at the first use. Nothing is connected before it is needed."""
    loop = native_loop()
    found = loop.resources.get(bootstrap)
    if found is None:
        with loop.opening:
            found = loop.resources.get(bootstrap)
            if found is None:
                found = loop.resources[bootstrap] = BackgroundHeaps(loop, bootstrap)
    result: BackgroundHeaps = found
    return result
