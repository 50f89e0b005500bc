"""Actors: hosts whose processes pause, hang, lose the network, are killed and come back.

What befalls an actor befalls it from outside: its process is not asked, and its code (`life`) does not know.
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
        self._process.die()  # nobody has started yet
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
            ambush=self._be_ambushed,
        )
        task = context.loop.create_task(self._worker.run(), name=name)
        task.add_done_callback(self._over)
        self.tasks.append(task)

    def _over(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._context.history.crashed(task.get_name(), repr(error))

    def pause(self, duration_ms: float) -> None:
        """Stand still for a while."""
        self._tell("pauses", "stands still", duration_ms)
        self._process.pause()
        self._after(duration_ms, self.resume)

    def resume(self) -> None:
        """Go on after a pause."""
        self._process.resume(self._context.random.random.shuffle)

    def die(self, duration_ms: float) -> None:
        """Be killed, and come back as a new process after a while."""
        self._tell("deaths", "is killed", duration_ms)
        self._process.die()
        self.tasks[-1].cancel()
        self._after(duration_ms, self.start)

    def cut_off(self, duration_ms: float, *, refuses: bool = False) -> None:
        """Be without network for a while."""
        self._tell("cuts", "is refused by the network" if refuses else "is swallowed by the network", duration_ms)
        self._link.up, self._link.refuses = False, refuses
        self._after(duration_ms, self.reconnect)

    def reconnect(self) -> None:
        """Have the network back."""
        self._link.up = True

    def hang(self, duration_ms: float) -> None:
        """Let the work be silent for a while, though the process runs."""
        self._tell("hangs", "will hang", duration_ms)
        self._worker.hang_ms = duration_ms

    def _be_ambushed(self) -> None:
        """The worst moment: a request has been sent and is stuck, and its sender is struck so that it cannot look after it."""
        random, ttl_ms = self._context.random.random, self._context.session.ttl_ms
        self._tell("ambushes", "is ambushed", 0)
        self._port.stick_next(random.uniform(0.8, 2.0) * ttl_ms)
        strike = random.choice((self.pause, self.die, self.cut_off))
        # Now would be too early: the request is sent before this turn of the loop ends.
        self._after(0, partial(strike, random.uniform(1.0, 2.5) * ttl_ms))

    def step_wall(self, by_ms: float) -> None:
        """Have the wall clock stepped."""
        self._tell("wall steps", "has its wall clock stepped", by_ms)
        self._wall_offset_ms += by_ms
        self._clock.step_wall_ms(by_ms)

    def heal(self) -> None:
        """Whatever is wrong with this host is over."""
        self.start()
        self._worker.hang_ms = 0.0
        self.reconnect()
        self.resume()

    def leave(self) -> None:
        """Ask the process to leave in good order; none follows it."""
        self._open = False
        if self.tasks:
            self._worker.leaving = True
            self.tasks[-1].cancel()

    def vanish(self) -> None:
        """Be gone for good, at once."""
        self.leave()
        self._process.die()

    def _tell(self, counted: str, text: str, duration_ms: float) -> None:
        self._context.history.count(counted)
        self._context.history.note(self._process.name, f"{text} ({duration_ms:.0f} ms)")

    def _after(self, duration_ms: float, callback: Callable[[], None]) -> None:
        self._context.loop.post_at(self._context.loop.now_ms + duration_ms, callback)
