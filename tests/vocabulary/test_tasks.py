"""Background tasks, cancellation, and notifications."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from pathlib import Path

import pytest

from holdfast.vocabulary import errors, tasks
from holdfast.vocabulary.clock import FakeClock, RealClock
from holdfast.vocabulary.tasks import (
    LoopTurns,
    Notify,
    background_tasks,
    cancellation_first,
    gather_limited,
    gather_or_cancel,
    leaf_errors,
    task_group,
)


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


async def in_a_task_group(work: Callable[[], Awaitable[None]]) -> None:
    async with task_group() as group:
        group.create_task(as_coroutine(work))
        await asyncio.Event().wait()


async def in_the_background(work: Callable[[], Awaitable[None]]) -> None:
    async with background_tasks(as_coroutine(work)):
        await asyncio.Event().wait()


async def in_nested_background_tasks(work: Callable[[], Awaitable[None]]) -> None:
    async with cancellation_first(), background_tasks(as_coroutine(work)), background_tasks(as_coroutine(work)):
        await asyncio.Event().wait()


async def as_a_limited_call(work: Callable[[], Awaitable[None]]) -> None:
    await gather_limited(lambda _: work(), [0, 1], 2)


async def as_gathered_calls(work: Callable[[], Awaitable[None]]) -> None:
    await gather_or_cancel(as_coroutine(work), as_coroutine(work))


async def as_a_body(work: Callable[[], Awaitable[None]]) -> None:
    async with cancellation_first():
        await work()


async def as_coroutine(work: Callable[[], Awaitable[None]]) -> None:
    await work()


@pytest.mark.parametrize(
    "supervise",
    [
        in_a_task_group,
        in_the_background,
        in_nested_background_tasks,
        as_a_limited_call,
        as_gathered_calls,
        as_a_body,
    ],
)
@pytest.mark.parametrize("order", ["fails, then is cancelled", "is cancelled, then fails"])
async def test_cancellation_wins_over_a_child_that_fails_at_that_moment(
    supervise: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]], order: str
) -> None:
    outage = asyncio.Event()

    async def work() -> None:
        try:
            await outage.wait()
        finally:
            raise errors.UnavailableError("store", "away")

    async def supervisor() -> None:
        with suppress(errors.UnavailableError, BaseExceptionGroup):  # as one that begins again
            await supervise(work)

    running = asyncio.ensure_future(supervisor())
    await FakeClock().run_for_ms(1)
    if order.startswith("fails"):
        outage.set()
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()


async def test_a_failure_without_a_cancellation_stays_what_it_is() -> None:
    with pytest.raises(errors.ClosedError):
        async with cancellation_first():
            raise errors.ClosedError("it")
    async with asyncio.timeout(1):  # the count of cancellations is as before: a timeout still works
        with pytest.raises(errors.ClosedError):
            async with background_tasks(as_coroutine(_fail)):
                await asyncio.Event().wait()
    with pytest.raises(TimeoutError):
        await _timed_out()


async def _timed_out() -> None:
    async with asyncio.timeout(0.001), background_tasks():
        await asyncio.Event().wait()


async def _fail() -> None:
    raise errors.ClosedError("it")


async def test_what_a_cancellation_displaces_is_logged_unless_it_was_raised_on_purpose(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def cancelled_while_failing(error: Exception) -> None:
        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                raise error

        running = asyncio.ensure_future(in_the_background(work))
        await FakeClock().run_for_ms(1)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()

    await cancelled_while_failing(errors.ExpiredError("session 1", "the store has ended it"))
    assert not caplog.records
    await cancelled_while_failing(ZeroDivisionError("a defect"))
    (logged,) = caplog.records  # not the text, which Spark formats its own way once it was there
    assert logged.exc_info
    assert logged.exc_info[1]
    assert [str(each) for each in leaf_errors(logged.exc_info[1])] == ["a defect"]


async def test_a_generator_that_is_closed_while_its_task_is_cancelled_has_not_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    closing, never = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        try:
            await never.wait()
        finally:
            closing.set()
            await FakeClock().run_for_ms(1)

    async def items() -> AsyncGenerator[int, None]:
        async with background_tasks(work()):
            yield 1

    async def take() -> None:
        async with aclosing(items()) as opened:
            async for _ in opened:
                await FakeClock().run_for_ms(1)  # the work begins
                break

    task = asyncio.ensure_future(take())
    await closing.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not caplog.records


async def test_gathered_calls_return_in_order_and_the_first_failure_ends_the_others() -> None:
    async def value(number: int) -> int:
        return number

    assert await gather_or_cancel(value(1), value(2)) == [1, 2]
    ended = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    with pytest.raises(errors.ClosedError):
        await gather_or_cancel(forever(), _fail())
    assert ended == [True]


def test_nothing_uses_a_bare_task_group() -> None:
    source = Path(tasks.__file__).parents[1]
    own = {"vocabulary", "testing", "sim"}  # the wrapper; suites and simulators, which nobody supervises
    files = (path for path in source.rglob("*.py") if path.relative_to(source).parts[0] not in own)
    assert [path.name for path in files if "asyncio.TaskGroup()" in path.read_text()] == []


async def test_a_failure_in_a_bare_task_group_of_the_body_is_not_taken_for_a_cancellation() -> None:
    async def slow() -> None:
        await RealClock().sleep_ms(1)
        raise ZeroDivisionError

    with pytest.raises(BaseExceptionGroup) as raised:
        async with background_tasks(asyncio.Event().wait()), asyncio.TaskGroup() as group:  # type: ignore[arg-type]
            group.create_task(slow())  # it fails while the group is being left
    assert raised.group_contains(ZeroDivisionError)
    own = asyncio.current_task()
    assert own is not None
    while own.cancelling():  # what the bare group has left behind
        own.uncancel()


async def test_of_those_that_wait_for_a_turn_of_the_loop_each_gets_its_own() -> None:
    turns, turn, taken, passing = LoopTurns(), 0, [], True

    async def count() -> None:
        nonlocal turn
        while passing:
            turn += 1
            await RealClock().sleep_ms(0)

    async def take() -> None:
        await turns.next()
        taken.append(turn)

    counting = asyncio.ensure_future(count())
    await asyncio.gather(*(take() for _ in range(5)))
    passing = False
    await counting
    assert len(set(taken)) == 5
