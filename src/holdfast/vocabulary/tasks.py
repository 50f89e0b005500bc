"""Structured concurrency: no task that nobody awaits."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from holdfast.vocabulary.clock import Clock


def the_only_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The single error inside nested groups, or the group itself when there are several."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


@asynccontextmanager
async def beside(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` while the body runs. Leaving the body cancels the work; failing work cancels the body."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in work]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
    except BaseExceptionGroup as failed:
        # `from None` keeps the trace short: the group adds nothing to its only member.
        raise the_only_error(failed) from None


class Bell:
    """A wake-up that is never lost and never counted: many rings before one wait are one ring."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        """Return at the next ring, or at once if one came since the last wait."""
        await self._event.wait()
        self._event.clear()

    async def wait_ms(self, clock: Clock, timeout_ms: float) -> bool:
        """Wait for a ring at most `timeout_ms`; say whether one came."""
        if self._event.is_set():
            self._event.clear()
            return True
        sleep = asyncio.ensure_future(clock.sleep_ms(timeout_ms))
        ring = asyncio.ensure_future(self._event.wait())
        try:
            await asyncio.wait((sleep, ring), return_when=asyncio.FIRST_COMPLETED)
            return self._event.is_set()
        finally:
            self._event.clear()
            for task in (sleep, ring):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
