"""A process that dies at each labelled step, at its first, second and third time there; and the lives after it.

The short form goes through the three times in one world, with another thing left of what was not synced each time. The long form
takes every combination by itself.
"""

import pytest
from tests.support.log_crash.kill_points import CUT, LEFTOVERS
from tests.support.log_crash.world import CrashWorld

OPENING = (
    "before the WAL opens",
    "WAL opened",
    "lease acquired",
    "record read",
    "tail recovered",
    "producers recovered",
    "partition taken",
)
MENDING = ("tail struck", "tail synced", "mark synced")
WORKING = (
    "before write",
    "group written",
    "before sync",
    "group synced",
    "file zeroed",
    "file headed",
    "file live",
    "file opened",
    "file retired",
    "space refused",
    "before acknowledging",
    "acknowledged",
    "store asked",
    "store answered",
    "segment built",
    "object asked",
    "object stored",
    "segment uploaded",
    "before the commit",
    "segment committed",
    "segment released",
    "index uploaded",
    "before relisting",
    "relisted",
    "before deleting trash",
    "trash deleted",
    "trash forgotten",
    "before dooming",
    "doomed",
    "before deleting orphans",
    "orphans deleted",
)
CLOSING = (
    "closing",
    "drained",
    "reservation given back",
    "published to the end",
    "lease released",
    "before the session closes",
)
STEPS = (*OPENING, *MENDING, *WORKING, *CLOSING)
ONCE_PER_LIFE = ("before the WAL opens", "WAL opened", *MENDING, *CLOSING)
TOLD = {"file zeroed": ("--spares", "0"), "space refused": ("--disk-full-ms", "400")}


def die(world: CrashWorld, step: str, nth: int, leftovers: str) -> None:
    """Die at the step's n-th time; where it comes once per life, simply once more."""
    if step in MENDING:
        world.die_at(f"group written:{5 + nth}", "--quota", "0", "--leftovers", CUT)
    time = 1 if step in ONCE_PER_LIFE else nth
    # A mark is written when a file is gone on with, which a full one is not; and, failing that, at the end.
    quota = "3" if step in (*CLOSING, "mark synced") else "0"
    world.die_at(f"{step}:{time}", "--quota", quota, "--leftovers", leftovers, *TOLD.get(step, ()))


@pytest.mark.parametrize("step", STEPS)
def test_nothing_is_lost_or_doubled_by_a_death_at(step: str, world: CrashWorld) -> None:
    for nth, leftovers in enumerate(LEFTOVERS, 1):
        die(world, step, nth, leftovers)
    world.work_off("--quota", "3")
    world.check()


@pytest.mark.long
@pytest.mark.parametrize("leftovers", [*LEFTOVERS, "real"])
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("step", STEPS)
def test_nothing_is_lost_or_doubled_by_one_death_at(step: str, nth: int, leftovers: str, world: CrashWorld) -> None:
    if leftovers == "real" and step in ("before write", "before sync", "space refused", *MENDING):
        pytest.skip("steps of the disk that this form does without")
    die(world, step, nth, leftovers)
    world.check()  # as it was left
    world.die_at("acknowledged:20", "--quota", "0", "--leftovers", leftovers)
    world.check()
