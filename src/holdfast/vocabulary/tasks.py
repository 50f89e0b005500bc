"""Structured concurrency: no task that nobody awaits, and cancellation always wins.

Up to Python 3.12 `asyncio.TaskGroup`, and in every version `asyncio.gather`, drop a cancellation when a child fails at that moment:
whoever retries after the child's error then goes on for ever. So nothing uses them bare, but `task_group`, `background_tasks`,
`gather_limited` and `gather_or_cancel`; and a loop that begins again after errors calls `raise_if_cancelled` first
(docs/safety.md, rule 21).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final, NoReturn, TypeVar

from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError

_log: Final = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")


def unwrap_exception_group(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The single error inside nested groups, or the group itself when there are several."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def leaf_errors(error: BaseException) -> Iterator[BaseException]:
    """The errors inside nested groups: one cause is often noticed by several tasks at once."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaf_errors(each)
    else:
        yield error


def raise_if_cancelled() -> None:
    """Raise the cancellation that this task was asked for and something in it has dropped.

    For loops that begin again after errors, in tasks of our own: a bare `asyncio.TaskGroup` in a user's may leave `cancelling()`
    too high, up to Python 3.12.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


@asynccontextmanager
async def cancellation_first() -> AsyncIterator[None]:
    """If this task is cancelled during the body, the body leaves with the cancellation, whatever it raises instead.

    For bodies of our own, as `raise_if_cancelled`.
    """
    task = asyncio.current_task()
    assert task is not None
    cancelled_before = task.cancelling()
    try:
        yield
        return
    except (Exception, BaseExceptionGroup) as error:
        if task.cancelling() <= cancelled_before:
            raise
        displaced = error
    await _leave_cancelled(displaced)


async def _leave_cancelled(displaced: BaseException) -> NoReturn:
    # A generator that is closed has not failed.
    if not all(isinstance(each, HoldfastError | GeneratorExit) for each in leaf_errors(displaced)):
        _log.error("failed while being cancelled: %s", displaced, exc_info=displaced)
    # From Python 3.13 on the cancellation is still pending: it is taken here, not in somebody's `finally`.
    await asyncio.sleep(0)  # noqa: TID251 (no time passes)
    raise asyncio.CancelledError from displaced


class _TaskGroup(asyncio.TaskGroup):
    """A group that knows whether its task was cancelled by somebody else, at the moment when one of its own failed.

    Not by comparing `cancelling()` with what it was before: the body may be a user's, with a bare group that left it too high. So
    it does not notice a cancellation from which the body was already on its way out: `raise_if_cancelled` does.
    """

    def __init__(self) -> None:
        super().__init__()
        self._own = asyncio.current_task()
        self._left: set[asyncio.Task[Any]] = set()
        self._failed_at: int | None = None  # how often the task was cancelled when the first of ours failed
        self._pending = False  # whether it was being cancelled then

    def create_task(self, *args: Any, **kwargs: Any) -> asyncio.Task[Any]:
        task = super().create_task(*args, **kwargs)
        self._left.add(task)
        task.add_done_callback(self._left.discard)
        return task

    def _on_task_done(self, task: "asyncio.Task[Any]") -> None:  # called by the base class, which cancels the body then
        own = self._own
        if own is not None and self._failed_at is None and not task.cancelled() and task.exception() is not None:
            self._failed_at, self._pending = own.cancelling(), _is_being_cancelled(own)
        super()._on_task_done(task)

    async def until_done(self) -> None:
        """Wait for the tasks, in the body: one that fails while `__aexit__` waits would leave `cancelling()` too high."""
        while self._left:
            await asyncio.wait(set(self._left))

    def cancelled_from_outside(self, raised: BaseException | None, at_exit: int) -> bool:
        """Whether the body, which raised this, was cancelled by somebody else; `at_exit`: how often it was, when it ended."""
        own = self._own
        if own is None:
            return False
        by_us = self._failed_at is not None and at_exit > self._failed_at
        if own.cancelling() > at_exit - by_us:
            return True  # while the group waited for its tasks
        if not isinstance(raised, asyncio.CancelledError) or not own.cancelling():
            return False
        return not by_us or self._pending or at_exit > (self._failed_at or 0) + 1


def _is_being_cancelled(task: "asyncio.Task[Any]") -> bool:
    """Whether a cancellation was asked for that the task has not seen yet."""
    waits_for = getattr(task, "_fut_waiter", None)
    if getattr(task, "_must_cancel", False):
        return True
    if waits_for is None:
        return False
    cancelling = isinstance(waits_for, asyncio.Task) and waits_for.cancelling() > 0
    return cancelling or waits_for.cancelled() or getattr(waits_for, "_cancel_requested", False)


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """`asyncio.TaskGroup` that never drops a cancellation, nor leaves one behind that nobody asked for."""
    raised: BaseException | None = None
    at_exit = 0
    task = asyncio.current_task()
    assert task is not None
    group = _TaskGroup()
    try:
        async with group:
            try:
                yield group
                await group.until_done()
            except BaseException as error:
                raised = error
                raise
            finally:
                at_exit = task.cancelling()
        return
    except BaseExceptionGroup as failed:
        if not group.cancelled_from_outside(raised, at_exit):
            raise
        displaced = failed
    finally:
        raised = None
    await _leave_cancelled(displaced)


@asynccontextmanager
async def background_tasks(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` while the body runs. Leaving the body cancels the work; failing work cancels the body.

    An exception of the body alone leaves as it is, with its cause, also if it is a group.
    """
    raised: BaseException | None = None
    failure: BaseExceptionGroup[BaseException] | None = None
    try:
        async with task_group() as group:
            tasks = [group.create_task(coroutine) for coroutine in work]
            try:
                yield
            except BaseException as error:
                raised = error
                raise
            finally:
                for task in tasks:
                    task.cancel()
    except BaseExceptionGroup as failed:
        failure = failed
    if failure is None:
        return
    # Raised out here, so that no exception becomes the context of another: the group adds nothing to its only member.
    if raised is not None and len(failure.exceptions) == 1 and failure.exceptions[0] is raised:
        raise raised
    only = unwrap_exception_group(failure)
    raise only from only.__cause__


class Notify:
    """A wake-up that is never lost and never counted: several notifications before a wait count as one."""

    __slots__ = ("_notified", "_waiters")

    def __init__(self) -> None:
        self._notified = False
        self._waiters: dict[asyncio.Future[None], None] = {}  # in order of arrival: a set would differ from run to run

    def notify(self) -> None:
        self._notified = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Return at the next notification, or at once if there was one since the last wait."""
        if not self._notified:
            await self._wait()
        self._notified = False

    async def wait_ms(self, clock: Clock, timeout_ms: float) -> bool:
        """Wait for a notification for at most `timeout_ms`; whether there was one."""
        if not self._notified:
            # The sleeping task is cancelled, not awaited: awaiting it here could swallow our own cancellation.
            sleep = asyncio.ensure_future(clock.sleep_ms(timeout_ms))
            try:
                await self._wait(sleep)
            finally:
                sleep.cancel()
        notified, self._notified = self._notified, False
        return notified

    async def _wait(self, sleep: asyncio.Future[None] | None = None) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = None

        def wake(_: asyncio.Future[None]) -> None:
            if not waiter.done():
                waiter.set_result(None)

        if sleep is not None:
            sleep.add_done_callback(wake)
        try:
            await waiter
        finally:
            del self._waiters[waiter]


class LoopTurns:
    """Turns of the event loop, one caller in each: whatever else is ready gets its own in between."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def next(self) -> None:
        """Return in a later turn, in which nobody else returns from here."""
        async with self._lock:
            await asyncio.sleep(0)  # noqa: TID251 (no time passes)


class ConcurrencyLimit:
    """So many calls at a time, without those that take longer than `slow_ms`: they may never end, and must not stop the others."""

    def __init__(self, concurrency_max: int, *, slow_ms: float) -> None:
        self._slots, self._slow_s = asyncio.Semaphore(concurrency_max), slow_ms / 1000

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """One of the calls, for the body."""
        await self._slots.acquire()
        held = True

        def give_away() -> None:
            nonlocal held
            if held:
                held = False
                self._slots.release()

        timer = asyncio.get_running_loop().call_later(self._slow_s, give_away)
        try:
            yield
        finally:
            timer.cancel()
            give_away()


async def gather_limited(
    function: Callable[[Item], Awaitable[Result]], items: Iterable[Item], concurrency_max: int
) -> list[Result]:
    """The results of `function` for every item, in their order, at most `concurrency_max` calls at a time.

    The first failure cancels the rest.
    """
    slots = asyncio.Semaphore(concurrency_max)

    async def limited(item: Item) -> Result:
        async with slots:
            return await function(item)

    try:
        async with cancellation_first(), task_group() as group:
            tasks = [group.create_task(limited(item)) for item in items]
    except BaseExceptionGroup as failed:
        raise unwrap_exception_group(failed) from None
    return [task.result() for task in tasks]


async def gather_or_cancel(*work: Coroutine[Any, Any, Result]) -> list[Result]:
    """`asyncio.gather` that leaves nothing behind: the first failure cancels the rest and is raised once they have ended."""
    try:
        async with cancellation_first(), task_group() as group:
            tasks = [group.create_task(coroutine) for coroutine in work]
    except BaseExceptionGroup as failed:
        raise unwrap_exception_group(failed) from None
    return [task.result() for task in tasks]
