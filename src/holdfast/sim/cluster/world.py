"""A world of agents: one seed determines hosts, disks, networks, clients and every fault.

The one rule: the seed decides everything, as in the world of leases. A run has the same three phases: faults; a recovery without
faults, in which every partition must take records and be read to its end; and a graceful stop after which nothing is held.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast.log.model import QUORUM
from holdfast.sim.checker import Violation
from holdfast.sim.cluster.agent_logs import collecting_logs
from holdfast.sim.cluster.checker import check_cluster
from holdfast.sim.cluster.clients import BurstProducer, Reader, SimulatedAdmin, SimulatedGroupMember, SimulatedProducer
from holdfast.sim.cluster.history import ClusterEvent, ClusterHistory
from holdfast.sim.cluster.host import AgentHost, ClusterContext
from holdfast.sim.cluster.loop import ClusterLoop
from holdfast.sim.cluster.mutants import CORRECT, ClusterVariant
from holdfast.sim.cluster.objects import Bucket, BucketConditions
from holdfast.sim.cluster.profile import ClusterProfile, agent_settings
from holdfast.sim.cluster.replicas import ReplicaWires
from holdfast.sim.cluster.takeover_faults import TakeoverFaults
from holdfast.sim.loop import StuckError
from holdfast.sim.network import NetworkConditions
from holdfast.sim.process import RUNNING, SimClock, SimProcess
from holdfast.sim.store_server import SimStore, SimStoreServer
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.random import SeededRandom
from holdfast.vocabulary.types import TopicPartition

FAULT_PHASE_TTLS: Final = 3
SCHEDULE_TTLS: Final = 6  # for the faults of a schedule, whose steps wait for each other
RECOVERY_PHASE_TTLS: Final = 30
FINISH_TTLS: Final = 4  # for the last batch of each producer
FAILPOINT_AREAS: Final = (
    "wal.group-written",
    "wal.group-synced",
    "wal.file-",
    "wal.",
    "takeover.",
    "publish.",
    "publish.segments-uploaded",
    "publish.before-commit",
    "publish.committed",
    "maintenance.",
    "owner.",
)
MEMORY = Path("/dev/shm")  # noqa: S108 (a folder of its own is made in it)
HOST_NAMES: Final = ("ann", "bob", "cyd", "dan")
CALLBACKS_MAX: Final = 3_000_000


class ClusterRun(msgspec.Struct, frozen=True):
    """The result of one seed."""

    seed: int
    variant: str
    violations: list[Violation]
    counts: dict[str, int]
    events: list[ClusterEvent]


def run_cluster_seed(seed: int, *, variant: ClusterVariant = CORRECT, tracing: bool = False) -> ClusterRun:
    """Run one world from beginning to end."""
    random = SeededRandom(seed)
    loop = ClusterLoop(random, callbacks_max=CALLBACKS_MAX)
    history = ClusterHistory(loop, tracing=tracing)
    with _folder() as directory:
        history.folder = f"{directory}/"
        world = ClusterWorld(loop, history, random, directory)
        main = loop.create_task(world.run(), name="world")
        try:
            with (
                variant.planted(),
                failpoints.installed(world.failpoint_reached),
                collecting_logs(history),
            ):
                loop.run_until_complete(main)
        except StuckError as stuck:
            history.actor_crashed("world", str(stuck))
        finally:
            world.abandon()
            loop.close()
    for context in loop.errors:
        history.actor_crashed("loop", f"{context.get('message')}: {context.get('exception')!r}")
    return ClusterRun(seed, variant.name, check_cluster(history.events), history.counts, history.events)


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder in memory, if there is one."""
    path = Path(tempfile.mkdtemp(prefix="holdfast-sim-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        yield path
    finally:
        shutil.rmtree(path)


class ClusterWorld:
    """Everything that exists in one run."""

    def __init__(self, loop: ClusterLoop, history: ClusterHistory, random: SeededRandom, directory: Path) -> None:
        self._loop, self._history, self._random, self._rng = loop, history, random, random.random
        self._profile = profile = ClusterProfile.draw(random)
        ttl_ms = profile.ttl_ms
        self._clock = SimClock(loop, SimProcess("store", loop))
        self._server = SimStoreServer(SimStore, clock=self._clock, random=random, history=history)
        rng = self._rng
        self._network = NetworkConditions(
            delay_ms=0.005 * ttl_ms, slow_ms=1.2 * ttl_ms, timeout_ms=0.25 * ttl_ms, resync_share=0.02
        )
        self._bucket_conditions = BucketConditions(timeout_ms=0.25 * ttl_ms, slow_ms=1.5 * ttl_ms)
        bucket = Bucket(loop=loop, clock=self._clock, history=history)
        self._shared = ClusterContext(
            loop=loop,
            server=self._server,
            bucket=bucket,
            network=self._network,
            bucket_conditions=self._bucket_conditions,
            wires=ReplicaWires(loop=loop, conditions=self._network, random=random, history=history, ttl_ms=ttl_ms),
            random=random,
            history=history,
            settings=lambda name: agent_settings(name, profile),
            directory=directory,
            ttl_ms=ttl_ms,
        )
        self._hosts = [
            AgentHost(name, self._shared, rate=rng.uniform(0.97, 1.03), wall_offset_ms=rng.uniform(-0.2, 0.2) * ttl_ms)
            for name in HOST_NAMES[: profile.hosts]
        ]
        self._partitions = [
            TopicPartition(f"t{number}", at) for number, (_, count) in enumerate(profile.topics) for at in range(count)
        ]
        self._producers = [
            SimulatedProducer(
                f"p{number}",
                self._shared,
                self._hosts,
                self._partitions[number % len(self._partitions)],
                producer_id=number + 1 if rng.random() < 0.75 else -1,
            )
            for number in range(max(profile.producers, len(self._partitions)))
        ]
        self._readers = [Reader(f"r{number}", self._shared, self._hosts, self._partitions) for number in range(1)]
        self._member = SimulatedGroupMember("g0", self._shared, self._hosts, self._partitions[0])
        self._disk_lost = False
        self._admin = SimulatedAdmin("admin", self._shared, self._hosts)
        self._burst = BurstProducer("burst", self._shared, self._hosts, self._partitions[0], begin=self._begin)
        self._takeover_faults: TakeoverFaults | None = None
        if profile.replicas == 3:  # the first topic is at quorum then
            aimed_at = (
                self._partitions[0],
                self._burst,
                Reader("asker", self._shared, self._hosts, self._partitions[:1]),
            )
            self._takeover_faults = TakeoverFaults(self._shared, self._hosts, *aimed_at, clock=self._clock)

    async def run(self) -> None:
        """The three phases."""
        ttl_ms = self._profile.ttl_ms
        for number, host in enumerate(self._hosts):
            self._loop.post_at(0 if number == 0 else self._rng.random() * 0.5 * ttl_ms, host.start)
        self._reap()
        await self._create_topics()
        if self._profile.replicas > 1:
            await self._all_joined()
        self._set_faults()
        producing = [self._begin(producer.run(0.15 * ttl_ms)) for producer in self._producers]
        background = [self._begin(each.run(0.2 * ttl_ms)) for each in self._readers]
        background.append(self._begin(self._member.run(0.3 * ttl_ms)))
        if self._profile.passing_topic:
            background.append(self._begin(self._admin.run(0.2 * ttl_ms)))
        began_ms = self._loop.now_ms
        for _ in range(self._profile.incidents):
            self._loop.post_at(began_ms + self._rng.uniform(0.1, FAULT_PHASE_TTLS) * ttl_ms, self._draw_incident())
        aimed = self._begin(self._takeover_faults.run()) if self._takeover_faults is not None else None
        await self._clock.sleep_ms((FAULT_PHASE_TTLS + 0.01) * ttl_ms)
        if aimed is not None:
            await asyncio.wait((aimed,), timeout=(SCHEDULE_TTLS - FAULT_PHASE_TTLS) * ttl_ms / 1000)
            aimed.cancel()
            self._shared.wires.on_request = None
        self._network.clear()
        self._bucket_conditions.clear()
        self._server.restart()
        for host in self._hosts:
            host.heal()
        self._history.faults_healed()
        await self._recover(producing)
        for task in background:
            task.cancel()
        await self._finish_reading()
        for host in self._hosts:
            host.stop()
        await asyncio.gather(*(task for host in self._hosts for task in host.tasks), return_exceptions=True)
        await self._clock.sleep_ms(1.2 * ttl_ms)
        self._server.store.reap()
        self._history.actors_stopped((), self._server.observe_holders())

    async def _all_joined(self) -> None:
        """Copies need agents: wait until all have joined, and the planner has had time to place them."""
        while any(host.agent is None or host.agent.member is None for host in self._hosts):
            await self._clock.sleep_ms(self._profile.ttl_ms / 20)
        await self._clock.sleep_ms(self._profile.ttl_ms / 2)

    def _set_faults(self) -> None:
        """How messages fare from now on."""
        rng, rough = self._rng, self._profile.roughness
        network, bucket = self._network, self._bucket_conditions
        network.slow_share = rng.choice((0.0, 0.0, 0.01, 0.03)) * rough
        network.lost_share = rng.choice((0.0, 0.0, 0.01, 0.03)) * rough
        network.ambush_share = rng.choice((0.0, 0.02, 0.06))
        bucket.refused_share = rng.choice((0.0, 0.05, 0.2)) * rough
        bucket.lost_share = rng.choice((0.0, 0.02, 0.1)) * rough
        bucket.slow_share = rng.choice((0.0, 0.05)) * rough
        bucket.listing_lag_ms = rng.choice((0.0, 0.0, 1.0)) * self._profile.ttl_ms

    async def _create_topics(self) -> None:
        for number, (level, count) in enumerate(self._profile.topics):
            roll_ms = int(self._rng.choice((0.2, 0.5, 1.5)) * self._profile.ttl_ms)
            config: dict[str, object] = {"durability": level, "roll_ms": roll_ms}
            if level == QUORUM:
                config["replication_factor"] = self._profile.replicas
            await self._admin.create(f"t{number}", count, config)

    async def _recover(self, producing: "Sequence[asyncio.Task[None]]") -> None:
        """Every producer gets a record acknowledged, and then finishes: what is acknowledged later is in no final read."""
        ttl_ms = self._profile.ttl_ms
        before = [producer.acknowledged for producer in self._producers]
        until_ms = self._loop.now_ms + RECOVERY_PHASE_TTLS * ttl_ms
        while self._loop.now_ms < until_ms:
            stalled = [
                each
                for each, count in zip(self._producers, before, strict=True)
                if each.acknowledged <= count and not each.finishing
            ]
            if not stalled:
                break
            await self._clock.sleep_ms(ttl_ms / 20)
        else:
            for each in stalled:
                self._history.actor_crashed(each.name, f"nothing was acknowledged on {each.which} since faults ended")
        for producer in self._producers:
            producer.finishing = True
        _, late = await asyncio.wait(producing, timeout=FINISH_TTLS * ttl_ms / 1000)
        for task in late:
            task.cancel()

    async def _finish_reading(self) -> None:
        final = Reader("final", self._shared, self._hosts, self._partitions)
        tasks = [self._begin(reader.finish(which)) for reader in (*self._readers, final) for which in self._partitions]
        _, late = await asyncio.wait(tasks, timeout=RECOVERY_PHASE_TTLS * self._profile.ttl_ms / 1000)
        for task in late:
            self._history.actor_crashed("reader", "cannot read to the end though nothing fails")
            task.cancel()

    def _begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._loop.create_task(work, name="client")
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._history.actor_crashed("client", repr(error))

    def failpoint_reached(self, name: str) -> None:
        """Some process is at a failpoint."""
        process = RUNNING.get()
        for host in self._hosts:
            if host.process is process:
                host.at_failpoint(name)

    def abandon(self) -> None:
        """End every task that is left, so that none outlives the world."""
        for host in self._hosts:
            host.wanted = False
            host.process.die()
        for client in (*self._producers, *self._readers, self._member, self._admin, self._burst):
            client.process.die()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.callbacks_left = 100_000
        self._loop.post_at(self._loop.now_ms + 1, self._loop.stop)
        with suppress(StuckError):
            self._loop.run_forever()

    def _reap(self) -> None:
        if self._server.up:
            self._server.store.reap()
        self._loop.post_at(self._loop.now_ms + self._rng.uniform(0.1, 0.6) * self._profile.ttl_ms, self._reap)

    def _draw_incident(self) -> Callable[[], None]:
        rng, ttl_ms = self._rng, self._profile.ttl_ms
        host = rng.choice(self._hosts)
        kind = rng.random()
        duration_ms = rng.uniform(0.1, 2.0) * ttl_ms
        if kind < 0.2:
            power = rng.random() < 0.6
            return lambda: host.kill(duration_ms, power=power)
        if kind < 0.3:
            area = rng.choice(FAILPOINT_AREAS)
            return lambda: setattr(host, "doomed", area)
        if kind < 0.38:
            return lambda: host.leave(duration_ms)
        if kind < 0.5:
            return lambda: host.pause(duration_ms)
        if kind < 0.65:
            return lambda: self._cut(host, duration_ms)
        if kind < 0.75:
            return lambda: self._cut_objects(host, duration_ms)
        if kind < 0.82:
            return lambda: self._fill_disk(host, duration_ms)
        if kind < 0.87:
            return lambda: self._slow_disk(host, duration_ms)
        if kind < 0.9:
            return lambda: self._break_disk(host)
        if kind < 0.94:
            return lambda: self._crash_store(duration_ms)
        if kind < 0.97 and self._profile.lost_disks:
            return lambda: self._lose_disk(host, duration_ms)
        by_ms = rng.uniform(-2.0, 2.0) * ttl_ms
        return lambda: host.step_wall(by_ms) if not host.process.dead else None

    def _cut(self, host: AgentHost, duration_ms: float) -> None:
        """From the store, most often with the clients; from the other agents, or only from their answers; or from all."""
        host.record("cuts", "is cut off", duration_ms)
        kind = self._rng.random()
        if kind < 0.7:
            host.link.up, host.link.refuses = False, self._rng.random() < 0.5
            self._after(duration_ms, lambda: setattr(host.link, "up", True))
            if self._rng.random() < 0.8:
                host.clients_link.up = False
                self._after(duration_ms, lambda: setattr(host.clients_link, "up", True))
        if kind > 0.4:
            side, cut = self._rng.choice((("up", False), ("up", False), ("deaf", True)))
            setattr(host.peer_link, side, cut)
            self._after(duration_ms, lambda: setattr(host.peer_link, side, not cut))

    def _cut_objects(self, host: AgentHost, duration_ms: float) -> None:
        host.record("object outages", "cannot reach object storage", duration_ms)
        host.objects_link.up = False
        self._after(duration_ms, lambda: setattr(host.objects_link, "up", True))

    def _fill_disk(self, host: AgentHost, duration_ms: float) -> None:
        host.record("full disks", "has a full disk", duration_ms)
        host.disk.full = True
        self._after(duration_ms, lambda: setattr(host.disk, "full", False))

    def _slow_disk(self, host: AgentHost, duration_ms: float) -> None:
        host.record("slow disks", "has a slow disk", duration_ms)
        host.disk.slow_ms = self._rng.uniform(0.005, 0.4) * self._profile.ttl_ms
        self._after(duration_ms, lambda: setattr(host.disk, "slow_ms", 0.0))

    def _break_disk(self, host: AgentHost) -> None:
        host.record("failed syncs", "will fail to sync", 0)
        host.disk.broken = True

    def _lose_disk(self, host: AgentHost, duration_ms: float) -> None:
        """Once in a world: of three copies, two are left."""
        if self._disk_lost:
            return
        self._disk_lost = True
        host.kill(duration_ms, power=False)
        host.record("lost disks", "loses its disk", duration_ms)
        host.disk.wipe()

    def _crash_store(self, duration_ms: float) -> None:
        self._server.crash()
        self._after(duration_ms, self._server.restart)

    def _after(self, duration_ms: float, callback: Callable[[], None]) -> None:
        self._loop.post_at(self._loop.now_ms + duration_ms, callback)
