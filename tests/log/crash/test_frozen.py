"""A process that is stopped past its lease and goes on as if nothing had been, while another one leads.

It is made reckless: it never looks at its session, so that nothing but the fence stands in its way.
"""

import os
import signal

from tests.support.log_crash.history import History
from tests.support.log_crash.world import CrashWorld

ANN = ("--agent", "ann", "--reckless", "--ttl-ms", "700")
BOB = ("--agent", "bob", "--quota", "4")


def pid_of_stopped(history: History) -> int:
    return int(history.said("stopped")[-1][1])


async def test_clean_partitions_are_taken_over_and_late_effects_refused(world: CrashWorld) -> None:
    ann = world.begin(*ANN, "--quota", "4", "--rest", "--stop-at", "resting:2")
    history = await world.until_history(lambda history: history.said("stopped"))
    promised = len(history.said("acked"))
    world.work_off(*BOB)
    assert len(world.history().said("closed", "bob")) == 3, "all of them were clean, and went over at once"
    os.kill(pid_of_stopped(history), signal.SIGCONT)
    world.finished(ann)
    late = world.history()
    assert len(late.said("acked", "ann")) == promised, "nothing was acknowledged by who leads no more"
    assert {line[2] for line in late.said("late", "ann")} == {"0", "1", "2"}
    assert {line[5] for line in late.said("late", "ann")} == {"NotLeaderError"}
    world.work_off(*BOB)
    world.check(*BOB[:2])


async def test_a_publication_that_comes_late_is_refused(world: CrashWorld) -> None:
    """Stopped between upload and commit. The tail of the local partitions is in its WAL, so these stay offline for others."""
    ann = world.begin(*ANN, "--quota", "0", "--stop-at", "publish.segments-uploaded:4")
    history = await world.until_history(lambda history: history.said("stopped"))
    world.work_off(*BOB)
    taken = world.history()
    assert {line[2] for line in taken.said("offline", "bob")} == {"0", "1"}
    assert [line[2] for line in taken.said("closed", "bob")] == ["2"], "acknowledged only once published: free to move"
    os.kill(pid_of_stopped(history), signal.SIGCONT)
    await world.until_history(lambda history: history.said("late", "ann", "2"))
    ann.kill()
    world.finished(ann)
    late = world.history()
    assert late.said("lost", "ann", "2")
    after = late.lines[late.lines.index(taken.lines[-1]) + 1 :]
    assert not [line for line in after if line[:3] == ["acked", "ann", "2"]]
    world.work_off("--agent", "ann", "--quota", "3")
    world.check("--agent", "ann")
