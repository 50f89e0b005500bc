"""Object storage whose read bytes are added to a `ReadCounters`."""

from collections.abc import AsyncIterator, Sequence

from holdfast.client.types import ReadCounters
from holdfast.contracts.objects import AlreadyExists, Buffer, Missing, ObjectInfo, Objects, Stored


class CountedObjects:
    """`objects`, with the bytes of every read counted."""

    def __init__(self, objects: Objects, counters: ReadCounters) -> None:
        self._objects, self._counters = objects, counters

    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        return await self._objects.put(key, body)

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> Buffer | Missing:
        return self._count(await self._objects.get(key, start=start, end=end))

    async def get_tail(self, key: str, size_bytes: int) -> Buffer | Missing:
        return self._count(await self._objects.get_tail(key, size_bytes))

    def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        return self._objects.list(prefix, after=after)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._objects.delete(keys)

    def _count(self, found: Buffer | Missing) -> Buffer | Missing:
        if not isinstance(found, Missing):
            self._counters.bytes_objects += len(found)
        return found
