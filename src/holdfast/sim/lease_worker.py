"""Lease worker: one process that acquires resources, works on them and releases them, repeatedly.

The one rule: it runs the kernel's own code. What it adds is a workload (effects that name actor, epoch and number) and, right
before each effect, the duty every holder has: check that the session lives, then act, with nothing awaited in between.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from holdfast.contracts.store import Committed, Put
from holdfast.kernel.keys import holder_key
from holdfast.kernel.lease import Held, Lease, read_holder
from holdfast.kernel.mirror import Mirror, open_mirror
from holdfast.kernel.session import HeldSession, SessionSettings, hold_session
from holdfast.sim.history import EFFECTS, Effect, History
from holdfast.sim.loop import SimLoop
from holdfast.sim.network import NetworkConditions, SimStoreClient
from holdfast.sim.process import SimClock
from holdfast.sim.store_server import SimStoreServer
from holdfast.sim.variant import Variant
from holdfast.vocabulary.errors import FencedError, HoldfastError
from holdfast.vocabulary.random import SeededRandom


@dataclass(frozen=True, slots=True, kw_only=True)
class SimContext:
    """What all actors of a world share."""

    loop: SimLoop
    server: SimStoreServer
    conditions: NetworkConditions
    random: SeededRandom
    history: History
    variant: Variant
    session: SessionSettings
    think_ms: float  # before an effect, at most
    rest_ms: float  # between two holdings, at most


class LeaseWorker:
    """One process: opens a session, works on its resources under it, and opens another when it loses it."""

    def __init__(
        self,
        name: str,
        resources: tuple[str, ...],
        context: SimContext,
        *,
        port: SimStoreClient,
        clock: SimClock,
        watches: bool,
        ambush: Callable[[], None],
    ) -> None:
        self._name, self._resources, self._context, self._port, self._clock = name, resources, context, port, clock
        self._rng = context.random.random
        self._number = 0
        self._watches, self._ambush = watches, ambush
        # Up to Python 3.12 a task group that fails while it is being cancelled forgets the cancellation; hence a flag of our own.
        self.leaving = False
        self.hang_ms = 0.0  # the next effect is delayed by this

    async def run(self) -> None:
        """Until killed, or asked to leave by cancellation."""
        context = self._context
        while not self.leaving:
            try:
                async with (
                    hold_session(
                        self._port, clock=self._clock, random=context.random, settings=context.session
                    ) as session,
                    asyncio.TaskGroup() as group,
                ):
                    for resource in self._resources:
                        group.create_task(self._work(session, resource))
            except* HoldfastError as ended:
                context.history.count("sessions lost")
                context.history.note(self._name, f"stops: {ended.exceptions[0]}")
            await self._rest()

    async def _work(self, session: HeldSession, resource: str) -> None:
        if not self._watches:
            await self._take_turns(session, resource, None)
            return
        async with open_mirror(
            self._port, holder_key(resource), read_holder, clock=self._clock, random=self._context.random
        ) as mirror:
            await self._take_turns(session, resource, mirror)

    async def _take_turns(self, session: HeldSession, resource: str, mirror: Mirror[Held] | None) -> None:
        context = self._context
        for _ in range(self._rng.randint(3, 8)):
            session.report_progress()
            async with context.variant.hold(
                self._port, resource, holder=self._name, session=session, clock=self._clock, random=context.random
            ) as lease:
                if isinstance(lease, Lease):
                    context.history.lease_acquired(self._name, resource, lease.epoch, lease.version)
                    await self._act(session, lease)
            if mirror is not None and not isinstance(lease, Lease):
                await mirror.notify.wait_ms(self._clock, context.rest_ms)
            else:
                await self._rest()

    async def _act(self, session: HeldSession, lease: Lease) -> None:
        context, resource = self._context, lease.resource
        for _ in range(self._rng.randint(1, 4)):
            await self._clock.sleep_ms(self._rng.random() * context.think_ms + self.hang_ms)
            self.hang_ms = 0.0
            session.check()
            self._number = number = self._number + 1
            context.history.effect_started(self._name, resource, lease.epoch, number)
            if self._rng.random() < context.conditions.ambush_share:
                self._ambush()
            value = msgspec.json.encode(Effect(self._name, lease.epoch, number))
            try:
                outcome = await context.variant.commit_fenced(
                    self._port, lease, clock=self._clock, random=context.random, apply=(Put(EFFECTS + resource, value),)
                )
            except FencedError as fenced:
                context.history.note(self._name, f"is fenced: {fenced}")
                return
            if isinstance(outcome, Committed):
                context.history.effect_acknowledged(self._name, resource, number, outcome.version)
            session.report_progress()

    async def _rest(self) -> None:
        await self._clock.sleep_ms((0.3 + 0.7 * self._rng.random()) * self._context.rest_ms)
