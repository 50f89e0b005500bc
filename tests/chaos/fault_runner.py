"""Runs a schedule on a cluster: faults begin and end at their times, in a thread each, and are written down.

The one rule: an agent has one fault at a time. What takes longer than planned, as a start on a busy machine does, delays what comes
next for the same agent, and lets nothing be broken twice.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from tests.chaos.cluster import ChaosCluster
from tests.chaos.faults import FAULTS
from tests.chaos.history import Recorder
from tests.chaos.schedule import ALONE, EVERYWHERE, Planned

NAME = "nemesis"


class FaultRunner:
    """The schedule under way. A fault that cannot be undone fails the run: nothing after it would mean anything."""

    def __init__(
        self, cluster: ChaosCluster, planned: Sequence[Planned], *, record: Recorder, told: Callable[[str], None]
    ) -> None:
        self._cluster, self._planned, self._record, self._told = cluster, planned, record, told
        self._began_ms = record.now_ms()
        self._ending = threading.Event()
        self._busy = [threading.Lock() for _ in cluster.agents]
        self.failures: list[str] = []

    def run(self) -> None:
        """Returns when every fault is over."""
        running = [threading.Thread(target=self._fault, args=(each,), daemon=True) for each in self._planned]
        for thread, each in zip(running, self._planned, strict=True):
            self._until(each.at_s)
            thread.start()
        for thread in running:
            thread.join()

    @contextmanager
    def _own(self, planned: Planned) -> Iterator[None]:
        """The agent, or all of them, for the body."""
        with ExitStack() as owned:
            for number, lock in enumerate(self._busy):
                if planned.fault in ALONE or (number == planned.agent and planned.fault not in EVERYWHERE):
                    owned.enter_context(lock)
            yield

    def _until(self, at_s: float) -> None:
        left_ms = self._began_ms + at_s * 1000 - self._record.now_ms()
        self._ending.wait(max(0.0, left_ms / 1000))

    def _fault(self, planned: Planned) -> None:
        agent = self._cluster.agents[planned.agent]
        target = agent.name if planned.target != "cluster" else planned.target
        lasting_s = planned.until_s - planned.at_s
        try:
            with self._own(planned):
                self._record(NAME, "invoke", "fault", fault=planned.fault, target=target)
                self._told(f"{planned.fault} {target} for {lasting_s:.1f} s")
                with FAULTS[planned.fault](self._cluster, agent):
                    self._ending.wait(lasting_s)
        except Exception as failure:
            self.failures.append(f"{planned.fault} {target}: {failure!r}")
            self._record(NAME, "info", "fault", fault=planned.fault, target=target, error=repr(failure))
        else:
            self._record(NAME, "ok", "fault", fault=planned.fault, target=target)
