"""Cache: ranges that were read are kept in RAM and optionally on disk, and equal concurrent reads share one request.

It needs no invalidation, because objects never change. A missing object is never cached: it may be written later. A deleted one may
still be served for a while, as to an earlier reader. A reader whose checksum fails calls `evict` and reads again. Budgets are in
bytes and are never exceeded.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.contracts.objects import AlreadyExists, Buffer, Missing, ObjectInfo, Objects, Stored
from holdfast.objects.checks import check_key, check_range, check_tail
from holdfast.objects.disk_cache import DiskCache
from holdfast.objects.ram_cache import RamCache, RangeKey
from holdfast.objects.single_flight import SingleFlight
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import MIB, check_at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """Budgets. `disk_folder` is for one process alone; without it there is no disk tier."""

    ram_bytes_max: int = 64 * MIB
    range_bytes_max: int = 4 * MIB  # larger reads are not cached, so that one scan does not evict everything else
    disk_folder: str = ""
    disk_bytes_max: int = 1024 * MIB

    def __post_init__(self) -> None:
        check_at_least("ram_bytes_max", self.ram_bytes_max, 0)
        check_at_least("range_bytes_max", self.range_bytes_max, 0)
        check_at_least("disk_bytes_max", self.disk_bytes_max, MIB)
        if self.disk_folder and not Path(self.disk_folder).is_absolute():
            raise InvalidError("disk_folder", self.disk_folder, "an absolute path")


@dataclass(slots=True)
class CacheTotals:
    """Reads since the process started, by tier."""

    ram_hits: int = 0
    disk_hits: int = 0
    misses: int = 0
    bytes_saved: int = 0


class CachingObjects:
    """`objects` with a cache."""

    def __init__(self, objects: Objects, *, settings: CacheSettings, disk: DiskCache | None = None) -> None:
        self._objects, self._settings, self._disk = objects, settings, disk
        self._ranges = RamCache(bytes_max=settings.ram_bytes_max)
        self._flights: SingleFlight[Buffer | Missing] = SingleFlight()
        self.totals = CacheTotals()

    @property
    def ram_bytes_held(self) -> int:
        """RAM in use, including overhead."""
        return self._ranges.bytes_held

    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        return await self._objects.put(key, body)

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> Buffer | Missing:
        check_range(key, start, end)
        return await self._read((key, start, end))

    async def get_tail(self, key: str, size_bytes: int) -> Buffer | Missing:
        check_tail(key, size_bytes)
        return await self._read((key, -size_bytes, None))

    def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        return self._objects.list(prefix, after=after)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._objects.delete(keys)
        await self.evict(keys)

    async def evict(self, keys: Sequence[str]) -> None:
        """Drop the cached ranges of some objects: a checksum failed, or they were deleted."""
        for key in keys:
            self._ranges.evict(key)
        if self._disk is not None:
            await self._disk.evict(set(keys))

    async def _read(self, name: RangeKey) -> Buffer | Missing:
        found = self._ranges.find(name)
        if found is not None:
            self.totals.ram_hits += 1
            self.totals.bytes_saved += len(found)
            return found
        check_key(name[0])
        return await self._flights.join(name, lambda: self._fetch(name))

    async def _fetch(self, name: RangeKey) -> Buffer | Missing:
        key, start, end = name
        if self._disk is not None:
            kept = await self._disk.find(name)
            if kept is not None:
                self.totals.disk_hits += 1
                self.totals.bytes_saved += len(kept)
                self._ranges.add(name, kept)
                return kept
        self.totals.misses += 1
        found: Buffer | Missing
        if start < 0:
            found = await self._objects.get_tail(key, -start)
        else:
            found = await self._objects.get(key, start=start, end=end)
        if not isinstance(found, Missing) and len(found) <= self._settings.range_bytes_max:
            self._ranges.add(name, found)
            if self._disk is not None:
                self._disk.offer(name, found)
        return found


@asynccontextmanager
async def cached(objects: Objects, *, settings: CacheSettings | None = None) -> AsyncIterator[CachingObjects]:
    """`objects` with a cache, for the body."""
    settings = settings or CacheSettings()
    async with AsyncExitStack() as stack:
        disk = None
        if settings.disk_folder:
            tier = DiskCache.open(Path(settings.disk_folder), bytes_max=settings.disk_bytes_max)
            disk = await stack.enter_async_context(tier)
        yield CachingObjects(objects, settings=settings, disk=disk)
