"""Blocking calls off the event loop: a bounded number of threads, each call with a time limit.

The one rule: whoever asks is answered in time. A call that is overdue is left behind in its thread, where its own socket's limit
ends it; until then it counts against the bound.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from holdfast.vocabulary.errors import UnavailableError

T = TypeVar("T")


class Threads:
    """Threads of one service. They are made when they are needed."""

    def __init__(self, *, threads_max: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads_max, thread_name_prefix=name)
        self._name = name

    async def run(self, what: str, call: Callable[[], T], *, timeout_ms: int) -> T:
        """The call's answer. `UnavailableError` when it does not come in time."""
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                return await asyncio.get_running_loop().run_in_executor(self._pool, call)
        except TimeoutError:
            raise UnavailableError(what, f"no answer within {timeout_ms} ms") from None

    def close(self) -> None:
        """Take no more calls, and wait for none."""
        self._pool.shutdown(wait=False, cancel_futures=True)
