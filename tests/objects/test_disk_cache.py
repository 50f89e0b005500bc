"""The cache on disk: it survives the process, keeps its budget, and never passes on what was damaged."""

from pathlib import Path

import pytest
from tests.support.waiting import async_until

from holdfast.objects.cache import CacheSettings, CachingObjects, cached
from holdfast.objects.disk_cache import DiskCache
from holdfast.objects.memory import MemoryObjects
from holdfast.testing.faulty_objects import FaultyObjects
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import SeededRandom
from holdfast.vocabulary.settings import MIB

BODY = bytes(range(256)) * 100


class World:
    """An engine that counts, and caches without RAM over it, so that every answer comes from disk or from the engine."""

    def __init__(self, folder: Path, *, disk_bytes_max: int = 10 * MIB) -> None:
        self.engine = MemoryObjects(clock=RealClock())
        self.faulty = FaultyObjects(self.engine, clock=RealClock(), random=SeededRandom(1))
        self.settings = CacheSettings(ram_bytes_max=0, disk_folder=str(folder), disk_bytes_max=disk_bytes_max)


def ranges_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.range"))


async def written(folder: Path, count: int) -> None:
    await async_until(lambda: len(ranges_in(folder)) == count)


def disk_cache_of(cache: CachingObjects) -> DiskCache:
    assert cache._disk is not None
    return cache._disk


async def test_ranges_on_disk_survive_the_process(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.engine.put("k", [BODY])
    async with cached(world.faulty, settings=world.settings) as cache:
        assert await cache.get("k", start=100, end=900) == BODY[100:900]
        assert await cache.get_tail("k", 50) == BODY[-50:]
        assert await cache.get("k") == BODY
        await written(tmp_path, 3)
    (tmp_path / "torn.new").write_bytes(b"half")
    async with cached(world.faulty, settings=world.settings) as cache:
        assert await cache.get("k", start=100, end=900) == BODY[100:900]
        assert await cache.get_tail("k", 50) == BODY[-50:]
        assert await cache.get("k") == BODY
        assert cache.totals.disk_hits == 3
        assert not (tmp_path / "torn.new").exists()
    assert world.faulty.calls == {"get": 2, "get_tail": 1}


@pytest.mark.parametrize("damage", ["torn", "empty", "flipped", "gone", "another's", "newer format"])
async def test_a_damaged_file_is_read_again_from_the_engine(tmp_path: Path, damage: str) -> None:
    world = World(tmp_path)
    await world.engine.put("k", [BODY])
    async with cached(world.faulty, settings=world.settings) as cache:
        await cache.get("k", end=1_000)
        await cache.get("k", end=2_000)
        await written(tmp_path, 2)
        one, other = ranges_in(tmp_path)
        raw = one.read_bytes()
        if damage == "torn":
            one.write_bytes(raw[:-10])
        elif damage == "empty":
            one.write_bytes(b"")
        elif damage == "flipped":
            one.write_bytes(raw[:500] + bytes([raw[500] ^ 1]) + raw[501:])
        elif damage == "gone":
            one.unlink()
        elif damage == "another's":
            one.write_bytes(other.read_bytes())
        else:
            one.write_bytes(raw[:4] + b"\x02" + raw[5:])
        assert await cache.get("k", end=1_000) == BODY[:1_000]
        assert await cache.get("k", end=2_000) == BODY[:2_000]
        assert world.faulty.calls == {"get": 3}
        assert disk_cache_of(cache).damaged == 1


async def test_the_budget_holds_on_disk_and_after_a_restart_with_a_smaller_one(tmp_path: Path) -> None:
    world = World(tmp_path, disk_bytes_max=2 * MIB)
    async with cached(world.faulty, settings=world.settings) as cache:
        disk = disk_cache_of(cache)
        for n in range(40):
            await world.engine.put(f"k/{n}", [bytes(100_000)])
            await cache.get(f"k/{n}")
            await async_until(lambda: disk._backlog_bytes == 0)
            assert sum(path.stat().st_size for path in ranges_in(tmp_path)) <= 2 * MIB
        assert len(ranges_in(tmp_path)) == 20
        world.faulty.calls.clear()
        await cache.get("k/39")
        assert world.faulty.calls == {}
        await cache.get("k/0")
        assert world.faulty.calls == {"get": 1}
    async with DiskCache.open(tmp_path, bytes_max=MIB) as disk:
        assert disk.bytes_held == sum(path.stat().st_size for path in ranges_in(tmp_path)) <= MIB


async def test_a_full_disk_fails_no_read(tmp_path: Path) -> None:
    world = World(tmp_path / "cache")
    await world.engine.put("k", [BODY])
    async with cached(world.faulty, settings=world.settings) as cache:
        for leftover in (tmp_path / "cache").iterdir():
            leftover.unlink()
        (tmp_path / "cache").rmdir()
        assert await cache.get("k") == BODY
        await async_until(lambda: disk_cache_of(cache).skipped == 1)
        assert await cache.get("k") == BODY


async def test_an_evicted_object_is_removed_from_disk_too(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.engine.put("k", [BODY])
    await world.engine.put("kept", [BODY])
    async with cached(world.faulty, settings=world.settings) as cache:
        for key in ("k", "kept"):
            await cache.get(key)
            await cache.get(key, end=10)
        await written(tmp_path, 4)
        await cache.evict(["k"])
        assert len(ranges_in(tmp_path)) == 2
        await cache.get("k", end=20)
        await cache.delete(["k", "kept"])  # while the last one is on its way to the disk
        await async_until(lambda: disk_cache_of(cache)._backlog_bytes == 0)
        assert ranges_in(tmp_path) == []
        assert disk_cache_of(cache).bytes_held == 0


async def test_ranges_beyond_the_backlog_are_skipped(tmp_path: Path) -> None:
    async with DiskCache.open(tmp_path, bytes_max=100 * MIB) as disk:
        disk._backlog_bytes_max = 100_000
        for n in range(5):
            disk.offer((f"k/{n}", 0, None), bytes(40_000))
        assert disk.skipped == 3
        await written(tmp_path, 2)


async def test_a_folder_belongs_to_one_cache_at_a_time(tmp_path: Path) -> None:
    async with DiskCache.open(tmp_path, bytes_max=MIB):
        with pytest.raises(InvalidError, match="one process at a time"):
            async with DiskCache.open(tmp_path, bytes_max=MIB):
                pass
    async with DiskCache.open(tmp_path, bytes_max=MIB):
        pass
