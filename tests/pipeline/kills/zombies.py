"""Who is frozen at a step while others take over, and then goes on where it was.

The one rule: a zombie wakes when it is too late: the fences of all that its worker owned are raised. Whoever would end it before it
has tried to write is frozen with it.
"""

import signal
from collections.abc import Callable
from dataclasses import dataclass

from tests.pipeline.kills.cluster import KillCluster
from tests.pipeline.kills.plan import Fault
from tests.pipeline.kills.process_tree import ours, send
from tests.pipeline.kills.watched import PAUSE_S, Watched, await_takeover, owned_now
from tests.support.waiting import until


@dataclass(frozen=True, slots=True)
class Zombie:
    """A frozen process `here`, those frozen with it, and how many inserts the fence had refused before."""

    cluster: KillCluster
    here: int
    others: tuple[int, ...]
    refused_before: int

    @property
    def lives(self) -> bool:
        return self.here in ours(self.cluster.failpoints.folder)

    def wake(self) -> None:
        """It alone: those that would end it stay frozen."""
        send([self.here], signal.SIGCONT)

    @property
    def was_refused(self) -> bool:
        """Whether the fence has refused an insert since it was frozen."""
        return self.cluster.fence_refusals() > self.refused_before

    def await_refused(self) -> None:
        """Until the fence has refused its insert."""
        until(lambda: self.was_refused, pause_s=PAUSE_S, what="the fence refuses the insert of a zombie")

    def wake_others(self) -> None:
        """Those that were frozen with it."""
        send(self.others, signal.SIGCONT)


def frozen(
    cluster: KillCluster, fault: Fault, pipelines: list[Watched], on_held: Callable[[], None] = lambda: None
) -> Zombie:
    """A process frozen at the fault's step, after others have taken over. `on_held`: called when all of its steps are reached."""
    tree = cluster.held_at(fault.step)
    # Freeze it before any query: meanwhile a slot may move, and its tasks be killed.
    send([tree.here], signal.SIGSTOP)
    for step in fault.beside:
        other = cluster.held_at(step)
        if other.here != other.driver:
            send([other.here], signal.SIGKILL)
    on_held()
    worker = cluster.worker_of(tree)
    owned = owned_now(pipelines, worker.worker_id)
    if fault.target == "task":  # its ancestors would kill it when the driver is gone, so they are frozen, too
        others = (*tree.daemons, tree.jvm)
        send(others, signal.SIGSTOP)
        worker.kill()
    else:
        others = tuple(pid for pid in tree.all_processes if pid != tree.here)
        send(others, signal.SIGSTOP)
    cluster.release(fault.step, *fault.beside)
    cluster.start_successor()
    await_takeover(owned)
    return Zombie(cluster, tree.here, others, cluster.fence_refusals())
