"""Retries: attempts continue, with growing jittered pauses, until one succeeds or the deadline passes.

The one rule: only what is safe to repeat is repeated, and here everything is: reads and deletes by nature, puts because they
are if-absent. A put whose answer was lost is repeated and finds `AlreadyExists`: the caller recognizes its own upload by the key.
What the service refuses (`RequestRefusedError`) is raised at once.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from holdfast.contracts.objects import AlreadyExists, Buffer, Missing, ObjectInfo, Objects, Stored
from holdfast.objects.errors import RequestRefusedError, ThrottledError
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import Random, backoff_ms
from holdfast.vocabulary.settings import check_at_least

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """The deadline of an operation and the pauses between attempts. Pauses after throttling are four times as long."""

    deadline_ms: int = 60_000
    pause_ms: int = 50
    pause_ms_max: int = 5_000

    def __post_init__(self) -> None:
        for name in ("deadline_ms", "pause_ms", "pause_ms_max"):
            check_at_least(name, getattr(self, name), 1)


OnRetry = Callable[[str], None]  # the operation that is retried


async def retry_until_deadline(
    operation: str,
    attempt: Callable[[], Awaitable[T]],
    *,
    clock: Clock,
    random: Random,
    settings: RetrySettings,
    service: str = "object storage",
    on_retry: OnRetry | None = None,
) -> T:
    """The result of the first attempt that succeeds; past the deadline, an `UnavailableError` with the last cause."""
    started_ms = clock.boot_ms()
    tried = 0
    failed: UnavailableError | None = None
    while True:
        left_ms = started_ms + settings.deadline_ms - clock.boot_ms()
        try:
            async with asyncio.timeout(left_ms / 1000):
                return await attempt()
        except RequestRefusedError:
            raise
        except UnavailableError as error:
            failed = error
        except TimeoutError:
            # An attempt cut short by the deadline tells less than the one before it.
            failed = failed or UnavailableError(service, f"no response within {left_ms} ms")
        tried += 1
        factor = 4 if isinstance(failed, ThrottledError) else 1
        pause_ms = backoff_ms(
            tried - 1, base_ms=settings.pause_ms * factor, max_ms=settings.pause_ms_max, random=random
        )
        now_ms = clock.boot_ms()
        if now_ms + pause_ms >= started_ms + settings.deadline_ms:
            reason = f"{operation} failed {tried} times in {now_ms - started_ms} ms, last error: {failed.reason}"
            raise UnavailableError(failed.service, reason) from None
        await clock.sleep_ms(pause_ms)
        if on_retry is not None:
            on_retry(operation)


class RetryingObjects:
    """`objects` with retries."""

    def __init__(
        self,
        objects: Objects,
        *,
        clock: Clock,
        random: Random,
        settings: RetrySettings,
        service: str = "object storage",
        on_retry: OnRetry | None = None,
    ) -> None:
        self._objects, self._service = objects, service
        self._clock, self._random, self._settings, self._on_retry = clock, random, settings, on_retry

    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        return await self._retry("put", partial(self._objects.put, key, body))

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> Buffer | Missing:
        return await self._retry("get", partial(self._objects.get, key, start=start, end=end))

    async def get_tail(self, key: str, size_bytes: int) -> Buffer | Missing:
        return await self._retry("get_tail", partial(self._objects.get_tail, key, size_bytes))

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        """Resumes after the last key: keys come in order."""
        seen: AsyncIterator[ObjectInfo] | None = None

        async def next_info() -> ObjectInfo | None:
            nonlocal seen
            listing = seen or self._objects.list(prefix, after=after)
            seen = None  # a failed listing cannot be resumed
            info = await anext(listing, None)
            seen = listing
            return info

        while (info := await self._retry("list", next_info)) is not None:
            after = info.key
            yield info

    async def delete(self, keys: Sequence[str]) -> None:
        await self._retry("delete", partial(self._objects.delete, keys))

    async def _retry(self, operation: str, attempt: Callable[[], Awaitable[T]]) -> T:
        return await retry_until_deadline(
            operation,
            attempt,
            clock=self._clock,
            random=self._random,
            settings=self._settings,
            service=self._service,
            on_retry=self._on_retry,
        )
