"""Clocks: the fake one moves when a test moves it, the real one never steps back."""

import asyncio

from holdfast.vocabulary.clock import FakeClock, RealClock


async def test_the_fake_clock_wakes_sleepers_in_the_order_of_their_deadlines() -> None:
    clock, woken = FakeClock(), list[int]()

    async def sleeper(duration_ms: int) -> None:
        await clock.sleep_ms(duration_ms)
        woken.append(duration_ms)

    tasks = [asyncio.ensure_future(sleeper(duration_ms)) for duration_ms in (300, 100, 200)]
    await clock.run_for_ms(1, step_ms=1)  # they start counting
    await clock.run_for_ms(250)
    assert woken == [100, 200]
    await clock.run_for_ms(50)
    assert woken == [100, 200, 300]
    await asyncio.gather(*tasks)


def test_a_stepping_wall_clock_does_not_move_the_boot_clock() -> None:
    clock = FakeClock(now_ms=1_000_000)
    clock.advance_ms(500)
    clock.step_wall_ms(-100_000)
    assert (clock.now_ms(), clock.boot_ms()) == (900_500, 500)


async def test_the_real_clock_moves_and_its_boot_clock_never_steps_back() -> None:
    clock = RealClock()
    before = clock.boot_ms()
    await clock.sleep_ms(5)
    assert clock.boot_ms() >= before + 4
    assert clock.now_ms() > 1_700_000_000_000
