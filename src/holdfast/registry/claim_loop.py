"""ClaimLoop: one claim of a partition in one consumer, from assignment to revocation. What it does meanwhile is up to subclasses.

The one rule: it runs once, under one assignment, and the first refusal of a heartbeat ends it.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from holdfast.registry.model import Assignment
from holdfast.registry.store import RegistryStore
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random, backoff_ms
from holdfast.vocabulary.tasks import Notify

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")


class ClaimLoop(ABC):
    """Runs once, under one assignment. `ended` is set when it has ended, whatever the reason."""

    def __init__(
        self, assignment: Assignment, registry: RegistryStore, *, drain_ms: int, clock: Clock, random: Random
    ) -> None:
        self.assignment = assignment
        self.stopped = False
        self.ended = asyncio.Event()
        self._registry, self._drain_ms, self._clock, self._random = registry, drain_ms, clock, random
        self._wake = Notify()
        self._heartbeat_due_ms = 0  # at once: the assignment may be old
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def _work(self) -> None:
        """Whatever the claim is for, until stopped or refused."""

    def start(self, group: asyncio.TaskGroup, *, after: Callable[[], Awaitable[None]]) -> None:
        """Process in a task of `group` until stopped or refused, once `after` returns: then earlier handlers have ended."""
        self._task = group.create_task(self._run(after))
        self._task.add_done_callback(self._end)

    async def stop(self, *, drain: bool) -> None:
        """End it: after the current message if `drain` and that is quick, otherwise by cancelling it.

        Returns when it has ended; a handler that does not react to that is abandoned after `drain_ms`.
        """
        self.stopped = True
        self._wake.notify()
        if drain and await self._ends_in_time():
            return
        if self._task is not None and not self.ended.is_set():
            self._task.cancel()
            if not await self._ends_in_time():
                _log.warning(
                    "handler of partition %d did not stop within %d ms, abandoned",
                    self.assignment.partition,
                    self._drain_ms,
                )

    async def heartbeat(self) -> bool:
        """Renew the claim; False: it is lost. Waits for an unreachable store: without it nothing could be checkpointed."""
        sent_ms = self._clock.boot_ms()
        held = await self._retry_until_answered(
            lambda: self._registry.heartbeat(self.assignment.partition, self.assignment.epoch)
        )
        self._heartbeat_due_ms = sent_ms + self.assignment.ttl_ms // 3
        return held is True

    async def _run(self, after: Callable[[], Awaitable[None]]) -> None:
        await after()
        await self._work()

    def _end(self, _: asyncio.Task[None]) -> None:
        self.stopped = True
        self.ended.set()

    async def _heartbeat_if_due(self) -> bool:
        if self.stopped:
            return False
        return self._clock.boot_ms() < self._heartbeat_due_ms or await self.heartbeat()

    async def _retry_until_answered(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        """Ask until there is an answer; None: stopped before there was one. What is asked may be asked twice."""
        attempt = 0
        while True:
            try:
                return await ask()
            except (UnavailableError, OutcomeUnknownError):
                if self.stopped:
                    return None
            await self._wake.wait_ms(self._clock, backoff_ms(attempt, base_ms=20, max_ms=1_000, random=self._random))
            attempt += 1

    async def _ends_in_time(self) -> bool:
        ending = asyncio.ensure_future(self.ended.wait())
        limit = asyncio.ensure_future(self._clock.sleep_ms(self._drain_ms))
        try:
            await asyncio.wait((ending, limit), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
            limit.cancel()
            await asyncio.wait((ending, limit))
        return self.ended.is_set()
