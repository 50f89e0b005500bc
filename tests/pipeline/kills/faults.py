"""Each fault, injected into a running cluster. Methods return when the fault is over; the verdict is made elsewhere.

The one rule: a process that is to be hit at a step is held there first, so that the signal arrives neither before nor after. A
frozen process stays so for longer than its leases last, and is then woken, if it still lives.
"""

import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.pipeline.kills.cluster import KillCluster
from tests.pipeline.kills.plan import Fault
from tests.pipeline.kills.process_tree import ProcessTree, ours, send
from tests.pipeline.kills.writer import Writer
from tests.support.waiting import until

from holdfast.vocabulary.random import SeededRandom

BEYOND_LEASE_S = 3.0
ALONE_S = (1.0, 3.0)
TAKEOVER_TIMEOUT_S = 180.0
SLOTS_TIMEOUT_S = 180.0
ZOMBIE_TRIES = 5


class Faults:
    """The faults of a cluster's main pipeline."""

    def __init__(self, cluster: KillCluster, path: str, writer: Writer, *, seed: int) -> None:
        self._cluster, self._path, self._writer = cluster, path, writer
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
            self._wait_s(self._rng.uniform(0, 1))
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
        tree = self._held(fault.step)
        # Freeze it before any query: meanwhile a slot may move, and its tasks be killed.
        send([tree.here], signal.SIGSTOP)
        worker = self._cluster.worker_of(tree)
        epochs, owned = self._epochs(), self._owned_by(worker.worker_id)
        # Its ancestors would kill a task when the driver is gone, so they are frozen, too, until it has written.
        above = (*tree.daemons, tree.jvm)
        frozen = [tree.here, *above] if fault.target == "task" else list(tree.all_processes)
        send(frozen, signal.SIGSTOP)
        if fault.target == "task":
            worker.kill()
        self._cluster.release(fault.step)
        self._await_takeover(epochs, owned)
        lived = self._lives(tree.here)
        if fault.target == "task":
            send([tree.here], signal.SIGCONT)
            self._wait_s(self._rng.uniform(*ALONE_S))
        send(frozen, signal.SIGCONT)
        return lived

    def _held(self, step: str) -> ProcessTree:
        return self._cluster.held_at(step)

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
        before = self._cluster.plan.replicas
        for replicas in (1, 3, 1, before):
            self._cluster.http.post(f"{self._path}/scale", {"replicas": replicas})
            until(partial(self._has_slots, replicas), within_s=SLOTS_TIMEOUT_S, what=f"{replicas} slots")
            self._writer.await_more(self._cluster.plan.records_per_s, timeout_s=TAKEOVER_TIMEOUT_S)

    def _has_slots(self, wanted: int) -> bool:
        return bool(self._cluster.status(self._path).get("slotsRunning", -1) == wanted)

    # --- waiting

    @property
    def _beyond_lease_s(self) -> float:
        return self._cluster.plan.lease_ms / 1_000 + BEYOND_LEASE_S

    def _wait_s(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    def _epochs(self) -> dict[int, int]:
        """The epoch of every partition in the registry."""
        return {each["partition"]: each["epoch"] for each in self._status()["partitions"]}

    def _owned_by(self, worker: str) -> set[int]:
        """The partitions of a worker, by its status."""
        mine = [slot for slot in self._status()["slots"] if slot["workerId"] == worker]
        return {int(number) for slot in mine for number in slot["epochs"]}

    def _status(self) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def found_status() -> bool:
            found.update(self._cluster.status(self._path))
            return bool(found)

        until(found_status, what="a status")
        return found

    def _await_takeover(self, before: dict[int, int], owned: set[int]) -> None:
        """Until others own the partitions of the frozen one, so that it is too late when it wakes."""

        def taken() -> bool:
            now = self._epochs()
            return all(now[number] > before[number] for number in owned or set(before))

        until(taken, within_s=TAKEOVER_TIMEOUT_S, what=f"a takeover of {sorted(owned)}")
        self._wait_s(self._rng.uniform(0, 2))
