"""Checking secrets, which is slow by design, beside the event loop.

The one rule: nobody is held up by somebody else's wrong secrets for longer than a few checks take. So many run at a time, so
many of one caller wait, and the rest is refused at once. A caller is an address, and for keys the key it tries.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
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
        self._running: dict[bytes, asyncio.Future[bool]] = {}
        self._of_caller: Counter[str] = Counter()
        self.done = 0
        self.refused = 0

    async def run(self, caller: str, digest: bytes, check: Callable[[], bool]) -> bool:
        """The result of the check; one of the same `digest` that is under way is waited for instead.

        `UnavailableError`: too many of this caller, or of all, are under way.
        """
        running = self._running.get(digest)
        if running is None:
            if self._of_caller[caller] >= WAITING_PER_CALLER_MAX or len(self._running) >= WAITING_MAX:
                self.refused += 1
                raise UnavailableError("login", "too many credentials are being checked")
            self.done += 1
            self._of_caller[caller] += 1
            running = self._running[digest] = asyncio.get_running_loop().run_in_executor(self._threads, check)
            running.add_done_callback(lambda _: self._ended(caller, digest))
        return await asyncio.shield(running)  # a caller that goes away takes nobody with it

    def _ended(self, caller: str, digest: bytes) -> None:
        del self._running[digest]
        self._of_caller[caller] -= 1
        if not self._of_caller[caller]:
            del self._of_caller[caller]

    def close(self) -> None:
        """End the threads, without waiting for a check under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)
