"""Counters: what is counted, under which cause, and what it costs."""

import asyncio

import pytest

from holdfast.contracts.objects import Stored
from holdfast.objects.counters import CountingObjects, ObjectCounters, Prices, RequestTotals, caused_by
from holdfast.objects.memory import MemoryObjects
from holdfast.objects.retry import RetryingObjects, RetrySettings
from holdfast.testing.faulty_objects import FaultyObjects
from holdfast.vocabulary.clock import FakeClock, RealClock
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.random import SeededRandom


async def test_requests_are_counted_by_operation_and_cause() -> None:
    counters = ObjectCounters()
    objects = CountingObjects(MemoryObjects(clock=RealClock()), counters=counters, clock=RealClock())
    with caused_by("roll"):
        await objects.put("a", [b"12", b"345"])
        await objects.put("a", [b"12"])
    with caused_by("fetch"):
        await objects.get("a", start=1, end=3)
        await objects.get("missing")
        await objects.get_tail("a", 4)
    await objects.delete(["a"])

    totals_by_cause = {(operation, cause): totals for operation, cause, totals in counters.each()}
    assert list(totals_by_cause) == [("delete", "other"), ("get", "fetch"), ("get_tail", "fetch"), ("put", "roll")]
    assert (totals_by_cause["put", "roll"].calls, totals_by_cause["put", "roll"].bytes_written) == (2, 7)
    assert (totals_by_cause["get", "fetch"].calls, totals_by_cause["get", "fetch"].bytes_read) == (2, 2)
    assert (totals_by_cause["get_tail", "fetch"].calls, totals_by_cause["get_tail", "fetch"].bytes_read) == (1, 4)
    assert totals_by_cause["delete", "other"].calls == 1


async def test_a_cause_covers_tasks_started_inside_and_no_others() -> None:
    counters = ObjectCounters()
    objects = CountingObjects(MemoryObjects(clock=RealClock()), counters=counters, clock=RealClock())
    with caused_by("sweep"):
        inside = asyncio.ensure_future(objects.get("a"))
    await asyncio.gather(inside, objects.get("b"))
    assert counters.of("get", "sweep").calls == 1
    assert counters.of("get", "other").calls == 1


async def test_the_price_is_estimated_from_a_table() -> None:
    prices = Prices(put_usd_per_1000=5, get_usd_per_1000=0.4, list_usd_per_1000=5, read_usd_per_gib=1024)
    counters = ObjectCounters(prices=prices)
    objects = CountingObjects(MemoryObjects(clock=RealClock()), counters=counters, clock=RealClock())
    await objects.put("big", [b"x" * 2**20])
    assert counters.cost_usd == pytest.approx(0.005)
    await objects.get("big")
    assert counters.cost_usd == pytest.approx(0.005 + 0.0004 + 1)


async def test_a_listing_costs_a_request_for_each_thousand_keys() -> None:
    counters = ObjectCounters()
    objects = CountingObjects(MemoryObjects(clock=RealClock()), counters=counters, clock=RealClock())
    [info async for info in objects.list("")]
    assert counters.of("list").calls == 1
    for n in range(1_500):
        await objects.put(f"k/{n}", [])
    [info async for info in objects.list("k/")]
    assert counters.of("list").calls == 3
    await objects.delete([f"k/{n}" for n in range(1_500)])
    assert counters.of("delete").calls == 2


async def test_every_attempt_is_counted_with_errors_retries_and_time() -> None:
    clock = FakeClock()
    counters = ObjectCounters()
    faulty = FaultyObjects(MemoryObjects(clock=clock), clock=clock, random=SeededRandom(3))
    counted = CountingObjects(faulty, counters=counters, clock=clock)
    objects = RetryingObjects(
        counted, clock=clock, random=SeededRandom(4), settings=RetrySettings(), on_retry=counters.retried
    )
    faulty.fail_share, faulty.delay_ms = 1.0, 100
    with caused_by("roll"):
        putting = asyncio.ensure_future(objects.put("k", [b"1234"]))
    await clock.run_for_ms(1_000)
    faulty.fail_share = 0.0
    await clock.run_for_ms(10_000)
    assert await putting == Stored("k", 4)
    totals = counters.of("put", "roll")
    assert totals.calls >= 3
    assert totals.errors == totals.throttled == totals.retries == totals.calls - 1
    assert totals.bytes_written == 4 * totals.calls
    assert 80 * totals.calls <= totals.took_ms <= 220 * totals.calls
    assert totals.cost_usd == pytest.approx(0.005 / 1_000 * totals.calls)


async def test_an_unreachable_engine_is_an_error_without_throttling() -> None:
    counters = ObjectCounters()
    faulty = FaultyObjects(MemoryObjects(clock=RealClock()), clock=RealClock(), random=SeededRandom(3))
    objects = CountingObjects(faulty, counters=counters, clock=RealClock())
    faulty.reachable = False
    with pytest.raises(UnavailableError):
        await objects.get("k")
    with pytest.raises(UnavailableError):
        [info async for info in objects.list("")]
    for operation in ("get", "list"):
        totals = counters.of(operation)
        assert (totals.calls, totals.errors, totals.throttled) == (1, 1, 0)


async def test_prices_are_not_negative() -> None:
    with pytest.raises(InvalidError):
        Prices(put_usd_per_1000=-1)
    assert ObjectCounters().of("get") == RequestTotals()
