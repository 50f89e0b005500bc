"""ClusterLoop: the virtual loop for code that also uses threads and timers of the loop.

The one rule: work for a thread belongs to the process that asked for it. It runs on the loop, a moment later, as one step; it waits
while its process is paused, and a process that died never runs it.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

from holdfast.sim.loop import SimLoop
from holdfast.sim.process import RUNNING
from holdfast.vocabulary.random import SeededRandom

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class ClusterLoop(SimLoop):
    """Threads are steps of the loop; timers wake only processes that run."""

    def __init__(self, random: SeededRandom, *, callbacks_max: int) -> None:
        super().__init__(callbacks_max=callbacks_max)
        self._draw = random.random.random

    def run_in_executor(self, executor: object, func: Callable[[*Ts], T], *args: *Ts) -> "asyncio.Future[T]":
        process = RUNNING.get()
        answer = self.create_future() if process is None else process.wait()

        def work() -> None:
            if answer.done():
                return
            try:
                outcome = func(*args)
            except asyncio.CancelledError:
                answer.cancel()
            except BaseException as error:
                if not answer.done():
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(outcome)

        if process is None:
            self.post_at(self.now_ms, work)
        else:
            self.post_at(self.now_ms + self._draw(), process.deliver, work)
        return answer

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        process = RUNNING.get()
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self.post_at(when * 1000, process.deliver, _fire, handle)
        return handle


def _fire(handle: asyncio.TimerHandle) -> Any:
    if not handle.cancelled():
        handle._run()
