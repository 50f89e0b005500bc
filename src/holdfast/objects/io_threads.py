"""Threads for blocking calls; the process never ends in the middle of one.

The one rule: `obstore` is called through its blocking functions, from our threads, never through its coroutines. Those finish on
the driver's own threads, which touch Python objects shortly after the result has arrived; a process that exits just then aborts
(measured: one exit in ten). Our threads end before the interpreter does: leaving `IoThreads` waits for every call in flight, and so
does the interpreter otherwise. Each call is bounded by its own timeout. (`pipeline` has threads that may be abandoned instead.)
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import ParamSpec, TypeVar

from holdfast.vocabulary.errors import ClosedError

P = ParamSpec("P")
T = TypeVar("T")


class IoThreads:
    """The threads of one engine."""

    def __init__(self, owner: str, *, threads_max: int) -> None:
        self._owner = owner
        self._pool = ThreadPoolExecutor(threads_max, thread_name_prefix="holdfast-objects")
        self._closed = False

    @classmethod
    @asynccontextmanager
    async def running(cls, owner: str, *, threads_max: int) -> AsyncIterator["IoThreads"]:
        """Threads for the body; leaving waits until the last call has returned."""
        threads = cls(owner, threads_max=threads_max)
        try:
            yield threads
        finally:
            threads._closed = True
            await _to_its_end(asyncio.ensure_future(asyncio.to_thread(threads._pool.shutdown)))

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `call`. A cancelled caller returns at once; the call itself completes."""
        return await self._start(call, *args, **kwargs)

    async def run_to_end(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `call`. A cancelled caller returns when the call has ended and no longer uses its arguments."""
        return await _to_its_end(self._start(call, *args, **kwargs))

    def _start(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        if self._closed:
            raise ClosedError(self._owner)
        return asyncio.wrap_future(self._pool.submit(call, *args, **kwargs))


async def _to_its_end(work: asyncio.Future[T]) -> T:
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            try:
                await asyncio.wait({work})
            except asyncio.CancelledError:
                continue  # cancelled again: keep waiting
        if not work.cancelled():
            work.exception()  # retrieved, so that asyncio does not warn
        raise
