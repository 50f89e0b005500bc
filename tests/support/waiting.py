"""Waiting for a condition, in real time or on a fake clock. A wait in vain fails with what was waited for."""

import threading
from collections.abc import Callable
from inspect import isawaitable
from typing import TypeVar

from holdfast.vocabulary.clock import FakeClock, RealClock

WAIT_S = 60.0  # for a busy machine; nothing waits that long when all is well
FAKE_WAIT_MS = 120_000

Condition = Callable[[], object]  # may return an awaitable
Description = str | Callable[[], str]
T = TypeVar("T")


def until(condition: Callable[[], T], *, what: Description = "", within_s: float = WAIT_S, pause_s: float = 0.02) -> T:
    """The condition's value, once it is true. `pause_s`: longer for a condition that a server has to work for."""
    clock, pause = RealClock(), threading.Event()
    deadline_ms = clock.boot_ms() + within_s * 1_000
    while not (value := condition()):
        assert clock.boot_ms() < deadline_ms, _in_vain(f"{within_s} s", what, condition)
        pause.wait(pause_s)
    return value


async def async_until(
    condition: Condition, *, what: Description = "", within_s: float = WAIT_S, pause_ms: int = 2
) -> None:
    """Return once the condition holds; it may be async."""
    clock = RealClock()
    deadline_ms = clock.boot_ms() + within_s * 1_000
    while not await evaluate(condition):
        assert clock.boot_ms() < deadline_ms, _in_vain(f"{within_s} s", what, condition)
        await clock.sleep_ms(pause_ms)


async def until_in_fake_time(
    clock: FakeClock, condition: Condition, *, within_ms: int = FAKE_WAIT_MS, step_ms: int = 100
) -> None:
    """Let time pass, step by step, until the condition holds; it may be async."""
    deadline_ms = clock.boot_ms() + within_ms
    while not await evaluate(condition):
        assert clock.boot_ms() < deadline_ms, _in_vain(f"{within_ms} ms of fake time", "", condition)
        await clock.run_for_ms(step_ms, step_ms=step_ms)


async def evaluate(condition: Condition) -> object:
    """The value of a condition that may be async."""
    value = condition()
    return await value if isawaitable(value) else value


def _in_vain(limit: str, what: Description, condition: object) -> str:
    return f"not within {limit}: {(what if isinstance(what, str) else what()) or condition}"
