"""Background tasks and notifications."""

import asyncio

import pytest

from holdfast.vocabulary import errors
from holdfast.vocabulary.clock import FakeClock, RealClock
from holdfast.vocabulary.tasks import Notify, background_tasks, gather_limited


async def test_background_tasks_end_with_the_body_and_their_failure_ends_it() -> None:
    ended = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def fail() -> None:
        raise errors.ClosedError("it")

    async with background_tasks(forever()):
        await FakeClock().run_for_ms(1)  # let the work start
    assert ended == [True]
    with pytest.raises(errors.ClosedError):
        async with background_tasks(forever(), fail()):
            await asyncio.Event().wait()
    assert ended == [True, True]


async def test_several_notifications_before_a_wait_count_as_one() -> None:
    notify, clock = Notify(), FakeClock()
    notify.notify()
    notify.notify()
    assert await notify.wait_ms(clock, 0)
    waiting = asyncio.ensure_future(notify.wait_ms(clock, 100))
    await clock.run_for_ms(200)
    assert await waiting is False


async def test_limited_calls_return_in_order_and_never_run_more_than_the_limit_at_a_time() -> None:
    running = most = 0

    async def double(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(10 - number):  # the later ones end first
            await RealClock().sleep_ms(0)
        running -= 1
        return 2 * number

    assert await gather_limited(double, range(10), 3) == [2 * number for number in range(10)]
    assert most == 3


async def test_the_first_failed_call_cancels_the_rest() -> None:
    cancelled = list[int]()

    async def fail_at_zero(item: int) -> None:
        if item == 0:
            raise errors.ClosedError("it")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(item)
            raise

    with pytest.raises(errors.ClosedError):
        await gather_limited(fail_at_zero, [1, 2, 0], 3)
    assert sorted(cancelled) == [1, 2]
