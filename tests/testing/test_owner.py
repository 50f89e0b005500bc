"""The owner program prints its events, also when it is never stopped."""

import asyncio

import pytest

from holdfast.contracts.store import Put
from holdfast.stores.memory import MemoryStore
from holdfast.testing.owner import HOLD_MS_MAX, hold_key, main
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import SeededRandom


async def test_an_owner_that_is_never_stopped_releases_the_key_in_the_end() -> None:
    clock, lines = FakeClock(), list[str]()
    async with MemoryStore.open(clock=clock, random=SeededRandom(1)) as store:
        owner = asyncio.ensure_future(
            hold_key(store, clock=clock, random=SeededRandom(2), ttl_ms=9_000, key="key", report=lines.append)
        )
        await clock.run_for_ms(HOLD_MS_MAX - 1_000)
        entry = await store.get("key")
        assert entry is not None
        assert lines == [f"holding {entry.session}"]
        await clock.run_for_ms(5_000)
        await owner
        assert lines[1:] == ["tired"]
        assert await store.get("key") is None


async def test_an_owner_does_not_take_a_key_that_another_holds() -> None:
    clock, lines = FakeClock(), list[str]()
    async with MemoryStore.open(clock=clock, random=SeededRandom(1)) as store:
        await store.commit(apply=[Put("key", b"1")])
        await hold_key(store, clock=clock, random=SeededRandom(2), ttl_ms=9_000, key="key", report=lines.append)
    assert lines == ["taken"]


@pytest.mark.parametrize("argv", [[], ["memory:", "1000"], ["memory:", "soon", "key"]], ids=str)
async def test_invalid_arguments_are_an_error_with_usage(argv: list[str]) -> None:
    with pytest.raises(InvalidError):
        await main(argv)
