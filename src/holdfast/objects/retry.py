"""Retrying: attempts go on, with growing jittered pauses, until one succeeds or the deadline passes.

The one rule: only what is safe to repeat is repeated, and here everything is: reads and deletes by nature, puts because they
are if-absent. A put whose answer was lost is put again and finds `AlreadyExists`: the caller knows its own upload by the key.
What the service refuses (`RefusedError`) is passed on at once.
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
    """How long an operation goes on, and how it pauses in between. Pauses after throttling are four times as long."""

    deadline_ms: int = 60_000
    pause_ms: int = 50
    pause_ms_max: int = 5_000

    def __post_init__(self) -> None:
        for name in ("deadline_ms", "pause_ms", "pause_ms_max"):
            check_at_least(name, getattr(self, name), 1)


OnRetry = Callable[[str], None]  # which operation is tried again


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
    """The result of the first attempt that succeeds; past the deadline, an `UnavailableError` with what was tried."""
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
            # An attempt that the deadline cut short says less than the one before it.
            failed = failed or UnavailableError(service, f"no answer within {left_ms} ms")
        tried += 1
        patience = 4 if isinstance(failed, ThrottledError) else 1
        pause_ms = backoff_ms(
            tried - 1, base_ms=settings.pause_ms * patience, max_ms=settings.pause_ms_max, random=random
        )
        now_ms = clock.boot_ms()
        if now_ms + pause_ms >= started_ms + settings.deadline_ms:
            reason = f"{operation} failed {tried} times in {now_ms - started_ms} ms, at last with: {failed.reason}"
            raise UnavailableError(failed.service, reason) from None
        await clock.sleep_ms(pause_ms)
        if on_retry is not None:
            on_retry(operation)


class RetryingObjects:
    """`objects`, more patiently."""

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
        return await self._keep_trying("put", partial(self._objects.put, key, body))

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> Buffer | Missing:
        return await self._keep_trying("get", partial(self._objects.get, key, start=start, end=end))

    async def get_tail(self, key: str, size_bytes: int) -> Buffer | Missing:
        return await self._keep_trying("get_tail", partial(self._objects.get_tail, key, size_bytes))

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        """Goes on where it was: keys come in order, so the last one seen is the place."""
        seen: AsyncIterator[ObjectInfo] | None = None

        async def following() -> ObjectInfo | None:
            nonlocal seen
            listing = seen or self._objects.list(prefix, after=after)
            seen = None  # a listing that fails is spent
            info = await anext(listing, None)
            seen = listing
            return info

        while (info := await self._keep_trying("list", following)) is not None:
            after = info.key
            yield info

    async def delete(self, keys: Sequence[str]) -> None:
        await self._keep_trying("delete", partial(self._objects.delete, keys))

    async def _keep_trying(self, operation: str, attempt: Callable[[], Awaitable[T]]) -> T:
        return await retry_until_deadline(
            operation,
            attempt,
            clock=self._clock,
            random=self._random,
            settings=self._settings,
            service=self._service,
            on_retry=self._on_retry,
        )
