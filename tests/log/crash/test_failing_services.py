"""Object storage that fails one call in three, then every call; a disk that is full for a while: nothing is lost, work goes on."""

import pytest
from tests.support.log_crash.history import History
from tests.support.log_crash.world import CrashWorld


def acked_while_down(history: History) -> int:
    kinds = [line[0] for line in history.lines]
    return kinds[kinds.index("down") : kinds.index("up")].count("acked")


def outlive_an_outage(world: CrashWorld, down_ms: int) -> None:
    world.work_off("--quota", "250", "--objects-fail", "0.3", "--objects-down-ms", str(down_ms))
    history = world.history()
    assert int(history.said("down")[0][2]) > 0, "no call failed"
    assert acked_while_down(history) > 0, "what needs no object storage goes on without it"
    assert history.said("again"), "producers were told to wait once too much was unpublished"
    assert len(history.said("closed")) == 3, "everything was published in the end"
    world.check()


def test_an_outage_of_object_storage_loses_nothing(world: CrashWorld) -> None:
    outlive_an_outage(world, 3_000)


@pytest.mark.long
@pytest.mark.timeout(240)
def test_an_outage_of_a_minute_loses_nothing(world: CrashWorld) -> None:
    outlive_an_outage(world, 60_000)


def test_a_death_during_an_outage_loses_nothing(world: CrashWorld) -> None:
    for time in ("10", "20", "30"):
        world.die_at(f"acknowledged:{time}", "--quota", "0", "--objects-fail", "1")
    world.work_off("--quota", "3", "--objects-fail", "0.3")
    world.check()


def test_a_full_disk_refuses_and_goes_on(world: CrashWorld) -> None:
    world.work_off("--quota", "40", "--disk-full-ms", "300")
    history = world.history()
    assert history.said("full")
    assert history.said("again"), "producers were told to send again"
    world.check()
