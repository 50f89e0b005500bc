"""The network of driven heaps: how long things take, what is lost, and streams between hosts.

The one rule: a stream delivers in order. When it breaks, whoever waits for an answer is told that there is none; what was sent may
still arrive.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from holdfast.sim.loop import SimLoop
from holdfast.vocabulary.errors import HoldfastError, UnavailableError
from holdfast.vocabulary.random import SeededRandom

OnFailure = Callable[[str, BaseException], None]
Answered = Callable[[Any], None]
"""Called with the answer, or None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """How bad things are. `lost`: the share of calls of clients; `waiting`: of appends; `unreadable`: of reads."""

    delay_ms: float
    sync_ms: float
    lost: float = 0.0
    waiting: float = 0.0
    unreadable: float = 0.0


class SimNetwork:
    """Delays and losses as the seed draws them, and the tasks of the world."""

    def __init__(self, loop: SimLoop, random: SeededRandom, conditions: Conditions, on_failure: OnFailure) -> None:
        self.loop, self.random, self.conditions = loop, random.random, conditions
        self._on_failure = on_failure
        self._tasks: dict[asyncio.Task[Any], None] = {}

    # ── chance ──

    def delay_ms(self) -> float:
        """Of one message; a few are slow."""
        most = self.conditions.delay_ms * (10 if self.random.random() < 0.05 else 1)
        return self.random.uniform(0.1, most)

    def synced_at_ms(self, after_ms: float) -> float:
        """When an append is durable: not before the one before it."""
        most = self.conditions.sync_ms * (10 if self.random.random() < 0.05 else 1)
        return max(after_ms, self.loop.now_ms + self.random.uniform(0.1, most))

    def is_lost(self) -> bool:
        """Whether a message of a client is lost."""
        return self.random.random() < self.conditions.lost

    def appends_wait(self) -> bool:
        """Whether an append has to wait for room."""
        return self.random.random() < self.conditions.waiting

    def check_readable(self, what: str) -> None:
        """`UnavailableError`: object storage is away."""
        if self.random.random() < self.conditions.unreadable:
            raise UnavailableError(f"object storage of {what}", "it does not answer")

    # ── time and tasks ──

    async def sleep_ms(self, duration_ms: float) -> None:
        """Return after so long."""
        done = self.loop.create_future()
        self.loop.post_at(self.loop.now_ms + duration_ms, _finish, done)
        await done

    async def pause(self) -> None:
        """A delay."""
        await self.sleep_ms(self.delay_ms())

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        """Run something; that it raises what is no `HoldfastError` is a failure of the seed."""
        task = self.loop.create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, HoldfastError):
            self._on_failure(task.get_name(), error)

    async def end(self) -> None:
        """Cancel what is left."""
        while tasks := [*self._tasks]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await asyncio.sleep(0)  # noqa: TID251 (no time passes)


class SimStream:
    """A connection from one process to another."""

    def __init__(self, network: SimNetwork) -> None:
        self.is_broken = False
        self._network = network
        self._there_ms = self._back_ms = 0.0
        self._number = 0
        self._open: dict[int, Answered] = {}

    def send(self, serve: Callable[[], Awaitable[object]], answered: Answered) -> None:
        """Have something served at the other end."""
        network = self._network
        self._number += 1
        self._open[self._number] = answered
        arrives = network.random.random() < 0.5  # although the stream breaks
        self._there_ms = max(self._there_ms, network.loop.now_ms + network.delay_ms())
        network.loop.post_at(self._there_ms, self._arrive, self._number, serve, arrives)

    async def ask(self, serve: Callable[[], Awaitable[Any]]) -> Any:
        """The answer. `UnavailableError`: there is none."""
        answer = self._network.loop.create_future()
        self.send(serve, lambda found: None if answer.done() else answer.set_result(found))
        found = await answer
        if found is None:
            raise UnavailableError("another agent", "it did not answer")
        return found

    def lose(self) -> None:
        """It breaks."""
        self.is_broken = True
        lost, self._open = self._open, {}
        for answered in lost.values():
            self._network.loop.call_soon(answered, None)

    def _arrive(self, number: int, serve: Callable[[], Awaitable[object]], arrives: bool) -> None:
        if arrives or not self.is_broken:
            self._network.start(self._serve(number, serve), "stream")

    async def _serve(self, number: int, serve: Callable[[], Awaitable[object]]) -> None:
        network = self._network
        try:
            found = await serve()
        except HoldfastError:
            found = None
        self._back_ms = max(self._back_ms, network.loop.now_ms + network.delay_ms())
        network.loop.post_at(self._back_ms, self._answer, number, found)

    def _answer(self, number: int, found: object) -> None:
        answered = self._open.pop(number, None)
        if answered is not None:
            answered(found)


def _finish(done: "asyncio.Future[None]") -> None:
    if not done.done():
        done.set_result(None)
