"""AgentHost: a machine with a disk, a clock and a link, on which one agent process runs at a time.

The one rule: the process runs `running_agent`, as `holdfast serve` does. Faults come from outside; a process that ends with
an error is started again, as by a supervisor.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from holdfast.agent.agent import Agent, running_agent
from holdfast.agent.settings import AgentSettings
from holdfast.log.keys import LOGS
from holdfast.log.wal import Wal
from holdfast.sim.cluster.disk import SYNC_FAILED, SimDisk
from holdfast.sim.cluster.history import ClusterHistory
from holdfast.sim.cluster.loop import ClusterLoop
from holdfast.sim.cluster.objects import Bucket, BucketConditions, SimObjects
from holdfast.sim.cluster.replicas import ReplicaWires
from holdfast.sim.cluster.wal_threads import SteppedFileWorker, SteppedWriter
from holdfast.sim.network import NetworkConditions, NetworkLink, SimStoreClient
from holdfast.sim.process import RUNNING, SimClock, SimProcess
from holdfast.sim.store_server import SimStoreServer
from holdfast.vocabulary.errors import CorruptError, HoldfastError, UnavailableError
from holdfast.vocabulary.random import SeededRandom
from holdfast.vocabulary.tasks import leaf_errors

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterContext:
    """What all hosts and clients of a world share."""

    loop: ClusterLoop
    server: SimStoreServer
    bucket: Bucket
    network: NetworkConditions
    bucket_conditions: BucketConditions
    wires: ReplicaWires
    random: SeededRandom
    history: ClusterHistory
    settings: Callable[[str], AgentSettings]
    directory: Path
    ttl_ms: int


class AgentHost:
    """One machine."""

    def __init__(self, name: str, context: ClusterContext, *, rate: float, wall_offset_ms: float) -> None:
        self.name, self._shared = name, context
        self._rate, self._wall_offset_ms = rate, wall_offset_ms
        self.link, self.clients_link = NetworkLink(), NetworkLink()  # to the store, and of clients
        self.objects_link, self.peer_link = NetworkLink(), NetworkLink()
        directory = context.directory / name
        directory.mkdir()
        self.disk = SimDisk(directory, context.random, blocks=context.random.random.random() < 0.25)
        self.agent: Agent | None = None
        self.tasks: list[asyncio.Task[None]] = []
        self.wanted = True  # a process that ends is started again
        self.doomed = ""  # the failpoint, or its area, at which the process dies next
        self.process = SimProcess(name, context.loop)
        self.process.die()
        self._incarnations = 0
        self._away_ms = 0.0  # between a graceful stop and the next start
        self._requests: dict[asyncio.Task[Any], None] = {}
        self._stop = asyncio.Event()
        self._context = Context()

    def start(self) -> None:
        """Start the next process, unless one runs."""
        if not self.wanted or not self.process.dead:
            return
        shared = self._shared
        self._incarnations += 1
        name = f"{self.name}.{self._incarnations}"
        self.process = process = SimProcess(name, shared.loop)
        self.clock = SimClock(
            shared.loop,
            process,
            rate=self._rate,
            boot_offset_ms=1000.0 * self._incarnations,
            wall_offset_ms=self._wall_offset_ms,
        )
        self._stop = asyncio.Event()
        context = copy_context()
        context.run(RUNNING.set, process)
        self._context = context
        task = shared.loop.create_task(self._run(process), name=name, context=context)
        task.add_done_callback(partial(self._ended, process))
        self.tasks.append(task)
        shared.history.note(name, "starts")

    async def _run(self, process: SimProcess) -> None:
        shared = self._shared
        self._store = store = SimStoreClient(
            shared.server,
            loop=shared.loop,
            process=process,
            link=self.link,
            conditions=shared.network,
            random=shared.random,
            history=shared.history,
        )
        objects = SimObjects(
            shared.bucket,
            loop=shared.loop,
            process=process,
            link=self.objects_link,
            conditions=shared.bucket_conditions,
            random=shared.random,
            history=shared.history,
        )
        async with running_agent(
            shared.settings(self.name),
            self.disk.directory,
            store=store,
            objects=objects,
            clock=self.clock,
            random=shared.random,
            open_wal=partial(Wal.open, disk=self.disk, writer=SteppedWriter, file_worker=SteppedFileWorker),
            connect_replicas=shared.wires.connect(self.peer_link),
        ) as agent:
            self.agent = agent
            try:
                await self._stop.wait()
            finally:
                if self.process is process:
                    self.agent = None

    def _ended(self, process: SimProcess, task: "asyncio.Task[None]") -> None:
        """The process is over: by itself, or because it was killed."""
        was_dead = process.dead
        if not was_dead:
            process.die()
            self._cancel_requests()
        error = None if task.cancelled() else task.exception()
        if was_dead:
            return
        if error is None:
            self._after(self._away_ms, self.start)
            return
        causes = list(leaf_errors(error))
        self._shared.history.note(process.name, f"ends: {'; '.join(map(str, causes))}")
        self._shared.history.count("processes failed")
        if any(isinstance(each, CorruptError) and SYNC_FAILED in str(each) for each in causes):
            self.disk.lose_power()  # the system may have dropped the pages
        elif not all(isinstance(each, UnavailableError) for each in causes):
            self._shared.history.actor_crashed(process.name, repr(error))
        self._after(self._shared.ttl_ms / 2, self.start)

    def kill(self, duration_ms: float, *, power: bool) -> None:
        """Be killed, or lose power, and start again after a while."""
        shared = self._shared
        if self.process.dead:
            return
        self.record("power failures" if power else "deaths", "loses power" if power else "is killed", duration_ms)
        self.agent = None
        self.process.die()
        self._cancel_requests()
        if power:
            torn = self.disk.lose_power()
            if torn:
                shared.history.count("unsynced writes torn")
        self.tasks[-1].cancel()
        self._after(duration_ms, self.start)

    def _cancel_requests(self) -> None:
        for request in list(self._requests):
            request.cancel()

    def at_failpoint(self, failpoint: str) -> None:
        """The process is at this failpoint: die here, if it is to."""
        if (
            failpoint == "publish.before-commit"
            and self._shared.random.random.random() < self._shared.network.ambush_share
        ):
            self._ambush()
        if self.doomed and failpoint.startswith(self.doomed) and not self.process.dead:
            self.doomed = ""
            self._shared.history.count("deaths at failpoints")
            self._shared.history.note(self.process.name, f"is at {failpoint}")
            rng = self._shared.random.random
            self.kill(rng.random() * self._shared.ttl_ms, power=rng.random() < 0.7)
            raise asyncio.CancelledError

    def _ambush(self) -> None:
        """The worst moment: the publication is delayed in the network, and its sender paused or killed meanwhile."""
        rng, ttl_ms = self._shared.random.random, self._shared.ttl_ms
        self.record("ambushes", "is ambushed", 0)
        delay_ms = rng.choice((rng.uniform(0.3, 0.9), rng.uniform(1.5, 3.0))) * ttl_ms
        duration_ms = delay_ms + rng.uniform(-0.2, 1.0) * ttl_ms
        strike = rng.choice((self.pause, self.pause, partial(self.kill, power=False)))
        self.delay_commit(LOGS, delay_ms, partial(strike, duration_ms))

    def delay_commit(self, prefix: str, delay_ms: float, on_sent: Callable[[], object]) -> None:
        """Delay the next commit of this host's process that writes below `prefix`, and call back right after it was sent."""
        self._store.delay_commit(prefix, delay_ms, on_sent)

    def leave(self, duration_ms: float) -> None:
        """Leave gracefully, and start again some time after."""
        if self.agent is not None:
            self.record("graceful stops", "is stopped gracefully", duration_ms)
            self._away_ms = duration_ms
            self._stop.set()

    def stop(self) -> None:
        """Leave gracefully, for good."""
        self.wanted = False
        self._stop.set()

    def pause(self, duration_ms: float) -> None:
        """Pause for a while."""
        self.record("pauses", "stands still", duration_ms)
        self.process.pause()
        self._after(duration_ms, self.resume)

    def resume(self) -> None:
        """Go on after a pause."""
        self.process.resume(self._shared.random.random.shuffle)

    def step_wall(self, by_ms: float) -> None:
        """Have the wall clock stepped."""
        self.record("wall steps", "has its wall clock stepped", by_ms)
        self._wall_offset_ms += by_ms
        self.clock.step_wall_ms(by_ms)

    def heal(self) -> None:
        """End all faults of this host."""
        self.doomed = ""
        self.disk.full = self.disk.broken = False
        self.disk.slow_ms = 0.0
        for link in (self.link, self.clients_link, self.objects_link, self.peer_link):
            link.up, link.deaf = True, False
        self.start()
        self.resume()

    def request(
        self, work: Callable[[Agent], Coroutine[Any, Any, T]], answer: Callable[[T | None, Exception | None], None]
    ) -> None:
        """A client's request arrives: run it in the process, and answer, unless the process dies first."""
        if self.agent is None or self.process.dead:
            answer(None, UnavailableError(self.name, "the connection was refused"))
            return
        self.process.deliver(self._begin, self.agent, work, answer)

    def _begin(
        self,
        agent: Agent,
        work: Callable[[Agent], Coroutine[Any, Any, T]],
        answer: Callable[[T | None, Exception | None], None],
    ) -> None:
        process = self.process
        task = self._shared.loop.create_task(
            work(agent), name=f"request at {process.name}", context=self._context.copy()
        )
        self._requests[task] = None

        def done(task: "asyncio.Task[T]") -> None:
            del self._requests[task]
            if process.dead or task.cancelled():
                return
            error = task.exception()
            if error is None:
                answer(task.result(), None)
            elif isinstance(error, HoldfastError):
                answer(None, error)
            else:
                self._shared.history.actor_crashed(process.name, repr(error))

        task.add_done_callback(done)

    def record(self, counted: str, text: str, duration_ms: float) -> None:
        """Count a fault, and tell the transcript."""
        self._shared.history.count(counted)
        self._shared.history.note(self.process.name, f"{text} ({duration_ms:.0f} ms)")

    def _after(self, duration_ms: float, callback: Callable[[], None]) -> None:
        self._shared.loop.post_at(self._shared.loop.now_ms + duration_ms, callback)
