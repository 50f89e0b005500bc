"""An event loop on a thread, for synchronous callers such as Spark's Python workers. One per process, kept between tasks.

The one rule: a loop belongs to the process that started it. Spark forks its Python workers, and a fork has no threads: the child
starts a loop of its own, and what the parent has open stays the parent's.
"""

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401 (it registers its exit handler first, so that ours runs before it)
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, TypeVar

T = TypeVar("T")

_CLOSE_WAIT_S: Final = 5.0


class LoopThread:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.loop = asyncio.new_event_loop()
        self.resources: dict[object, object] = {}  # what this process has open, by address
        self._closers: list[Callable[[], Awaitable[None]]] = []
        self._thread = threading.Thread(target=self._serve, name="holdfast-loop", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start the work on the loop's thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def on_close(self, closer: Callable[[], Awaitable[None]]) -> None:
        """Call `closer` before the loop stops. On the loop's thread."""
        self._closers.append(closer)

    def close(self) -> None:
        """Close what is open, then stop the loop."""
        with suppress(Exception):  # the process is exiting: there is nobody left to report to
            self.submit(self._close()).result(_CLOSE_WAIT_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_CLOSE_WAIT_S)
        if not self._thread.is_alive():
            self.loop.close()

    async def _close(self) -> None:
        for closer in reversed(self._closers):
            with suppress(Exception):
                await closer()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


_lock = threading.Lock()
_current: LoopThread | None = None


def loop_thread() -> LoopThread:
    """This process's loop, started at the first use."""
    global _current
    with _lock:
        if _current is None or _current.process != os.getpid():
            _current = LoopThread()
        return _current


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run the work on the loop's thread and return its result. An interrupt cancels it."""
    future = loop_thread().submit(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def close() -> None:
    """Stop this process's loop and close everything that is open on it; the next use starts a new one."""
    global _current
    with _lock:
        thread, _current = _current, None
    if thread is not None and thread.process == os.getpid():
        thread.close()


def _in_child() -> None:
    global _lock, _current
    _lock = threading.Lock()  # a thread of the parent may have held it
    _current = None


os.register_at_fork(after_in_child=_in_child)
# Before the thread pools end, which closing needs; a plain exit handler would run after that.
getattr(threading, "_register_atexit", atexit.register)(close)
