"""Each fault, carried out on a town at work. They return when the fault is over; what came of it is judged elsewhere.

The one rule: who is to be hit at a step is held there first, so that the signal comes neither before nor after. What is frozen
stays so for longer than leases last, and is then woken, if it still lives.
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
from tests.support.broker import until

from holdfast.vocabulary.random import SeededRandom

BEYOND_LEASE_S = 3.0
ALONE_S = (1.0, 3.0)
TAKEOVER_TIMEOUT_S = 180.0
SLOTS_TIMEOUT_S = 180.0
ZOMBIE_TRIES = 5


class Faults:
    """What can be done to the main pipeline of a town."""

    def __init__(self, town: KillCluster, path: str, writer: Writer, *, seed: int) -> None:
        self._town, self._path, self._writer = town, path, writer
        self._rng = SeededRandom(seed).random
        self.zombies = 0
        """How many lived when others had taken over, and were woken."""

    def happen(self, fault: Fault) -> None:
        """Do it."""
        acts: dict[str, Callable[[Fault], None]] = {
            "clickhouse": self._clickhouse,
            "store": self._store,
            "pipeline": lambda _: self._scale(),
        }
        if fault.action == "zombie":
            self._zombie(fault)
        else:
            acts.get(fault.target, self._process)(fault)
        self._town.supervise()

    # --- processes

    def _process(self, fault: Fault) -> None:
        family = self._held(fault.step)
        pid = family.target(fault.target)
        send([pid], signal.SIGKILL if fault.action == "kill" else signal.SIGSTOP)
        self._town.release(fault.step)
        if fault.action == "kill":
            until(lambda: not self._lives(pid), what=f"{fault.target} {pid} is dead")
            self._wait_s(self._rng.uniform(0, 1))
            return
        self._wait_s(self._beyond_lease_s)
        if self._lives(pid):  # a worker may have ended it meanwhile
            send([pid], signal.SIGCONT)

    def _zombie(self, fault: Fault) -> None:
        """Somebody lives when others have taken over. Who was about to be ended anyway makes no zombie: then the next one."""
        for _ in range(ZOMBIE_TRIES):
            if self._slept_through_takeover(fault):
                self.zombies += 1
                return
            self._town.supervise()
        raise AssertionError(f"{fault}: {ZOMBIE_TRIES} times nobody lived when others had taken over")

    def _slept_through_takeover(self, fault: Fault) -> bool:
        family = self._held(fault.step)
        # It sleeps before anything is asked: while we ask, a slot may move, and its tasks be ended.
        send([family.here], signal.SIGSTOP)
        worker = self._town.worker_of(family)
        epochs, owned = self._epochs(), self._owned_by(worker.worker_id)
        # Those above a task would end it when the driver is gone, so they sleep, too, until it has done what it wanted.
        above = (*family.daemons, family.jvm)
        frozen = [family.here, *above] if fault.target == "task" else list(family.everybody)
        send(frozen, signal.SIGSTOP)
        if fault.target == "task":
            worker.kill()
        self._town.release(fault.step)
        self._await_takeover(epochs, owned)
        lived = self._lives(family.here)
        if fault.target == "task":
            send([family.here], signal.SIGCONT)
            self._wait_s(self._rng.uniform(*ALONE_S))
        send(frozen, signal.SIGCONT)
        return lived

    def _held(self, step: str) -> ProcessTree:
        return self._town.held_at(step)

    def _lives(self, pid: int) -> bool:
        return pid in ours(self._town.failpoints.folder)

    # --- servers

    def _clickhouse(self, fault: Fault) -> None:
        server = self._town.clickhouse
        if fault.action == "down":
            server.kill()
            self._wait_s(self._town.plan.away_s)
            server.start()
            return
        self._held(fault.step)
        if fault.action == "stop":
            server.freeze()
            self._town.release(fault.step)
            self._wait_s(self._beyond_lease_s)
            server.thaw()
            return
        self._town.release(fault.step)
        self._wait_s(self._rng.uniform(0, 0.05))  # somewhere in the insert
        server.kill()
        self._wait_s(self._rng.uniform(0, min(self._town.plan.away_s, 5)))
        server.start()

    def _store(self, fault: Fault) -> None:
        store = self._town.store
        if fault.step:
            self._held(fault.step)
        if fault.action == "stop":
            store.freeze()
        else:
            store.kill()
        if fault.step:
            self._town.release(fault.step)
        self._wait_s(self._beyond_lease_s)
        if fault.action == "stop":
            store.thaw()
        else:
            store.start()

    # --- people

    def _scale(self) -> None:
        before = self._town.plan.replicas
        for replicas in (1, 3, 1, before):
            self._town.http.post(f"{self._path}/scale", {"replicas": replicas})
            until(partial(self._has_slots, replicas), timeout_s=SLOTS_TIMEOUT_S, what=f"{replicas} slots")
            self._writer.await_more(self._town.plan.records_per_s, timeout_s=TAKEOVER_TIMEOUT_S)

    def _has_slots(self, wanted: int) -> bool:
        return bool(self._town.status(self._path).get("slotsRunning", -1) == wanted)

    # --- waiting

    @property
    def _beyond_lease_s(self) -> float:
        return self._town.plan.lease_ms / 1_000 + BEYOND_LEASE_S

    def _wait_s(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    def _epochs(self) -> dict[int, int]:
        """The epoch of every partition in the registry."""
        return {each["partition"]: each["epoch"] for each in self._told()["partitions"]}

    def _owned_by(self, worker: str) -> set[int]:
        """The partitions of a worker, by its own account."""
        mine = [slot for slot in self._told()["slots"] if slot["workerId"] == worker]
        return {int(number) for slot in mine for number in slot["epochs"]}

    def _told(self) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def told() -> bool:
            found.update(self._town.status(self._path))
            return bool(found)

        until(told, what="the status is told")
        return found

    def _await_takeover(self, before: dict[int, int], owned: set[int]) -> None:
        """Until others own what the frozen one owned, so that what it does when it wakes is too late."""

        def taken() -> bool:
            now = self._epochs()
            return all(now[number] > before[number] for number in owned or set(before))

        until(taken, timeout_s=TAKEOVER_TIMEOUT_S, what=f"somebody takes over {sorted(owned)}")
        self._wait_s(self._rng.uniform(0, 2))
