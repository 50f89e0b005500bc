"""The store of a server that has opened it and does not serve yet.

The one rule: until `served`, a call that the store does not answer is made again, for `wait_ms` at most, and the log says why it
waits. Then everything is passed on as it is: those who use a store are prepared for one that is away. What belongs to a session
is passed on always: its own loop knows how long it may wait.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from holdfast.contracts.forwarding_store import ForwardingStore
from holdfast.contracts.store import Committed, Conflict, Entry, NotCommitted, Operation, Requirement, Scan, Store
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import Random

T = TypeVar("T")

_log: Final = logging.getLogger(__name__)

_RETRY_MS: Final = 500


class StartingStore(ForwardingStore):
    """A store that may go away while a server starts."""

    def __init__(self, store: Store, *, clock: Clock, random: Random, wait_ms: int) -> None:
        super().__init__(store)
        self._clock, self._random, self._wait_ms = clock, random, wait_ms
        self.served = False
        self._away = ""  # why, as last logged

    async def get(self, key: str) -> Entry | None:
        return await self._answered(partial(self._store.get, key))

    async def scan(self, start: str, end: str, *, limit: int | None = None, reverse: bool = False) -> Scan:
        return await self._answered(partial(self._store.scan, start, end, limit=limit, reverse=reverse))

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        return await self._answered(partial(self._store.commit, require=require, apply=apply))

    async def resolve(self, commit_id: str) -> Committed | NotCommitted:
        return await self._answered(partial(self._store.resolve, commit_id))

    async def _answered(self, call: Callable[[], Awaitable[T]]) -> T:
        """`UnavailableError`: nothing was done, and the wait is over."""
        until_ms: int | None = None
        while True:
            try:
                answer = await call()
            except UnavailableError as error:
                now_ms = self._clock.boot_ms()
                until_ms = now_ms + self._wait_ms if until_ms is None else until_ms
                left_ms = until_ms - now_ms
                if self.served or left_ms <= 0:
                    raise
                if error.reason != self._away:
                    _log.warning("the store went away, waiting at most %d s more: %s", -(-left_ms // 1000), error)
                    self._away = error.reason
            else:
                if self._away:
                    self._away = ""
                    _log.info("the store is available")
                return answer
            await self._clock.sleep_ms(min(left_ms, self._random.jitter(_RETRY_MS)))
