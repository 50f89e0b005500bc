"""An event loop on an operating system's thread, one per process, for frameworks that run tasks: Celery, Dramatiq, taskiq.

Leases are renewed here. The rules: nothing that a task does keeps this thread from running, but code that holds the interpreter's
lock; so it is a real thread also where gevent has replaced `threading`, before or after it was started. Who waits for it holds no
lock: other greenlets of its thread may want that one. It belongs to one process: a fork starts another one, and is refused by its
parent's.
"""

import asyncio
import atexit
import logging
import os
import sys
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

from holdfast.vocabulary.errors import UsageError
from holdfast.vocabulary.unpatched import unpatched

T = TypeVar("T")

_log: Final = logging.getLogger(__name__)
_CLOSE_WAIT_S: Final = 5.0


def _lock() -> Any:
    """One of the operating system's: for moments in which no other greenlet runs."""
    return unpatched("_thread", "allocate_lock")()


class _Waiter(Protocol):
    """One wait of a thread or greenlet for the loop's thread."""

    def wait(self, timeout: float | None) -> bool: ...

    def wake(self) -> None: ...


class _ThreadWaiter:
    def __init__(self) -> None:
        self._lock = _lock()
        self._lock.acquire()

    def wait(self, timeout: float | None) -> bool:
        return bool(self._lock.acquire(timeout=-1 if timeout is None else timeout))

    def wake(self) -> None:
        self._lock.release()


class _GreenletWaiter:
    """Lets other greenlets run meanwhile."""

    def __init__(self) -> None:
        import gevent
        from gevent.event import Event

        self._event, self._closing, self._closed = Event(), _lock(), False
        self._watcher = gevent.get_hub().loop.async_()
        self._watcher.start(self._event.set)

    def wait(self, timeout: float | None) -> bool:
        try:
            return bool(self._event.wait(timeout))
        finally:
            with self._closing:
                self._closed = True
                self._watcher.stop()
                self._watcher.close()

    def wake(self) -> None:
        with self._closing:
            if not self._closed:  # somebody still waits
                self._watcher.send()


class NativeLoop:
    """The loop and its thread. `resources`: what is open on it, by name."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.resources: dict[object, Any] = {}
        self.opening = asyncio.Lock()
        self._closers: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._running: set[asyncio.Task[Any]] = set()
        self.loop: asyncio.AbstractEventLoop
        started = _ThreadWaiter()  # a moment: it is fine to block greenlets
        unpatched("_thread", "start_new_thread")(self._serve, (started,))
        started.wait(None)

    @property
    def is_inherited(self) -> bool:
        """Whether this process is a fork of the loop's: the thread is not here."""
        return self.process != os.getpid()

    def check_process(self, work: Coroutine[Any, Any, object]) -> None:
        """`UsageError`: this process is a fork, where the work would never be done."""
        if self.is_inherited:
            work.close()
            raise UsageError("this was opened by the parent process: open another one after the fork")

    def call(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """The result of work on the loop's thread, for a caller on another one. `TimeoutError`: it was cancelled then."""
        self.check_process(work)
        waiter: _Waiter = _GreenletWaiter() if _cooperative() else _ThreadWaiter()
        outcome: list[asyncio.Task[T]] = []

        def start() -> None:
            task = self.loop.create_task(work)
            outcome.append(task)
            task.add_done_callback(lambda _: waiter.wake())

        self.loop.call_soon_threadsafe(start)
        try:
            if not waiter.wait(timeout):
                raise TimeoutError(f"no result within {timeout} s")
        except BaseException:
            self.loop.call_soon_threadsafe(lambda: outcome[0].cancel())
            raise
        return outcome[0].result()

    def post(self, work: Coroutine[Any, Any, object]) -> None:
        """Start work on the loop's thread; what it raises is logged."""
        self.check_process(work)
        self.loop.call_soon_threadsafe(self._start, work)

    def on_close(self, closer: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Call `closer` before the process ends, after what was posted is done."""
        self._closers.append(closer)

    def on_collected(self, owner: object, end: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Start `end`, which must not refer to `owner`, once nobody else does."""
        weakref.finalize(owner, self._collected, end).atexit = False

    def close(self) -> None:
        """Finish what was posted, close what is open, stop."""
        try:
            self.call(self._close(), _CLOSE_WAIT_S)
        except Exception as error:
            _log.warning("heap clients did not close: %s", error)
        self.loop.call_soon_threadsafe(self.loop.stop)

    def _collected(self, end: Callable[[], Coroutine[Any, Any, object]]) -> None:
        if not self.is_inherited:
            self.loop.call_soon_threadsafe(lambda: self._start(end()))

    def _start(self, work: Coroutine[Any, Any, object]) -> None:
        task = self.loop.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[object]") -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("work in the background failed", exc_info=error)

    async def _close(self) -> None:
        while self._running:
            await asyncio.wait(self._running)
        for closer in reversed(self._closers):
            await closer()

    def _serve(self, started: _Waiter) -> None:
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(started.wake)
        self.loop.run_forever()


_starting = _lock()
_current: NativeLoop | None = None


def native_loop() -> NativeLoop:
    """This process's loop, started at the first use."""
    global _current
    with _starting:
        if _current is None or _current.process != os.getpid():
            _current = NativeLoop()
        return _current


def _cooperative() -> bool:
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def _in_child() -> None:
    global _current, _starting
    _current, _starting = None, _lock()  # a thread of the parent may have held it


def _at_exit() -> None:
    global _current
    loop, _current = _current, None
    if loop is not None and loop.process == os.getpid():
        loop.close()


os.register_at_fork(after_in_child=_in_child)
atexit.register(_at_exit)
