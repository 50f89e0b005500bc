"""Locks by key."""

import asyncio

import pytest

from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.keyed_locks import KeyedLocks

CLOCK = RealClock()


async def test_who_shares_a_key_waits_and_others_do_not() -> None:
    locks, held = KeyedLocks(), []
    may_end = asyncio.Event()

    async def hold(name: str, *keys: str) -> None:
        async with locks.hold(*keys):
            held.append(name)
            await may_end.wait()

    tasks = [asyncio.ensure_future(each) for each in (hold("a", "1", "2"), hold("b", "2", "3"), hold("c", "4"))]
    while len(held) < 2:
        await CLOCK.sleep_ms(0)
    assert held == ["a", "c"]
    may_end.set()
    await asyncio.gather(*tasks)
    assert held == ["a", "c", "b"]


async def test_nobody_waits_in_a_circle() -> None:
    locks = KeyedLocks()

    async def hold(*keys: str) -> None:
        async with locks.hold(*keys):
            await CLOCK.sleep_ms(0)

    await asyncio.gather(*(hold("1", "2"), hold("2", "1"), hold("1", "2")))


async def test_a_key_that_nobody_wants_is_forgotten_also_by_who_gave_up() -> None:
    locks = KeyedLocks()
    async with locks.hold("1"):
        waiting = asyncio.ensure_future(_hold(locks, "0", "1"))
        await CLOCK.sleep_ms(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        async with locks.hold("0"):
            pass
    assert locks._locks == {}


async def _hold(locks: KeyedLocks, *keys: str) -> None:
    async with locks.hold(*keys):
        pass
