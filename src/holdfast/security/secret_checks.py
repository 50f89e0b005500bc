"""Checking secrets, which is slow by design, beside the event loop.

The one rule: nobody is held up by somebody else's wrong secrets for longer than a few checks take. So many run at a time, so
many of one caller wait, and the rest is refused at once. A caller is an address, and for keys the key it tries. What becomes of a
check is settled when it ends, also if nobody waits for it any more.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from holdfast.vocabulary.errors import UnavailableError

AT_ONCE: Final = 2
WAITING_PER_CALLER_MAX: Final = 16
WAITING_MAX: Final = 128


class SecretChecks:
    """The threads of one process that check secrets, and who waits for them."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="secret-check")
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._running: dict[bytes, asyncio.Task[bool]] = {}
        self._of_caller: Counter[str] = Counter()
        self.done = 0
        self.refused = 0

    async def run(
        self,
        caller: str,
        digest: bytes,
        check: Callable[[], bool],
        *,
        admitted: Callable[[], Awaitable[None]] | None = None,
        settled: Callable[[bool], None] | None = None,
    ) -> bool:
        """The result of the check; one of the same `digest` that is under way is waited for instead.

        `admitted`: awaited when it is the check's turn; what it raises is the result. `settled`: called once, with the result.
        `UnavailableError`: too many of this caller, or of all, are under way.
        """
        running = self._running.get(digest)
        if running is None:
            if self._of_caller[caller] >= WAITING_PER_CALLER_MAX or len(self._running) >= WAITING_MAX:
                self.refused += 1
                raise UnavailableError("login", "too many credentials are being checked")
            self._of_caller[caller] += 1
            running = self._running[digest] = asyncio.ensure_future(self._check(check, admitted, settled))
            running.add_done_callback(lambda ended: self._ended(caller, digest, ended))
        return await asyncio.shield(running)  # a caller that goes away takes nobody with it

    async def _check(
        self,
        check: Callable[[], bool],
        admitted: Callable[[], Awaitable[None]] | None,
        settled: Callable[[bool], None] | None,
    ) -> bool:
        async with self._turns:
            if admitted is not None:
                await admitted()
            self.done += 1
            found = False
            try:
                found = await asyncio.get_running_loop().run_in_executor(self._threads, check)
            finally:
                if settled is not None:
                    settled(found)
            return found

    def _ended(self, caller: str, digest: bytes, ended: "asyncio.Task[bool]") -> None:
        if not ended.cancelled():
            ended.exception()  # nobody may be left to look at it
        del self._running[digest]
        self._of_caller[caller] -= 1
        if not self._of_caller[caller]:
            del self._of_caller[caller]

    def close(self) -> None:
        """End the threads, without waiting for a check under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)
