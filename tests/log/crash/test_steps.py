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
    "takeover.record-read",
    "takeover.tail-recovered",
    "takeover.segments-listed",
    "takeover.committed",
)
MENDING = ("wal.torn-tail-invalidated", "wal.tail-synced", "wal.mark-synced")
WORKING = (
    "before write",
    "wal.group-written",
    "before sync",
    "wal.group-synced",
    "wal.file-zeroed",
    "wal.file-header-written",
    "wal.file-live",
    "wal.file-opened",
    "wal.file-retired",
    "wal.space-refused",
    "before acknowledging",
    "acknowledged",
    "store asked",
    "store answered",
    "publish.segments-built",
    "object asked",
    "object stored",
    "publish.segments-uploaded",
    "publish.before-commit",
    "publish.committed",
    "publish.applied",
    "maintenance.index-uploaded",
    "maintenance.before-relisting",
    "maintenance.relisted",
    "maintenance.before-trash-deletion",
    "maintenance.trash-deleted",
    "maintenance.trash-record-removed",
    "maintenance.before-deletion-mark",
    "maintenance.deletion-marked",
    "maintenance.before-orphan-deletion",
    "maintenance.orphans-deleted",
)
CLOSING = (
    "closing",
    "drained",
    "publish.reservation-released",
    "published to the end",
    "lease released",
    "before the session closes",
)
STEPS = (*OPENING, *MENDING, *WORKING, *CLOSING)
ONCE_PER_LIFE = ("before the WAL opens", "WAL opened", *MENDING, *CLOSING)
TOLD = {
    "wal.file-zeroed": ("--spares", "0"),
    "wal.space-refused": ("--disk-full-ms", "3600000"),  # for as long as it takes to be refused so often
}


def die(world: CrashWorld, step: str, nth: int, leftovers: str) -> None:
    """Die at the step's n-th time; where it comes once per life, simply once more."""
    if step in MENDING:
        world.die_at(f"wal.group-written:{5 + nth}", "--quota", "0", "--leftovers", CUT)
    time = 1 if step in ONCE_PER_LIFE else nth
    # A mark is written when a file is gone on with, which a full one is not; and, failing that, at the end.
    quota = "3" if step in (*CLOSING, "wal.mark-synced") else "0"
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
    if leftovers == "real" and step in ("before write", "before sync", "wal.space-refused", *MENDING):
        pytest.skip("steps of the disk that this form does without")
    die(world, step, nth, leftovers)
    world.check()  # as it was left
    world.die_at("acknowledged:20", "--quota", "0", "--leftovers", leftovers)
    world.check()
