"""SimLoop: an asyncio event loop whose time is virtual.

The one rule: no input from outside. When no callback is ready, time jumps to the next timer; so a minute of the world
costs what its events cost, and the same program runs the same way every time. Files, sockets, threads and signals are refused:
code that needs them cannot be simulated.

Asyncio itself is the real one: tasks, futures, task groups and timeouts are the standard library's.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any, NoReturn, TypeVar, TypeVarTuple

from holdfast.vocabulary.errors import HoldfastError, InvalidError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class StuckError(HoldfastError):
    """The simulated program cannot continue: nothing is ready and nothing is scheduled, or time does not advance."""

    def __init__(self, at_ms: float, reason: str) -> None:
        super().__init__(at_ms, reason)
        self.at_ms, self.reason = at_ms, reason

    def __str__(self) -> str:
        return f"the simulation is stuck at {self.at_ms:.0f} ms: {self.reason}"


class SimLoop(asyncio.BaseEventLoop):
    """Runs callbacks in the order they became ready; timers by due time, then in the order they were set."""

    _stopping: bool  # asyncio's own: set by `stop`

    def __init__(self, *, callbacks_max: int = 200_000) -> None:
        super().__init__()
        self.now_ms = 0.0
        self.errors: list[dict[str, Any]] = []  # errors that reached the exception handler; a clean run has none
        self._ready: deque[_Handle] = deque()
        self._timers: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._number = 0
        self._set = 0  # timers set so far: orders those due at the same time
        self.callbacks_left = callbacks_max  # against programs that spin without letting time pass
        self.set_exception_handler(_remember_error)

    def time(self) -> float:
        return self.now_ms / 1000

    def post_at(self, at_ms: float, callback: Callable[..., object], *args: Any) -> None:
        """Call back at virtual time `at_ms`. Cheaper than `call_at`: cannot be cancelled, has no context."""
        self._set = order = self._set + 1
        heapq.heappush(self._timers, (at_ms, order, callback, args))

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self.post_at(when * 1000, _fire, handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def create_future(self) -> "asyncio.Future[Any]":
        return _Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> "asyncio.Task[T]":
        return _Task(coro, loop=self, name=str(name) if name else "task", context=context)

    def next_number(self) -> int:
        """One more than the last."""
        self._number += 1
        return self._number

    def close(self) -> None:
        """Forget what is still scheduled. Tasks are the caller's to end first."""
        self._timers.clear()
        super().close()

    def _run_once(self) -> None:
        """Runs until asked to stop, not once: there is no selector to look at in between."""
        ready, timers, left = self._ready, self._timers, self.callbacks_left
        try:
            while not self._stopping:
                left -= 1
                if left < 0:
                    raise StuckError(self.now_ms, "too many callbacks: the program spins")
                if ready:
                    handle = ready.popleft()
                    if handle._cancelled:
                        continue
                    try:  # what Handle._run does, without the call
                        handle._context.run(handle._callback, *handle._args)
                    except Exception as error:
                        self.errors.append({"message": f"error in {handle._callback}", "exception": error})
                elif timers:
                    at_ms, _, callback, args = heapq.heappop(timers)
                    if at_ms > self.now_ms:  # a timer may be set for the past
                        self.now_ms = at_ms
                    callback(*args)
                else:
                    raise StuckError(self.now_ms, "nothing is ready and nothing is scheduled")
        finally:
            self.callbacks_left = left

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer stays in the heap and does nothing when due."""


def _refuse(loop: SimLoop, *_: Any, **__: Any) -> NoReturn:
    raise InvalidError("call in a simulation", "I/O, thread or signal", "limited to virtual time and memory")


for _name in (
    "add_reader",
    "add_signal_handler",
    "add_writer",
    "call_soon_threadsafe",
    "create_connection",
    "create_datagram_endpoint",
    "create_server",
    "getaddrinfo",
    "run_in_executor",
    "subprocess_exec",
    "subprocess_shell",
):
    setattr(SimLoop, _name, _refuse)


def _hash(waiter: Any) -> int:
    """By number: asyncio keeps futures and tasks in sets, and a set of addresses has another order in every run."""
    try:
        number: int = waiter.number
    except AttributeError:  # numbered when first put into a set: few futures ever are
        waiter.number = number = waiter.get_loop().next_number()
    return number


class _Future(asyncio.Future[Any]):
    __slots__ = ("number",)
    __hash__ = _hash


class _Task(asyncio.Task[T]):
    __slots__ = ("number",)
    __hash__ = _hash


class _Handle(asyncio.Handle):
    """Asyncio's handle without its debug mode, which would be most of its cost."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], loop: SimLoop, context: Context | None
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop, self._callback, self._args = loop, callback, args
        self._cancelled = False
        self._repr = self._source_traceback = None


def _fire(handle: asyncio.TimerHandle) -> None:
    if not handle.cancelled():
        handle._run()


def _remember_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if isinstance(loop, SimLoop):
        loop.errors.append(context)
