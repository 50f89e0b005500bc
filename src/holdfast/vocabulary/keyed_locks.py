"""Locks by key: who holds several takes them in one order, so that nobody waits in a circle."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class KeyedLocks:
    """A lock for each key, as long as somebody wants it: most keys rest."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}  # and how many want it

    @asynccontextmanager
    async def hold(self, *keys: str) -> AsyncIterator[None]:
        """Hold the locks of all these (distinct) keys for the body."""
        held: list[str] = []
        try:
            for key in sorted(keys):
                lock, wanted = self._locks.get(key) or (asyncio.Lock(), 0)
                self._locks[key] = lock, wanted + 1
                try:
                    await lock.acquire()
                except BaseException:
                    self._forget(key)
                    raise
                held.append(key)
            yield
        finally:
            for key in held:
                self._locks[key][0].release()
                self._forget(key)

    def _forget(self, key: str) -> None:
        lock, wanted = self._locks.pop(key)
        if wanted > 1:
            self._locks[key] = lock, wanted - 1
