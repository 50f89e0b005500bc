"""A world: one seed makes the actors, the weather and every incident, runs them, and judges the history.

The one rule: the seed decides everything. Two runs of one seed and variant give equal histories, on any machine.

A run has three acts: trouble (incidents and bad weather), a tail in which nothing fails any more and work must go on, and a
leaving in good order after which nothing may be held.
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
from holdfast.sim.life import Stage
from holdfast.sim.loop import SimLoop, StuckError
from holdfast.sim.network import Weather
from holdfast.sim.process import Process, SimClock
from holdfast.sim.server import Server
from holdfast.sim.variant import CORRECT, Variant
from holdfast.vocabulary.clock import SeededChance

TROUBLE_TTLS: Final = 3.5  # how long things fail, in session TTLs
TAIL_TTLS: Final = 6  # how soon after that every resource must be worked on again
NAMES: Final = ("ann", "bob", "cyd", "dan", "eve")


class Run(msgspec.Struct, frozen=True):
    """What one seed came to."""

    seed: int
    variant: str
    violations: list[Violation]
    counts: dict[str, int]
    events: list[Event]


def run_seed(seed: int, *, variant: Variant = CORRECT, tracing: bool = False) -> Run:
    """Run one world from beginning to end."""
    loop = SimLoop()
    history = History(loop, tracing=tracing)
    world = World(seed, loop, history, variant)
    main = loop.create_task(world.run(), name="world")
    try:
        loop.run_until_complete(main)
    except StuckError as stuck:
        history.crashed("world", str(stuck))
        world.abandon()
    finally:
        loop.close()
    for context in loop.errors:
        history.crashed("loop", f"{context.get('message')}: {context.get('exception')!r}")
    return Run(seed, variant.name, check(history.events), history.counts, history.events)


@dataclass(frozen=True, slots=True)
class Climate:
    """How rough this seed is. Some are nearly calm, some are awful: bugs hide in both."""

    ttl_ms: int
    actors: int
    resources: int
    incidents: int
    lost_share: float
    slow_share: float
    ambush_share: float
    reaper_task: bool

    @classmethod
    def draw(cls, chance: SeededChance) -> "Climate":
        """What a seed draws first."""
        random = chance.random
        roughness = random.random()
        return cls(
            ttl_ms=random.choice((1000, 2000, 4000)),
            actors=random.choice((3, 3, 3, 4)),
            resources=random.choice((2, 2, 2, 3)),
            incidents=random.randint(2, 4 + int(6 * roughness)),
            lost_share=random.choice((0.0, 0.02, 0.08)) * roughness,
            slow_share=random.choice((0.0, 0.03, 0.1)) * roughness,
            ambush_share=random.choice((0.0, 0.05, 0.1)),
            reaper_task=random.random() < 0.125,
        )


class World:
    """Everything that exists in one run."""

    def __init__(self, seed: int, loop: SimLoop, history: History, variant: Variant) -> None:
        self._loop, self._history = loop, history
        self._chance = chance = SeededChance(seed)
        self._climate = climate = Climate.draw(chance)
        self._random = chance.random
        ttl_ms = climate.ttl_ms
        self._clock = SimClock(loop, Process("store", loop))
        self._server = Server(
            variant.store,
            clock=self._clock,
            chance=chance,
            history=history,
            resolve_is_final=variant.resolve_is_final,
        )
        self._weather = Weather(
            delay_ms=0.02 * ttl_ms,
            slow_ms=1.5 * ttl_ms,
            timeout_ms=0.25 * ttl_ms,
            slow_share=climate.slow_share,
            lost_share=climate.lost_share,
            resync_share=0.05,
            ambush_share=climate.ambush_share,
        )
        self._stage = Stage(
            loop=loop,
            server=self._server,
            weather=self._weather,
            chance=chance,
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
        self._resources = tuple(f"r{number}" for number in range(climate.resources))
        self._actors = self._cast()

    def _cast(self) -> list[Actor]:
        """Every resource has two contenders at least; every actor has work."""
        random, climate = self._random, self._climate
        wanted: list[set[str]] = [{self._resources[at % climate.resources]} for at in range(climate.actors)]
        for resource in self._resources:
            others = [mine for mine in wanted if resource not in mine]
            have = climate.actors - len(others)
            for mine in random.sample(others, min(len(others), max(2 - have, random.randint(0, 1)))):
                mine.add(resource)
        return [
            Actor(
                NAMES[at],
                tuple(sorted(resources)),
                self._stage,
                watches=random.random() < 0.35,
                rate=random.uniform(0.95, 1.05),  # the margin covers a tenth
                wall_offset_ms=random.uniform(-1.0, 1.0) * climate.ttl_ms,
            )
            for at, resources in enumerate(wanted)
        ]

    async def run(self) -> None:
        """The three acts."""
        ttl_ms = self._climate.ttl_ms
        for actor in self._actors:
            self._loop.post_at(self._random.random() * ttl_ms / 4, actor.start)
        for _ in range(self._climate.incidents):
            self._loop.post_at(self._random.uniform(0.5, TROUBLE_TTLS) * ttl_ms, self._draw_incident())
        reaper = asyncio.ensure_future(self._server.store.reap_when_due()) if self._climate.reaper_task else None
        self._tick()
        await self._clock.sleep_ms((TROUBLE_TTLS + 0.01) * ttl_ms)
        self._weather.clear()
        self._server.restart()
        for actor in self._actors:
            actor.heal()
        self._history.healed()
        tail_ms = self._loop.now_ms + TAIL_TTLS * ttl_ms
        while self._loop.now_ms < tail_ms and not self._history.worked.issuperset(self._resources):
            await self._clock.sleep_ms(ttl_ms / 4)
        for actor in self._actors:
            actor.leave()
        await asyncio.gather(*(task for actor in self._actors for task in actor.tasks), return_exceptions=True)
        await self._clock.sleep_ms(2 * ttl_ms)  # until the slowest message of old has arrived
        self._server.store.reap()
        self._history.stopped(self._resources, self._server.look())
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
        """An onlooker reads; now and then a reaper passes: a contender's commit may well come first."""
        reaps = not self._climate.reaper_task and self._random.random() < 0.5
        if self._server.up:
            if reaps:
                self._server.store.reap()
            self._server.look()
        self._loop.post_at(self._loop.now_ms + self._random.uniform(0.2, 1.2) * self._climate.ttl_ms, self._tick)

    def _draw_incident(self) -> Callable[[], None]:
        random, ttl_ms = self._random, self._climate.ttl_ms
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
        """Steps are mistakes, so most are taken back; the boot clock, by which an honest store judges, knows nothing of it."""
        self._history.count("store wall steps")
        self._history.note("store", f"has its wall clock stepped ({by_ms:.0f} ms)")
        self._server.look()
        self._clock.step_wall_ms(by_ms)
        self._server.look()
        if back_after_ms:
            self._loop.post_at(self._loop.now_ms + back_after_ms, self._step_store_wall, -by_ms)
