"""The suite itself: bugs that are planted must be caught."""

import signal

from tests.support.log_crash.world import CrashWorld


def test_clearing_the_buffer_although_the_upload_failed_is_caught(world: CrashWorld) -> None:
    told = ("--die-at", "outage over:1", "--quota", "0", "--objects-down-ms", "1000", "--planted", "clear-buffer")
    for life in (told, told, told, ("--read",)):  # on a busy machine an outage may pass without an upload
        if world.run(*life) not in (0, -signal.SIGKILL):
            assert "proves that they were written" in str(world.tail())  # recovery has met the hole, and refused it
            return
    assert world.catch().losses


def test_acknowledging_before_the_sync_is_caught(world: CrashWorld) -> None:
    world.die_at("acknowledged:40", "--quota", "0", "--planted", "ack-before-sync")
    assert world.catch().losses


def test_forgetting_the_tail_is_caught(world: CrashWorld) -> None:
    world.die_at("acknowledged:40", "--quota", "0")
    world.work_off("--quota", "2", "--planted", "forget-tail")
    assert world.catch().losses


def test_forgetting_the_producers_is_caught(world: CrashWorld) -> None:
    for time in (3, 4, 5):
        world.die_at(f"before acknowledging:{time}", "--quota", "0", "--planted", "forget-producers")
    world.work_off("--quota", "2", "--planted", "forget-producers")
    assert world.catch().duplicates


def test_showing_what_is_not_durable_is_caught(world: CrashWorld) -> None:
    def caught() -> bool:
        return any("opened at watermark" in fault for fault in world.history().judge().faults)

    for time in range(3, 23, 2):  # on a busy machine nobody may have looked between a write and its sync
        world.die_at(f"before sync:{time}", "--quota", "0", "--planted", "show-before-durable")
        world.work_off("--quota", "2")
        if caught():
            break
    world.catch()
    assert caught()
