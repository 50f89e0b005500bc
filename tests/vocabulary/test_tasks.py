"""Background tasks and notifications."""

import asyncio

import pytest

from holdfast.vocabulary import errors
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.tasks import Notify, background_tasks


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
