"""The cache in RAM: right answers, a budget that holds, one request for equal reads."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts.objects import Missing
from holdfast.objects.cache import CacheSettings, CachingObjects, cached
from holdfast.objects.memory import MemoryObjects
from holdfast.objects.ram_cache import ENTRY_BYTES, RamCache
from holdfast.testing.faulty_objects import FaultyObjects
from holdfast.vocabulary.clock import FakeClock, RealClock
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.random import SeededRandom
from holdfast.vocabulary.settings import MIB

BODY = bytes(range(100))

asks = st.one_of(
    st.tuples(st.integers(0, 120), st.none()),
    st.tuples(st.integers(0, 120), st.integers(0, 120)).map(lambda ask: (min(ask), max(ask))),
    st.tuples(st.integers(-120, -1), st.none()),
)


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), asks), max_size=40), st.integers(0, 3_000))
def test_cached_ranges_are_correct_and_within_budget(
    reads: list[tuple[str, tuple[int, int | None]]], bytes_max: int
) -> None:
    bodies = {"a": BODY, "b": BODY[::-1][:37]}
    ranges = RamCache(bytes_max=bytes_max)
    for key, (start, end) in reads:
        truth = bodies[key][start:] if end is None else bodies[key][start:end]
        found = ranges.find((key, start, end))
        assert found is None or found == truth
        if found is None:
            ranges.add((key, start, end), truth)
            if bytes_max >= len(truth) + ENTRY_BYTES:
                assert ranges.find((key, start, end)) == truth
        assert ranges.bytes_held <= bytes_max
    held = list(ranges)
    assert ranges.bytes_held >= len(held) * ENTRY_BYTES
    for key in bodies:
        ranges.evict(key)
    assert (ranges.bytes_held, list(ranges)) == (0, [])


def test_the_least_recently_read_is_evicted_first() -> None:
    ranges = RamCache(bytes_max=3 * (10 + ENTRY_BYTES))
    for key in "abc":
        ranges.add((key, 0, 10), b"0123456789")
    assert ranges.find(("a", 0, 10)) is not None
    ranges.add(("d", 0, 10), b"0123456789")
    assert [key for key, _, _ in ranges] == ["c", "a", "d"]
    assert ranges.evicted == 1


async def world(*, range_bytes_max: int = MIB) -> tuple[FaultyObjects, CachingObjects, FakeClock]:
    clock = FakeClock()
    engine = MemoryObjects(clock=clock)
    await engine.put("k", [BODY])
    faulty = FaultyObjects(engine, clock=clock, random=SeededRandom(1))
    return faulty, CachingObjects(faulty, settings=CacheSettings(range_bytes_max=range_bytes_max)), clock


async def test_a_cached_range_is_not_requested_again() -> None:
    faulty, cache, _ = await world()
    for _ in range(3):
        assert await cache.get("k", start=10, end=50) == BODY[10:50]
        assert await cache.get_tail("k", 8) == BODY[-8:]
    assert faulty.calls == {"get": 1, "get_tail": 1}
    assert await cache.get("k", start=20, end=30) == BODY[20:30]  # covered
    assert await cache.get_tail("k", 4) == BODY[-4:]
    assert faulty.calls == {"get": 1, "get_tail": 1}
    assert (cache.totals.ram_hits, cache.totals.misses) == (6, 2)
    assert cache.totals.bytes_saved == 2 * 40 + 2 * 8 + 10 + 4
    assert await cache.get("k", start=20, end=60) == BODY[20:60]  # not covered
    assert faulty.calls["get"] == 2


async def test_a_missing_object_is_not_cached() -> None:
    _, cache, _ = await world()
    assert await cache.get("later") == Missing("later")
    await cache.put("later", [b"now"])
    assert await cache.get("later") == b"now"


async def test_a_deleted_object_is_evicted() -> None:
    _, cache, _ = await world()
    await cache.get("k")
    await cache.delete(["k"])
    assert await cache.get("k") == Missing("k")
    assert cache.ram_bytes_held == 0


async def test_a_reader_whose_checksum_failed_evicts_and_reads_again() -> None:
    faulty, cache, _ = await world()
    faulty.short_share = 1.0
    assert await cache.get("k", end=100) == BODY[:50]
    faulty.short_share = 0.0
    assert await cache.get("k", end=100) == BODY[:50]
    await cache.evict(["k"])
    assert await cache.get("k", end=100) == BODY


async def test_reads_larger_than_the_limit_are_not_cached() -> None:
    faulty, cache, _ = await world(range_bytes_max=50)
    for _ in range(2):
        assert await cache.get("k") == BODY
    assert faulty.calls == {"get": 2}
    assert cache.ram_bytes_held == 0


async def test_equal_reads_at_the_same_time_are_one_request() -> None:
    faulty, cache, clock = await world()
    faulty.delay_ms = 100
    reads = [asyncio.ensure_future(cache.get("k", start=5, end=9)) for _ in range(20)]
    other = asyncio.ensure_future(cache.get("k", start=50, end=60))
    await clock.run_for_ms(500)
    assert await asyncio.gather(*reads) == [BODY[5:9]] * 20
    assert await other == BODY[50:60]
    assert faulty.calls == {"get": 2}


async def test_a_cancelled_reader_does_not_cancel_the_others() -> None:
    faulty, cache, clock = await world()
    faulty.delay_ms = 100
    first, second = (asyncio.ensure_future(cache.get("k")) for _ in range(2))
    await clock.run_for_ms(20)
    first.cancel()
    await clock.run_for_ms(500)
    assert first.cancelled()
    assert await second == BODY
    assert faulty.calls == {"get": 1}


async def test_cancelling_the_last_reader_cancels_the_request() -> None:
    faulty, cache, clock = await world()
    faulty.delay_ms = 1_000
    reads = [asyncio.ensure_future(cache.get("k")) for _ in range(3)]
    await clock.run_for_ms(100)
    for read in reads:
        read.cancel()
    await asyncio.wait(reads)
    await clock.run_for_ms(5_000)
    assert faulty.calls == {}
    faulty.delay_ms = 0
    assert await cache.get("k") == BODY  # and no caller joins cancelled work


async def test_a_failure_reaches_all_waiting_readers_and_the_next_one_retries() -> None:
    faulty, cache, clock = await world()
    faulty.delay_ms, faulty.reachable = 100, False
    reads = [asyncio.ensure_future(cache.get("k")) for _ in range(3)]
    await clock.run_for_ms(500)
    for failed in await asyncio.gather(*reads, return_exceptions=True):
        assert isinstance(failed, UnavailableError)
    faulty.delay_ms, faulty.reachable = 0, True
    assert await cache.get("k") == BODY


async def test_the_budget_holds_whatever_flows_through() -> None:
    engine = MemoryObjects(clock=RealClock())
    for n in range(30):
        await engine.put(f"k/{n}", [bytes(100_000)])
    async with cached(engine, settings=CacheSettings(ram_bytes_max=MIB)) as cache:
        for n in range(30):
            for at in range(10):
                await cache.get(f"k/{n}", start=at * 10_000, end=(at + 1) * 10_000)
                assert cache.ram_bytes_held <= MIB
        assert cache.ram_bytes_held > MIB * 0.9


async def test_invalid_settings_are_refused() -> None:
    with pytest.raises(InvalidError):
        CacheSettings(ram_bytes_max=-1)
    with pytest.raises(InvalidError):
        CacheSettings(disk_bytes_max=5)
    with pytest.raises(InvalidError):
        CacheSettings(disk_folder="relative")
