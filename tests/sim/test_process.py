"""A pause holds everything back; death lets nothing out; clocks go their own way."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from holdfast.sim.loop import SimLoop
from holdfast.sim.process import WALL_START_MS, SimClock, SimProcess


def run(loop: SimLoop, main: Coroutine[Any, Any, None]) -> None:
    try:
        loop.run_until_complete(main)
    finally:
        loop.close()


def test_a_sleeper_in_a_paused_process_wakes_when_it_resumes_and_its_clock_has_gone_on() -> None:
    loop = SimLoop()
    process = SimProcess("ann", loop)
    clock = SimClock(loop, process)

    async def main() -> None:
        loop.post_at(5, process.pause)
        loop.post_at(100, process.resume, lambda held: None)
        await clock.sleep_ms(10)
        assert (loop.now_ms, clock.boot_ms()) == (100, 100)

    run(loop, main())


def test_a_clock_that_stops_in_pauses_can_be_had_on_purpose() -> None:
    loop = SimLoop()
    process = SimProcess("ann", loop)
    clock = SimClock(loop, process, runs_through_pauses=False)

    async def main() -> None:
        loop.post_at(5, process.pause)
        loop.post_at(100, process.resume, lambda held: None)
        await clock.sleep_ms(10)
        assert clock.boot_ms() == 5

    run(loop, main())


def test_a_fast_clock_sleeps_less_and_shows_more() -> None:
    loop = SimLoop()
    clock = SimClock(loop, SimProcess("ann", loop), rate=1.25, boot_offset_ms=7, wall_offset_ms=50)

    async def main() -> None:
        await clock.sleep_ms(1000)
        assert loop.now_ms == 800
        assert (clock.boot_ms(), clock.now_ms()) == (1007, WALL_START_MS + 1050)
        clock.step_wall_ms(-500)
        assert (clock.boot_ms(), clock.now_ms()) == (1007, WALL_START_MS + 550)

    run(loop, main())


def test_a_killed_process_unwinds_without_reaching_outside() -> None:
    loop = SimLoop()
    process = SimProcess("ann", loop)
    clock = SimClock(loop, process)
    cleaned: list[str] = []

    async def work() -> None:
        try:
            await clock.sleep_ms(1000)
        finally:
            cleaned.append("begun")
            await clock.sleep_ms(1)
            cleaned.append("done")

    async def main() -> None:
        task = asyncio.ensure_future(work())
        loop.post_at(10, process.die)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (loop.now_ms, cleaned) == (10, ["begun"])

    run(loop, main())


def test_what_was_held_back_dies_with_the_process() -> None:
    loop = SimLoop()
    process = SimProcess("ann", loop)
    process.pause()
    process.deliver(pytest.fail, "delivered to the dead")
    process.die()
    process.resume(lambda held: None)
    process.deliver(pytest.fail, "delivered to the dead")
    loop.close()
