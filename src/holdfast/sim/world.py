"""A world: one seed determines the actors, the network and every fault; it is run and its history checked.

The one rule: the seed decides everything. Two runs of one seed and variant give equal histories, on any machine.

A run has three phases: faults, a recovery without faults in which work must continue, and a graceful stop after which nothing may
be held.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from holdfast.kernel.session import SessionSettings
from holdfast.sim.actors import Actor
from holdfast.sim.checker import Violation, check
from holdfast.sim.history import Event, History
from holdfast.sim.lease_worker import SimContext
from holdfast.sim.loop import SimLoop, StuckError
from holdfast.sim.network import NetworkConditions
from holdfast.sim.process import SimClock, SimProcess
from holdfast.sim.store_server import SimStoreServer
from holdfast.sim.variant import CORRECT, Variant
from holdfast.vocabulary.random import SeededRandom

FAULT_PHASE_TTLS: Final = 3.5  # how long things fail, in session TTLs
RECOVERY_PHASE_TTLS: Final = 6  # how soon after that every resource must be worked on again
ACTOR_NAMES: Final = ("ann", "bob", "cyd", "dan", "eve")


class SeedRun(msgspec.Struct, frozen=True):
    """The result of one seed."""

    seed: int
    variant: str
    violations: list[Violation]
    counts: dict[str, int]
    events: list[Event]


def run_seed(seed: int, *, variant: Variant = CORRECT, tracing: bool = False) -> SeedRun:
    """Run one world from beginning to end."""
    loop = SimLoop()
    history = History(loop, tracing=tracing)
    world = World(seed, loop, history, variant)
    main = loop.create_task(world.run(), name="world")
    try:
        loop.run_until_complete(main)
    except StuckError as stuck:
        history.actor_crashed("world", str(stuck))
        world.abandon()
    finally:
        loop.close()
    for context in loop.errors:
        history.actor_crashed("loop", f"{context.get('message')}: {context.get('exception')!r}")
    return SeedRun(seed, variant.name, check(history.events), history.counts, history.events)


@dataclass(frozen=True, slots=True)
class FaultProfile:
    """How many faults this seed has: from few to many, for bugs show up under either."""

    ttl_ms: int
    actors: int
    resources: int
    incidents: int
    lost_share: float
    slow_share: float
    ambush_share: float
    reaper_task: bool

    @classmethod
    def draw(cls, random: SeededRandom) -> "FaultProfile":
        """What a seed draws first."""
        rng = random.random
        roughness = rng.random()
        return cls(
            ttl_ms=rng.choice((1000, 2000, 4000)),
            actors=rng.choice((3, 3, 3, 4)),
            resources=rng.choice((2, 2, 2, 3)),
            incidents=rng.randint(2, 4 + int(6 * roughness)),
            lost_share=rng.choice((0.0, 0.02, 0.08)) * roughness,
            slow_share=rng.choice((0.0, 0.03, 0.1)) * roughness,
            ambush_share=rng.choice((0.0, 0.05, 0.1)),
            reaper_task=rng.random() < 0.125,
        )


class World:
    """Everything that exists in one run."""

    def __init__(self, seed: int, loop: SimLoop, history: History, variant: Variant) -> None:
        self._loop, self._history = loop, history
        self._random = random = SeededRandom(seed)
        self._profile = profile = FaultProfile.draw(random)
        self._rng = random.random
        ttl_ms = profile.ttl_ms
        self._clock = SimClock(loop, SimProcess("store", loop))
        self._server = SimStoreServer(
            variant.store,
            clock=self._clock,
            random=random,
            history=history,
            resolve_is_final=variant.resolve_is_final,
        )
        self._conditions = NetworkConditions(
            delay_ms=0.02 * ttl_ms,
            slow_ms=1.5 * ttl_ms,
            timeout_ms=0.25 * ttl_ms,
            slow_share=profile.slow_share,
            lost_share=profile.lost_share,
            resync_share=0.05,
            ambush_share=profile.ambush_share,
        )
        self._context = SimContext(
            loop=loop,
            server=self._server,
            conditions=self._conditions,
            random=random,
            history=history,
            variant=variant,
            session=SessionSettings(
                ttl_ms=ttl_ms,
                renew_ms=9 * ttl_ms // 20,
                margin_ms=ttl_ms // 10,
                stall_ms=ttl_ms,
                retry_ms=ttl_ms // 10,
            ),
            think_ms=0.6 * ttl_ms,
            rest_ms=0.9 * ttl_ms,
        )
        self._resources = tuple(f"r{number}" for number in range(profile.resources))
        self._actors = self._cast()

    def _cast(self) -> list[Actor]:
        """Every resource has two contenders at least; every actor has work."""
        random, profile = self._rng, self._profile
        wanted: list[set[str]] = [{self._resources[at % profile.resources]} for at in range(profile.actors)]
        for resource in self._resources:
            others = [mine for mine in wanted if resource not in mine]
            have = profile.actors - len(others)
            for mine in random.sample(others, min(len(others), max(2 - have, random.randint(0, 1)))):
                mine.add(resource)
        return [
            Actor(
                ACTOR_NAMES[at],
                tuple(sorted(resources)),
                self._context,
                watches=random.random() < 0.35,
                rate=random.uniform(0.95, 1.05),  # the margin covers a tenth
                wall_offset_ms=random.uniform(-1.0, 1.0) * profile.ttl_ms,
            )
            for at, resources in enumerate(wanted)
        ]

    async def run(self) -> None:
        """The three phases."""
        ttl_ms = self._profile.ttl_ms
        for actor in self._actors:
            self._loop.post_at(self._rng.random() * ttl_ms / 4, actor.start)
        for _ in range(self._profile.incidents):
            self._loop.post_at(self._rng.uniform(0.5, FAULT_PHASE_TTLS) * ttl_ms, self._draw_incident())
        reaper = asyncio.ensure_future(self._server.store.reap_when_due()) if self._profile.reaper_task else None
        self._tick()
        await self._clock.sleep_ms((FAULT_PHASE_TTLS + 0.01) * ttl_ms)
        self._conditions.clear()
        self._server.restart()
        for actor in self._actors:
            actor.heal()
        self._history.faults_healed()
        tail_ms = self._loop.now_ms + RECOVERY_PHASE_TTLS * ttl_ms
        while self._loop.now_ms < tail_ms and not self._history.worked.issuperset(self._resources):
            await self._clock.sleep_ms(ttl_ms / 4)
        for actor in self._actors:
            actor.leave()
        await asyncio.gather(*(task for actor in self._actors for task in actor.tasks), return_exceptions=True)
        await self._clock.sleep_ms(2 * ttl_ms)  # until the slowest message in flight has arrived
        self._server.store.reap()
        self._history.actors_stopped(self._resources, self._server.observe_holders())
        if reaper is not None:
            reaper.cancel()
            await asyncio.gather(reaper, return_exceptions=True)

    def abandon(self) -> None:
        """End every task of a world that is stuck, so that none outlives it."""
        for actor in self._actors:
            actor.vanish()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.callbacks_left = 10_000
        self._loop.post_at(self._loop.now_ms + 1, self._loop.stop)
        with suppress(StuckError):  # it was stuck before; the seed fails either way
            self._loop.run_forever()

    def _tick(self) -> None:
        """Observe the holders; sometimes reap, so that either a reaper's commit or a contender's ends a session."""
        reaps = not self._profile.reaper_task and self._rng.random() < 0.5
        if self._server.up:
            if reaps:
                self._server.store.reap()
            self._server.observe_holders()
        self._loop.post_at(self._loop.now_ms + self._rng.uniform(0.2, 1.2) * self._profile.ttl_ms, self._tick)

    def _draw_incident(self) -> Callable[[], None]:
        random, ttl_ms = self._rng, self._profile.ttl_ms
        actor = random.choice(self._actors)
        kind = random.random()
        if kind < 0.05:
            duration_ms = random.uniform(0.1, 1.5) * ttl_ms
            return lambda: self._crash_store(duration_ms)
        if kind < 0.35:
            duration_ms = random.uniform(0.2, 2.5) * ttl_ms
            return lambda: actor.pause(duration_ms)
        if kind < 0.55:
            duration_ms = random.uniform(0.05, 1.5) * ttl_ms
            return lambda: actor.die(duration_ms)
        if kind < 0.75:
            duration_ms, refuses = random.uniform(0.1, 2.0) * ttl_ms, random.random() < 0.5
            return lambda: actor.cut_off(duration_ms, refuses=refuses)
        if kind < 0.85:
            duration_ms = random.uniform(0.5, 2.0) * ttl_ms
            return lambda: actor.hang(duration_ms)
        by_ms = random.uniform(-3.0, 3.0) * ttl_ms
        if kind < 0.9:
            return lambda: actor.step_wall(by_ms)
        back_ms = random.uniform(0.1, 1.5) * ttl_ms
        return lambda: self._step_store_wall(by_ms, back_after_ms=back_ms)

    def _crash_store(self, duration_ms: float) -> None:
        self._server.crash()
        self._loop.post_at(self._loop.now_ms + duration_ms, self._server.restart)

    def _step_store_wall(self, by_ms: float, *, back_after_ms: float = 0.0) -> None:
        """Most steps are taken back after a while; the boot clock, which a correct store uses, is not affected."""
        self._history.count("store wall steps")
        self._history.note("store", f"has its wall clock stepped ({by_ms:.0f} ms)")
        self._server.observe_holders()
        self._clock.step_wall_ms(by_ms)
        self._server.observe_holders()
        if back_after_ms:
            self._loop.post_at(self._loop.now_ms + back_after_ms, self._step_store_wall, -by_ms)
