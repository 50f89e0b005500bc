"""Blocking calls off the event loop: a bounded number of threads, each call with a timeout.

The one rule: a caller waits no longer than its timeout. An overdue call is abandoned in its thread, where its own socket timeout
ends it. Until then it counts against the bound; the exit of the process does not wait for it. `objects.io_threads` differs there:
its calls are awaited to their end.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from holdfast.vocabulary.errors import ClosedError, UnavailableError

T = TypeVar("T")


class BoundedThreads:
    """Threads of one service, on one event loop."""

    def __init__(self, *, threads_max: int, name: str) -> None:
        self._free = asyncio.Semaphore(threads_max)
        self._name, self._closed = name, False

    async def run(self, what: str, call: Callable[[], T], *, timeout_ms: int) -> T:
        """The result of the call. `UnavailableError`: it took too long."""
        if self._closed:
            raise ClosedError(self._name)
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                await self._free.acquire()
                return await self._started(call)
        except TimeoutError:
            raise UnavailableError(what, f"no answer within {timeout_ms} ms") from None

    def _started(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def done(found: T | None, error: BaseException | None) -> None:
            self._free.release()
            if answer.done():
                return  # the caller timed out
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(found)  # type: ignore[arg-type]  # without an error it is the result

        def work() -> None:
            found, error = None, None
            try:
                found = call()
            except BaseException as raised:
                error = raised
            with suppress(RuntimeError):  # the loop is closed: no caller is left
                loop.call_soon_threadsafe(done, found, error)

        threading.Thread(target=work, name=self._name, daemon=True).start()
        return answer

    def close(self) -> None:
        """Take no more calls; those under way are abandoned."""
        self._closed = True
