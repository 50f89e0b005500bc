"""Each fault, injected into a running cluster. Methods return when the fault is over; the verdict is made elsewhere.

The one rule: a process that is to be hit at a step is held there first, so that the signal arrives neither before nor after. A
frozen process stays so for longer than its leases last, and is then woken, if it still lives.
"""

import signal
import threading
from collections.abc import Callable
from functools import partial

from tests.pipeline.kills.cluster import KillCluster
from tests.pipeline.kills.plan import START_STEPS, STREAMING, TASK_STEPS, Fault
from tests.pipeline.kills.process_tree import ProcessTree, ours, send
from tests.pipeline.kills.watched import Watched
from tests.pipeline.kills.writer import Writer
from tests.pipeline.kills.zombies import frozen
from tests.support.waiting import until

from holdfast.vocabulary.random import SeededRandom

BEYOND_LEASE_S = 3.0
ALONE_S = (1.0, 3.0)
TAKEOVER_TIMEOUT_S = 180.0
SLOTS_TIMEOUT_S = 180.0
ZOMBIE_TRIES = 5


class Faults:
    """The faults of a cluster's main pipelines."""

    def __init__(self, cluster: KillCluster, pipelines: list[Watched], writer: Writer, *, seed: int) -> None:
        self._cluster, self._pipelines, self._writer = cluster, pipelines, writer
        self._rng = SeededRandom(seed).random
        self.zombies = 0
        """How many processes were woken after others had taken over."""

    def inject(self, fault: Fault) -> None:
        """Inject a fault."""
        acts: dict[str, Callable[[Fault], None]] = {
            "clickhouse": self._clickhouse,
            "store": self._store,
            "pipeline": lambda _: self._scale(),
        }
        if fault.action == "zombie":
            self._zombie(fault)
        else:
            acts.get(fault.target, self._process)(fault)
        self._cluster.supervise()

    # --- processes

    def _process(self, fault: Fault) -> None:
        tree = self._held(fault.step)
        pid = tree.target(fault.target)
        send([pid], signal.SIGKILL if fault.action == "kill" else signal.SIGSTOP)
        self._cluster.release(fault.step)
        if fault.action == "kill":
            until(lambda: not self._lives(pid), what=f"{fault.target} {pid} is dead")
            return
        self._wait_s(self._beyond_lease_s)
        if self._lives(pid):  # a worker may have killed it meanwhile
            send([pid], signal.SIGCONT)

    def _zombie(self, fault: Fault) -> None:
        """A process lives after others have taken over. One that was about to exit makes no zombie: try the next one."""
        for _ in range(ZOMBIE_TRIES):
            if self._slept_through_takeover(fault):
                self.zombies += 1
                return
            self._cluster.supervise()
        raise AssertionError(f"{fault}: no process lived after a takeover in {ZOMBIE_TRIES} tries")

    def _slept_through_takeover(self, fault: Fault) -> bool:
        self._provoke(fault.step)
        writes_on = self._cluster.plan.writes_on
        zombie = frozen(self._cluster, fault, self._pipelines, lambda: None if writes_on else self._writer.pause())
        lived = zombie.lives
        if lived and fault.step in TASK_STEPS:  # alone first: nobody tells it that it is too late
            zombie.wake()
            if fault.step == "pipeline.inserting":
                zombie.await_refused()
            else:
                self._wait_s(self._rng.uniform(*ALONE_S))
        zombie.wake()
        zombie.wake_others()
        self._cluster.end_predecessor()
        return lived

    def _held(self, step: str) -> ProcessTree:
        self._provoke(step)
        return self._cluster.held_at(step)

    def _provoke(self, step: str) -> None:
        """A query starts when its last owner has died."""
        if step in START_STEPS:
            self._cluster.hold(step)
            query = next(each for each in self._pipelines if each.engine == STREAMING)
            send(until(lambda: self._cluster.drivers_of(query.path), what="a driver of the query"), signal.SIGKILL)

    def _lives(self, pid: int) -> bool:
        return pid in ours(self._cluster.failpoints.folder)

    # --- servers

    def _clickhouse(self, fault: Fault) -> None:
        server = self._cluster.clickhouse
        if fault.action == "down":
            server.kill()
            self._wait_s(self._cluster.plan.away_s)
            server.start()
            return
        self._held(fault.step)
        if fault.action == "stop":
            server.freeze()
            self._cluster.release(fault.step)
            self._wait_s(self._beyond_lease_s)
            server.thaw()
            return
        self._cluster.release(fault.step)
        self._wait_s(self._rng.uniform(0, 0.05))  # somewhere in the insert
        server.kill()
        self._wait_s(self._rng.uniform(0, min(self._cluster.plan.away_s, 5)))
        server.start()

    def _store(self, fault: Fault) -> None:
        store = self._cluster.store
        if fault.step:
            self._held(fault.step)
        if fault.action == "stop":
            store.freeze()
        else:
            store.kill()
        if fault.step:
            self._cluster.release(fault.step)
        self._wait_s(self._beyond_lease_s)
        if fault.action == "stop":
            store.thaw()
        else:
            store.start()

    # --- people

    def _scale(self) -> None:
        path, before = self._pipelines[0].path, self._cluster.plan.replicas
        for replicas in (1, 3, 1, before):
            self._cluster.http.post(f"{path}/scale", {"replicas": replicas})
            until(partial(self._has_slots, path, replicas), within_s=SLOTS_TIMEOUT_S, what=f"{replicas} slots")
            self._writer.await_more(self._cluster.plan.records_per_s, timeout_s=TAKEOVER_TIMEOUT_S)

    def _has_slots(self, path: str, wanted: int) -> bool:
        return bool(self._cluster.status(path).get("slotsRunning", -1) == wanted)

    # --- waiting

    @property
    def _beyond_lease_s(self) -> float:
        return self._cluster.plan.lease_ms / 1_000 + BEYOND_LEASE_S

    def _wait_s(self, seconds: float) -> None:
        threading.Event().wait(seconds)
