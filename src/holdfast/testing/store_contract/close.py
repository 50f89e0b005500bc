"""Closing: what a closed store raises, and how its watchers end."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import pytest

from holdfast.contracts.store import Put, Store
from holdfast.testing.harness import StoreHarness
from holdfast.testing.store_contract.suite import ContractSuite, put
from holdfast.vocabulary.errors import ClosedError


class StoreClosing(ContractSuite):
    """A closed store raises `ClosedError` on every call."""

    def opening(self, harness: StoreHarness) -> AbstractAsyncContextManager[Store]:
        """A store that is closed when left."""
        return harness.client()

    async def test_closing_the_store_ends_its_watchers(self, harness: StoreHarness) -> None:
        async def follow(store: Store, prefix: str, start: int, ready: asyncio.Event) -> None:
            async with store.watch(prefix, from_version=start) as commits:
                async for _ in commits:
                    ready.set()

        async with self.opening(harness) as store:
            start = await put(store, "close/1")
            idle, busy = asyncio.Event(), asyncio.Event()
            watchers = [
                asyncio.ensure_future(follow(store, "close/", start, busy)),
                asyncio.ensure_future(follow(store, "elsewhere/", start, idle)),
            ]
            await put(store, "close/2")
            async with asyncio.timeout(self.timeout_s):
                await busy.wait()
        async with asyncio.timeout(self.timeout_s):
            ended = await asyncio.gather(*watchers, return_exceptions=True)
        assert [type(error) for error in ended] == [ClosedError, ClosedError]
        assert not idle.is_set()

    async def test_a_closed_store_refuses_every_call(self, harness: StoreHarness) -> None:
        async with self.opening(harness) as store:
            session = await store.open_session(60_000)
            version = await put(store, "closed", session=session.id)
            await store.close_session(session.id)

        async def watch() -> None:
            async with store.watch("", from_version=version) as commits:
                await anext(commits)

        calls: tuple[Callable[[], Awaitable[object]], ...] = (
            lambda: store.get("closed"),
            lambda: store.scan("a", "b"),
            lambda: store.commit(apply=[Put("closed", b"1")]),
            lambda: store.open_session(60_000),
            lambda: store.keep_alive(session.id),
            lambda: store.close_session(session.id),
            watch,
        )
        for call in calls:
            with pytest.raises(ClosedError):
                async with asyncio.timeout(self.timeout_s):
                    await call()
