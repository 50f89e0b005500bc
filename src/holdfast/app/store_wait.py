"""Opening the store of a server that may be started together with it, or while it starts again.

The one rule: only `UnavailableError` is waited out, for `wait_ms` at most, and the log says why it waits. What is wrong with the
address, the login or the data is not going to change: it is raised at once.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from holdfast.contracts.store import Store
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import Random

_log: Final = logging.getLogger(__name__)

_RETRY_MS: Final = 500


@asynccontextmanager
async def waited_for_store(url: str, *, clock: Clock, random: Random, wait_ms: int) -> AsyncIterator[Store]:
    """The store at `url`, for the body. `UnavailableError`: it was not available for `wait_ms`."""
    until_ms, logged = clock.boot_ms() + wait_ms, ""
    async with AsyncExitStack() as stack:
        while True:
            try:
                store = await stack.enter_async_context(open_store(url, clock=clock, random=random))
                break
            except UnavailableError as error:
                left_ms = until_ms - clock.boot_ms()
                if left_ms <= 0:
                    raise
                if error.reason != logged:
                    _log.warning("waiting for the store, at most %d s more: %s", -(-left_ms // 1000), error)
                    logged = error.reason
            await clock.sleep_ms(min(left_ms, random.jitter(_RETRY_MS)))
        if logged:
            _log.info("the store is available")
        yield store
