"""ConsumerCoordinator: watches the registry, rebalances it, and pushes assignments to the engines of its process.

The one rule: revoke before assign, and no call for what did not change. An engine whose partition moves may finish the
message it is processing before the partition is released; one that lost its partition stops at once.

Any number of coordinators may run, in any processes: the store decides their races. Each pushes only to engines it was
given; engines of other processes follow the registry by themselves (`ConsumerEngine.following`).
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Final, Protocol, Self

from holdfast.registry.model import Assignment, PartitionMove
from holdfast.registry.rebalancer import Rebalancer
from holdfast.registry.store import RegistryStore
from holdfast.registry.view import RegistryView
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random, backoff_ms
from holdfast.vocabulary.tasks import Notify, background_tasks, gather_or_cancel

_log: Final = logging.getLogger(__name__)


class CoordinatedConsumer(Protocol):
    """What a coordinator pushes to."""

    consumer: str

    @property
    def session(self) -> str | None:
        """The session of its registration; None while it is not registered. Claims of another session are not pushed."""
        ...

    async def assign(self, assignment: Assignment) -> None:
        """Start processing a partition under the assignment's epoch."""
        ...

    async def revoke(self, assignment: Assignment, *, lost: bool) -> None:
        """Stop processing. `lost`: the claim is gone, stop at once; otherwise finish the current message, if that is quick."""
        ...

    async def leave(self) -> None:
        """Stop everything, release it, and end the registration. Leaving twice does nothing."""
        ...


class ConsumerCoordinator:
    """Ticks when the registry changes, and every `rebalance_interval_ms` in case a change was missed."""

    def __init__(self, registry: RegistryStore, *, clock: Clock, random: Random) -> None:
        self.rebalancer = Rebalancer(registry)
        self._registry, self._clock, self._random = registry, clock, random
        self._engines: dict[str, CoordinatedConsumer] = {}
        self._pushed: dict[str, dict[int, Assignment]] = {}
        self._changed = Notify()
        self._turn = asyncio.Lock()  # one tick at a time

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Tick while the body runs. Leaving it leaves all claims and engines as they are."""
        async with background_tasks(self._tick_when_needed(), self._listen()):
            yield self

    async def add_consumer(self, engine: CoordinatedConsumer) -> None:
        """Push this engine's assignments to it from the next tick on, which is soon while running."""
        if engine.session is None:
            raise InvalidError("consumer to add", engine.consumer, "a running engine")
        if self._engines.setdefault(engine.consumer, engine) is not engine:
            raise InvalidError("consumer to add", engine.consumer, "new to this coordinator")
        self._pushed.setdefault(engine.consumer, {})
        self._changed.notify()

    async def remove_consumer(self, engine: CoordinatedConsumer) -> None:
        """Let the engine finish and leave; its partitions have no owner until the next tick."""
        async with self._turn:
            if self._engines.get(engine.consumer) is not engine:
                return
            await engine.leave()
            del self._engines[engine.consumer], self._pushed[engine.consumer]
        self._changed.notify()

    async def tick(self) -> tuple[PartitionMove, ...]:
        """Reclaim, rebalance, push; the moves that happened. Safe to call at any time, running or not."""
        async with self._turn:
            reclaimed = await self.rebalancer.reclaim_expired()
            view = await self._registry.snapshot()
            await self._revoke_lost(view)
            moves = self.rebalancer.plan(view, reclaimed=reclaimed)
            done: tuple[PartitionMove, ...] = ()
            if moves:
                await self._revoke_leaving(moves)
                done = await self.rebalancer.carry_out(moves)
                view = await self._registry.snapshot()
                await self._revoke_lost(view)
            await self._assign_new(view)
            return done

    def _wanted(self, view: RegistryView, engine: CoordinatedConsumer) -> dict[int, Assignment]:
        registered = view.consumers.get(engine.consumer)
        if registered is None or registered.session != engine.session:
            return {}
        return view.assignments_of(engine.consumer)

    async def _revoke_lost(self, view: RegistryView) -> None:
        gone = []
        for consumer, engine in self._engines.items():
            wanted = self._wanted(view, engine)
            for number, held in list(self._pushed[consumer].items()):
                if number not in wanted or wanted[number].epoch != held.epoch:
                    gone.append(engine.revoke(held, lost=True))
                    del self._pushed[consumer][number]
        await gather_or_cancel(*gone)

    async def _revoke_leaving(self, moves: tuple[PartitionMove, ...]) -> None:
        leaving = []
        for move in moves:
            held = self._pushed.get(move.source or "", {}).pop(move.partition, None)
            if held is not None:
                leaving.append(self._engines[held.consumer].revoke(held, lost=False))
        await gather_or_cancel(*leaving)

    async def _assign_new(self, view: RegistryView) -> None:
        for consumer, engine in list(self._engines.items()):
            for number, assignment in self._wanted(view, engine).items():
                if number not in self._pushed[consumer]:
                    self._pushed[consumer][number] = assignment
                    await engine.assign(assignment)

    async def _tick_when_needed(self) -> None:
        failures = 0
        while True:
            wait_ms: float = self._random.jitter(self._registry.settings.rebalance_interval_ms)
            try:
                await self.tick()
                failures = 0
            except (UnavailableError, OutcomeUnknownError) as error:
                wait_ms = min(wait_ms, backoff_ms(failures, base_ms=50, max_ms=5_000, random=self._random))
                failures += 1
                _log.warning("rebalance delayed by %.0f ms: %s", wait_ms, error)
            if await self._changed.wait_ms(self._clock, wait_ms):
                # Consumers often come and go together: one plan for all of them moves less than one for each.
                await self._clock.sleep_ms(self._random.jitter(self._registry.settings.settle_ms))

    async def _listen(self) -> None:
        async with aclosing(self._registry.watch()) as views:
            async for _ in views:
                self._changed.notify()
