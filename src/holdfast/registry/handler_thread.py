"""HandlerThread: one thread per partition for handlers that block.

A stuck thread cannot be killed. It is abandoned: its result is dropped, and no second handler of its partition starts in this
process until it has returned. It is a daemon thread, so that it cannot keep a process from ending.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress

_Job = tuple[Callable[[], None], "asyncio.Future[None]"]


class HandlerThread:
    """Runs one function at a time. Started at the first call; `idle` is set while nothing runs in it."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self.idle = asyncio.Event()
        self.idle.set()

    async def call(self, work: Callable[[], None]) -> None:
        """Run `work` in the thread. Cancelling the caller leaves the thread to itself."""
        answer: asyncio.Future[None] = self._loop.create_future()
        if not self._thread.is_alive():
            self._thread.start()
        self.idle.clear()
        self._jobs.put((work, answer))
        await answer

    def close(self) -> None:
        """End the thread once it is idle; does not wait."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, answer = job
            error: BaseException | None = None
            try:
                work()
            except BaseException as raised:
                error = raised
            with suppress(RuntimeError):  # the loop has closed meanwhile
                self._loop.call_soon_threadsafe(self._done, answer, error)

    def _done(self, answer: "asyncio.Future[None]", error: BaseException | None) -> None:
        self.idle.set()
        if answer.done():
            return  # abandoned
        if error is None:
            answer.set_result(None)
        elif isinstance(error, Exception) and not isinstance(error, StopIteration):
            answer.set_exception(error)
        else:  # a future refuses it, or it would end the event loop
            answer.set_exception(RuntimeError(f"handler thread ended with {error!r}"))
