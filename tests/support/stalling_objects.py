"""Object storage some of whose objects do not answer until they are told to."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from holdfast.contracts.objects import AlreadyExists, Buffer, Missing, ObjectInfo, Objects, Stored


class StallingObjects:
    """Passes calls on to `objects`; reads of the keys in `stalled` wait for `resume`."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.stalled: set[str] = set()
        self.gets = 0
        self.waiting = 0
        self._resumed = asyncio.Event()

    def resume(self) -> None:
        """Answer everything again."""
        self.stalled.clear()
        self._resumed.set()
        self._resumed = asyncio.Event()

    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        return await self._objects.put(key, body)

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> Buffer | Missing:
        await self._pass(key)
        return await self._objects.get(key, start=start, end=end)

    async def get_tail(self, key: str, size_bytes: int) -> Buffer | Missing:
        await self._pass(key)
        return await self._objects.get_tail(key, size_bytes)

    def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        return self._objects.list(prefix, after=after)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._objects.delete(keys)

    async def _pass(self, key: str) -> None:
        self.gets += 1
        if key in self.stalled:
            self.waiting += 1
            try:
                await self._resumed.wait()
            finally:
                self.waiting -= 1
