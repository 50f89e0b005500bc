"""Actors: hosts whose processes pause, hang, lose the network, are killed and restart.

Faults are injected from outside: the code of the process (`lease_worker`) takes no part in them.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from holdfast.sim.lease_worker import LeaseWorker, SimContext
from holdfast.sim.network import NetworkLink, SimStoreClient
from holdfast.sim.process import SimClock, SimProcess


class Actor:
    """A host: a clock that drifts, a link that breaks, and one process at a time."""

    def __init__(
        self,
        name: str,
        resources: tuple[str, ...],
        context: SimContext,
        *,
        watches: bool,
        rate: float,
        wall_offset_ms: float,
    ) -> None:
        self.name, self._resources, self._context, self._watches = name, resources, context, watches
        self._rate, self._wall_offset_ms = rate, wall_offset_ms
        self._link = NetworkLink()
        self._incarnations = 0
        self._process = SimProcess(name, context.loop)
        self._process.die()  # none has been started yet
        self._open = True
        self.tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the next process, unless one runs."""
        if not self._open or not self._process.dead:
            return
        context = self._context
        self._incarnations += 1
        name = f"{self.name}.{self._incarnations}"
        self._process = process = SimProcess(name, context.loop)
        self._clock = SimClock(
            context.loop,
            process,
            rate=self._rate,
            boot_offset_ms=1000.0 * self._incarnations,
            wall_offset_ms=self._wall_offset_ms,
            runs_through_pauses=context.variant.boot_clock_runs_through_pauses,
        )
        self._port = SimStoreClient(
            context.server,
            loop=context.loop,
            process=process,
            link=self._link,
            conditions=context.conditions,
            random=context.random,
            history=context.history,
        )
        self._worker = LeaseWorker(
            name,
            self._resources,
            context,
            port=self._port,
            clock=self._clock,
            watches=self._watches,
            ambush=self._crash_mid_request,
        )
        task = context.loop.create_task(self._worker.run(), name=name)
        task.add_done_callback(self._over)
        self.tasks.append(task)

    def _over(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._context.history.actor_crashed(task.get_name(), repr(error))

    def pause(self, duration_ms: float) -> None:
        """Pause for a while."""
        self._record("pauses", "stands still", duration_ms)
        self._process.pause()
        self._after(duration_ms, self.resume)

    def resume(self) -> None:
        """Go on after a pause."""
        self._process.resume(self._context.random.random.shuffle)

    def die(self, duration_ms: float) -> None:
        """Be killed, and start a new process after a while."""
        self._record("deaths", "is killed", duration_ms)
        self._process.die()
        self.tasks[-1].cancel()
        self._after(duration_ms, self.start)

    def cut_off(self, duration_ms: float, *, refuses: bool = False) -> None:
        """Be without network for a while."""
        self._record("cuts", "is refused by the network" if refuses else "is swallowed by the network", duration_ms)
        self._link.up, self._link.refuses = False, refuses
        self._after(duration_ms, self.reconnect)

    def reconnect(self) -> None:
        """Have the network back."""
        self._link.up = True

    def hang(self, duration_ms: float) -> None:
        """Let the work hang for a while, though the process runs."""
        self._record("hangs", "will hang", duration_ms)
        self._worker.hang_ms = duration_ms

    def _crash_mid_request(self) -> None:
        """The worst moment: a request is delayed in the network, and its sender is paused, killed or cut off meanwhile."""
        random, ttl_ms = self._context.random.random, self._context.session.ttl_ms
        self._record("ambushes", "is ambushed", 0)
        self._port.delay_next(random.uniform(0.8, 2.0) * ttl_ms)
        strike = random.choice((self.pause, self.die, self.cut_off))
        # Not now: the request is sent before this iteration of the loop ends.
        self._after(0, partial(strike, random.uniform(1.0, 2.5) * ttl_ms))

    def step_wall(self, by_ms: float) -> None:
        """Have the wall clock stepped."""
        self._record("wall steps", "has its wall clock stepped", by_ms)
        self._wall_offset_ms += by_ms
        self._clock.step_wall_ms(by_ms)

    def heal(self) -> None:
        """End all faults of this host."""
        self.start()
        self._worker.hang_ms = 0.0
        self.reconnect()
        self.resume()

    def leave(self) -> None:
        """Ask the process to leave gracefully; none is started after it."""
        self._open = False
        if self.tasks:
            self._worker.leaving = True
            self.tasks[-1].cancel()

    def vanish(self) -> None:
        """Be killed, for the rest of the run."""
        self.leave()
        self._process.die()

    def _record(self, counted: str, text: str, duration_ms: float) -> None:
        self._context.history.count(counted)
        self._context.history.note(self._process.name, f"{text} ({duration_ms:.0f} ms)")

    def _after(self, duration_ms: float, callback: Callable[[], None]) -> None:
        self._context.loop.post_at(self._context.loop.now_ms + duration_ms, callback)
