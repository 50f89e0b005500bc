"""What a driver says of partitions it was told to let go, and of a slot that is to run again, whatever its thread was at."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.broker import until

from holdfast.pipeline.driver import slot_thread as slots
from holdfast.pipeline.driver.process import SlotSupervisor
from holdfast.pipeline.driver.settings import DriverSettings
from holdfast.pipeline.model.driver_protocol import (
    FromDriver,
    HaltSlot,
    PartitionsReleased,
    RunSlot,
    SlotClaims,
    SlotHalted,
    SlotProgress,
)
from holdfast.vocabulary.clock import RealClock

RUN = RunSlot(slot="ann", pipeline_id="p", generation=1)


class Work:
    """A slot's work that takes nothing over, is at its first step until it may go on, and is slow to close."""

    may_go_on = threading.Event()
    may_close = threading.Event()
    steps: list[dict[int, int]]

    def __init__(self, *_: Any) -> None:
        self.tally = SimpleNamespace(batches=0)

    def let_go(self, claims: dict[int, int]) -> dict[int, int]:
        return {}

    def step(self, claims: dict[int, int]) -> int:
        Work.steps.append(claims)
        Work.may_go_on.wait(30)
        return RealClock().boot_ms() + 20

    def finished(self, claims: dict[int, int]) -> bool:
        return False

    def progress(self) -> SlotProgress:
        return SlotProgress(slot="ann")

    def close(self) -> None:
        Work.may_close.wait(30)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[FromDriver]:
    monkeypatch.setattr(slots, "SlotProcessor", Work)
    Work.steps = []
    Work.may_go_on.clear()
    Work.may_close.clear()
    return []


def tools() -> Any:
    jobs = SimpleNamespace(answers=lambda: True, cancel=lambda name: None)
    return SimpleNamespace(clock=RealClock(), settings=DriverSettings(), jobs=jobs)


def claims(**epochs: int) -> SlotClaims:
    numbers = {name.removeprefix("p"): epoch for name, epoch in epochs.items()}
    return SlotClaims(slot="ann", epochs=numbers, until_ms=RealClock().boot_ms() + 60_000)


def test_a_partition_that_came_and_went_between_two_looks_is_let_go_too(said: list[FromDriver]) -> None:
    slot = slots.SlotThread(RUN, tools(), said.append)
    slot.claims(claims(p0=1))
    slot.start()
    until(lambda: Work.steps, what="it is at work")
    slot.claims(claims(p0=1, p7=4))
    slot.claims(claims(p0=1))
    Work.may_go_on.set()
    until(lambda: PartitionsReleased(slot="ann", epochs={"7": 4}) in said, what="it lets go of what it never had")
    slot.claims(claims(p0=3))
    until(
        lambda: PartitionsReleased(slot="ann", epochs={"0": 1}) in said, what="it lets go of a claim that was replaced"
    )
    slot.halt(0)
    Work.may_close.set()
    until(lambda: slot.over, what="it halts")


def test_a_slot_told_to_run_again_before_it_was_quite_over_runs_again(said: list[FromDriver]) -> None:
    driver = SlotSupervisor(tools(), said.append)
    Work.may_go_on.set()
    driver._obey(RUN)
    driver._obey(claims(p0=1))
    until(lambda: Work.steps, what="it is at work")
    driver._obey(HaltSlot(slot="ann"))
    until(lambda: SlotHalted(slot="ann") in said, what="it says that it has halted")
    driver._obey(RUN)
    driver._obey(claims(p0=5))
    driver._tick()
    assert {0: 5} not in Work.steps
    Work.may_close.set()
    until(lambda: driver._tick() and {0: 5} in Work.steps, what="the second run works under its own claims")
    driver._obey(HaltSlot(slot="ann"))
    until(lambda: said.count(SlotHalted(slot="ann")) == 2, what="and halts")
