"""One thread that runs calls in order. A connection lives on its thread and is used nowhere else."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
OnResult = Callable[[Any, Exception | None], None]


class WorkerThread:
    """Runs blocking calls for one event loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[tuple[Callable[[], Any], OnResult] | None] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator["WorkerThread"]:
        """The thread, for the body. Leaving waits for the calls that were made."""
        self._loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = self._loop.create_future()
        # A daemon: a call that hangs in the kernel must not block process exit.
        thread = threading.Thread(target=self._serve, args=(self._loop, ended), name=self._name, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._calls.put(None)
            await asyncio.shield(ended)

    def post(self, work: Callable[[], Any], then: OnResult) -> None:
        """Run `work` after all earlier calls, then call `then` with its result or error, on the loop."""
        self._calls.put((work, then))

    def call(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Like `post`, as a future. If it is cancelled before its turn, the work is skipped."""
        assert self._loop is not None
        answer: asyncio.Future[T] = self._loop.create_future()
        self.post(lambda: None if answer.done() else work(), partial(_resolve, answer))
        return answer

    def _serve(self, loop: asyncio.AbstractEventLoop, ended: "asyncio.Future[None]") -> None:
        with suppress(RuntimeError):  # the loop was closed first: there is no one to notify
            while (call := self._calls.get()) is not None:
                work, then = call
                try:
                    result = work()
                except Exception as error:
                    loop.call_soon_threadsafe(then, None, error)
                else:
                    loop.call_soon_threadsafe(then, result, None)
            loop.call_soon_threadsafe(_resolve, ended, None, None)


def _resolve(answer: "asyncio.Future[Any]", result: object, error: Exception | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)
