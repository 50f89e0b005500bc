"""Which partitions a driver reports as released, and how a slot restarts, whatever its thread was doing."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.waiting import until

from holdfast.pipeline.driver import slot_thread as slots
from holdfast.pipeline.driver.process import SlotSupervisor
from holdfast.pipeline.driver.settings import DriverSettings
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.model.driver_protocol import (
    DriverAlive,
    FromDriver,
    HaltSlot,
    PartitionsReleased,
    RunSlot,
    SlotClaims,
    SlotHalted,
    SlotProgress,
)
from holdfast.vocabulary.clock import FakeClock, RealClock

RUN = RunSlot(slot="ann", pipeline_id="p", generation=1)


class Work:
    """A processor that takes nothing over, stays in its first turn until `may_go_on`, and is slow to close."""

    may_go_on = threading.Event()
    may_close = threading.Event()
    turns: list[dict[int, int]]

    def __init__(self, *_: Any) -> None:
        self.counters = SimpleNamespace(batches=0)

    def drop_unclaimed(self, claims: dict[int, int]) -> None:
        pass

    def turn(self, claims: dict[int, int]) -> int:
        Work.turns.append(claims)
        Work.may_go_on.wait(30)
        return RealClock().boot_ms() + 20

    def finished(self, claims: dict[int, int]) -> bool:
        return False

    def progress(self) -> SlotProgress:
        return SlotProgress(slot="ann")

    def stop(self) -> None:
        pass

    def close(self) -> None:
        Work.may_close.wait(30)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[FromDriver]:
    monkeypatch.setattr(slots, "open_processor", Work)
    Work.turns = []
    Work.may_go_on.clear()
    Work.may_close.clear()
    return []


def resources() -> Any:
    jobs = SimpleNamespace(responds=lambda: True, cancel=lambda name: None, running_ms=lambda name: 0)
    return SimpleNamespace(clock=RealClock(), settings=DriverSettings(), jobs=jobs)


def claims(**epochs: int) -> SlotClaims:
    numbers = {name.removeprefix("p"): epoch for name, epoch in epochs.items()}
    return SlotClaims(slot="ann", epochs=numbers, until_ms=RealClock().boot_ms() + 60_000)


def test_a_partition_claimed_and_revoked_within_one_turn_is_released_too(said: list[FromDriver]) -> None:
    slot = slots.SlotThread(RUN, resources(), said.append)
    slot.set_claims(claims(p0=1))
    slot.start()
    until(lambda: Work.turns, what="it is at work")
    slot.set_claims(claims(p0=1, p7=4))
    slot.set_claims(claims(p0=1))
    Work.may_go_on.set()
    until(lambda: PartitionsReleased(slot="ann", epochs={"7": 4}) in said, what="it releases what it never owned")
    slot.set_claims(claims(p0=3))
    until(lambda: PartitionsReleased(slot="ann", epochs={"0": 1}) in said, what="it releases a claim that was replaced")
    slot.halt(0)
    Work.may_close.set()
    until(lambda: slot.ended, what="it halts")


def test_a_slot_started_again_before_its_thread_has_ended_runs_again(said: list[FromDriver]) -> None:
    driver = SlotSupervisor(resources(), said.append)
    Work.may_go_on.set()
    driver._dispatch(RUN)
    driver._dispatch(claims(p0=1))
    until(lambda: Work.turns, what="it is at work")
    driver._dispatch(HaltSlot(slot="ann"))
    until(lambda: SlotHalted(slot="ann") in said, what="it reports that it has halted")
    driver._slots["ann"].leave_behind_if_stuck(RealClock().boot_ms() + 60_000)
    assert said.count(SlotHalted(slot="ann")) == 1, "the next run would be taken for halted"
    driver._dispatch(RUN)
    driver._dispatch(claims(p0=5))
    driver._tick()
    assert {0: 5} not in Work.turns
    Work.may_close.set()
    until(lambda: driver._tick() and {0: 5} in Work.turns, what="the second run works under its own claims")
    driver._dispatch(HaltSlot(slot="ann"))
    until(lambda: said.count(SlotHalted(slot="ann")) == 2, what="and halts")


def test_a_slot_that_is_stuck_in_a_call_halts_without_its_thread(said: list[FromDriver]) -> None:
    """A sink that does not respond: the worker would kill the driver, and with it the slots of other pipelines."""
    driver = SlotSupervisor(resources(), said.append)
    driver._dispatch(RUN)
    driver._dispatch(claims(p0=1))
    until(lambda: Work.turns, what="it is at work")
    driver._dispatch(HaltSlot(slot="ann", within_ms=1_000))
    (slot,) = driver._slots.values()
    now_ms = RealClock().boot_ms()
    slot.leave_behind_if_stuck(now_ms + 2_000)
    assert SlotHalted(slot="ann") not in said
    slot.leave_behind_if_stuck(now_ms + 60_000)
    slot.leave_behind_if_stuck(now_ms + 60_000)
    assert said.count(SlotHalted(slot="ann")) == 1
    assert not slot.ended
    driver._dispatch(RUN)
    driver._dispatch(claims(p0=5))
    driver._tick()
    assert {0: 5} not in Work.turns, "not beside the former thread"
    told = len(said)
    Work.may_go_on.set()
    Work.may_close.set()
    until(lambda: slot.ended, what="the call returns")
    assert [each for each in said[told:] if not isinstance(each, DriverAlive)] == [], "it has halted long ago"
    until(lambda: driver._tick() and {0: 5} in Work.turns, what="the second run works")
    driver._dispatch(HaltSlot(slot="ann"))
    until(lambda: said.count(SlotHalted(slot="ann")) == 2, what="and halts")


def test_a_streaming_query_is_not_left_behind(said: list[FromDriver], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "StreamProcessor", Work)
    slot = slots.SlotThread(RUN, resources(), said.append)
    slot.set_claims(claims(p0=1))
    slot.start()
    until(lambda: Work.turns, what="it is at work")
    slot.halt(0)
    slot.leave_behind_if_stuck(RealClock().boot_ms() + 60_000)
    assert SlotHalted(slot="ann") not in said
    Work.may_go_on.set()
    Work.may_close.set()
    until(lambda: slot.ended, what="it halts")


def test_the_time_limit_is_of_a_job_and_not_of_a_turn_of_several(said: list[FromDriver]) -> None:
    made, cancelled = resources(), list[str]()
    limit_ms = made.settings.job_timeout_ms
    made.jobs.cancel = cancelled.append
    slot = slots.SlotThread(RUN, made, said.append)
    slot.set_claims(SlotClaims(slot="ann", epochs={"0": 1}, until_ms=RealClock().boot_ms() + 10 * limit_ms))
    slot.start()
    until(lambda: Work.turns, what="it is at work")
    made.jobs.running_ms = lambda name: limit_ms  # the second job of the turn
    slot.cancel_overdue(RealClock().boot_ms() + 2 * limit_ms - 10)
    assert cancelled == []
    made.jobs.running_ms = lambda name: limit_ms + 1
    slot.cancel_overdue(RealClock().boot_ms() + 2 * limit_ms)
    assert cancelled == ["ann"]
    slot.halt(0)
    Work.may_go_on.set()
    Work.may_close.set()
    until(lambda: slot.ended, what="it halts")


class Frame:
    """A frame whose job takes a while."""

    sparkSession = None  # noqa: N815 (Spark's name)

    def __init__(self, clock: FakeClock, running: list[int], jobs: SparkJobs) -> None:
        self._clock, self._running, self._jobs = clock, running, jobs

    def collect(self) -> list[Any]:
        self._clock.advance_ms(70)
        self._running.append(self._jobs.running_ms("ann"))
        return []


def test_the_time_of_each_job_begins_with_it() -> None:
    clock, running = FakeClock(), list[int]()
    context = SimpleNamespace(setJobGroup=lambda *_: None, setLocalProperty=lambda *_: None)
    spark: Any = SimpleNamespace(sparkContext=context)
    jobs = SparkJobs(spark, remote=False, clock=clock)
    assert jobs.running_ms("ann") == 0
    for _ in range(2):
        frame: Any = Frame(clock, running, jobs)
        jobs.run("ann", frame)
        clock.advance_ms(30)
    assert running == [70, 70]
    assert jobs.running_ms("ann") == 0
