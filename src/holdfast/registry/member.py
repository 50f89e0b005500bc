"""RegistryMember: the registration of one consumer, and a loop per partition that is assigned to it. It leaves cleanly.

The one rule: in this process, no two loops of one partition run at once, and none runs under an epoch it did not get in an
assignment. Assignments are pushed by a coordinator of this process (`running`) or read from the registry itself (`following`), so
that coordinators may live anywhere. What a loop does is up to subclasses: `ConsumerEngine` calls a handler, the client fetches.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import Final, Self, TypeVar

from holdfast.registry import keys
from holdfast.registry.claim_loop import ClaimLoop
from holdfast.registry.model import Assignment, ConsumerInfo
from holdfast.registry.store import RegistryStore
from holdfast.registry.view import RegistryView
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import FencedError, InvalidError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random, backoff_ms
from holdfast.vocabulary.tasks import background_tasks, task_group, unwrap_exception_group

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")


class RegistryMember(ABC):
    """A registered consumer and the loops of its partitions."""

    def __init__(self, registry: RegistryStore, consumer: str, *, clock: Clock, random: Random) -> None:
        keys.check_name("consumer id", consumer)
        self.consumer = consumer
        self._registry, self._clock, self._random = registry, clock, random
        self._info: ConsumerInfo | None = None
        self._staying: asyncio.Task[None] | None = None
        self._group: asyncio.TaskGroup | None = None
        self._loops: dict[int, ClaimLoop] = {}

    @abstractmethod
    def _open_loop(self, assignment: Assignment) -> ClaimLoop:
        """The loop of one assignment, not started yet."""

    @abstractmethod
    def _close_handlers(self) -> None:
        """All loops have ended for good."""

    @property
    def session(self) -> str | None:
        """The session of the registration; None while there is none."""
        return None if self._info is None else self._info.session

    @property
    def assignments(self) -> dict[int, Assignment]:
        """The assignments being processed, by partition."""
        return {number: loop.assignment for number, loop in self._loops.items() if not loop.stopped}

    def running(self) -> AbstractAsyncContextManager[Self]:
        """Register, and process what a coordinator of this process assigns; leaving the body leaves the registry.

        Another process that registers the same id takes its place; then the body ends with `FencedError`.
        """
        return self._live(follow=False)

    def following(self) -> AbstractAsyncContextManager[Self]:
        """As `running`, with assignments read from the registry: some coordinator, anywhere, has to run."""
        return self._live(follow=True)

    async def assign(self, assignment: Assignment) -> None:
        """Start processing, unless it already is under this epoch or a later one."""
        if self._group is None or self._info is None:
            return  # it has left; the claim will expire
        held = self._loops.get(assignment.partition)
        if held is not None and not held.stopped:
            if held.assignment.epoch >= assignment.epoch:
                return
            await held.stop(drain=False)
        loop = self._open_loop(assignment)
        self._loops[assignment.partition] = loop
        loop.start(self._group, after=partial(self._when_free, assignment.partition, held))

    async def revoke(self, assignment: Assignment, *, lost: bool) -> None:
        """Stop processing under this assignment; a newer one is not touched."""
        loop = self._loops.get(assignment.partition)
        if loop is not None and loop.assignment.epoch == assignment.epoch:
            await loop.stop(drain=not lost)

    async def leave(self) -> None:
        """Finish the current messages, release every partition, end the registration. What fails here ends with its TTL."""
        staying, self._staying = self._staying, None
        if staying is None:
            return
        staying.cancel()
        await asyncio.wait((staying,))
        info, self._info = self._info, None
        await asyncio.gather(*(loop.stop(drain=True) for loop in self._loops.values()))
        self._close_handlers()
        await asyncio.gather(*(self._release(loop.assignment) for loop in self._loops.values()))
        if info is not None:
            with suppress(UnavailableError, OutcomeUnknownError):
                await self._registry.leave(info)

    async def _release(self, held: Assignment) -> None:
        # By its own epoch: a process that replaced this one keeps its partitions.
        with suppress(UnavailableError, OutcomeUnknownError):
            await self._registry.release(held.partition, self.consumer, held.epoch)

    @asynccontextmanager
    async def _live(self, *, follow: bool) -> AsyncIterator[Self]:
        if self._group is not None:
            raise InvalidError("engine to run", self.consumer, "stopped")
        self._loops = {}
        await self._join()
        try:
            async with task_group() as self._group:
                self._staying = self._group.create_task(self._stay(follow=follow))
                try:
                    yield self
                finally:
                    await self.leave()
        except BaseExceptionGroup as failed:
            raise unwrap_exception_group(failed) from None
        finally:
            self._group = self._info = None

    async def _join(self) -> None:
        self._info = info = await self._registry.register(self.consumer)
        # An earlier process of this id may still run under the epochs it holds: release them instead of continuing under them.
        view = await self._registry.snapshot()
        mine = view.assignments_of(self.consumer)
        for state in view.owned_by(self.consumer):
            if state.id not in mine and self._info is info:
                await self._registry.release(state.id, self.consumer, state.epoch)

    async def _stay(self, *, follow: bool) -> None:
        """Keep the registration; if it expired (after a long suspend), drop everything and register again."""
        while True:
            async with background_tasks(self._follow()) if follow else nullcontext():
                await self._keep_registered()
            self._info = None
            await asyncio.gather(*(loop.stop(drain=False) for loop in self._loops.values()))
            await self._retry_until_answered(self._join)
            _log.warning("registration of %s expired; registered again", self.consumer)

    async def _keep_registered(self) -> None:
        """Renew until the registration has expired; `FencedError` once another process has taken the id."""
        info = self._info
        if info is None:
            return
        alive = True
        while alive:
            await self._clock.sleep_ms(info.ttl_ms / 3)
            alive = await self._retry_until_answered(lambda: self._registry.keep_registered(info))
        self._check_replaced(await self._retry_until_answered(lambda: self._registry.registered(self.consumer)), info)

    def _check_replaced(self, found: ConsumerInfo | None, mine: ConsumerInfo) -> None:
        if found is not None and found.version > mine.version:
            raise FencedError(f"consumer {self.consumer}", mine.version, found.version)

    async def _retry_until_answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        attempt = 0
        while True:
            try:
                return await ask()
            except (UnavailableError, OutcomeUnknownError) as error:
                _log.warning("the registration of %s waits for the store: %s", self.consumer, error)
            await self._clock.sleep_ms(backoff_ms(attempt, base_ms=20, max_ms=1_000, random=self._random))
            attempt += 1

    async def _follow(self) -> None:
        async with aclosing(self._registry.watch()) as views:
            async for view in views:
                await self._match(view)

    async def _match(self, view: RegistryView) -> None:
        """Stop what the view no longer assigns to us, then start what it newly does."""
        info = self._info
        if info is None:
            return
        registered = view.consumers.get(self.consumer)
        self._check_replaced(registered, info)
        wanted = view.assignments_of(self.consumer) if registered == info else {}
        gone = [
            loop
            for number, loop in self._loops.items()
            if not loop.stopped and (number not in wanted or wanted[number].epoch > loop.assignment.epoch)
        ]
        await asyncio.gather(*(loop.stop(drain=False) for loop in gone))
        for number, assignment in wanted.items():
            held = self._loops.get(number)
            # A loop that ended by itself under this epoch was refused or gave up: the same epoch is not started again.
            if held is None or held.assignment.epoch < assignment.epoch:
                await self.assign(assignment)

    async def _when_free(self, number: int, held: ClaimLoop | None) -> None:
        """Wait until no earlier handler of the partition runs. Without heartbeats meanwhile: one that hangs costs the claim."""
        if held is not None:
            await held.ended.wait()
