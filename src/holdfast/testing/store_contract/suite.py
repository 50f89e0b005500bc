"""The steps the suite's sentences are made of: writing, following a watch, waiting for what must come."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import ClassVar

import msgspec
import pytest

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import Changed, Committed, Entry, Operation, Put, Resync, Store
from holdfast.testing.harness import StoreHarness
from holdfast.vocabulary.clock import Clock, RealClock
from holdfast.vocabulary.errors import HoldfastError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random, SystemRandom
from holdfast.vocabulary.tasks import Notify, background_tasks

TOP = chr(0x10FFFF)  # above every key the suite writes


def text(value: object) -> bytes:
    """`value` as a store keeps it."""
    return msgspec.json.encode(value)


async def write(store: Store, *operations: Operation) -> int:
    """Commit without requirements; the version it got."""
    outcome = await store.commit(apply=operations)
    assert isinstance(outcome, Committed), f"a commit without requirements was answered {outcome}"
    return outcome.version


async def put(store: Store, key: str, value: object = 0, *, session: str | None = None) -> int:
    """Put one key; the version it got."""
    return await write(store, Put(key, text(value), session))


async def head(store: Store) -> int:
    """The store's present version: whoever watches from here sees all that comes."""
    return (await store.scan("a", "b", limit=1)).version


class WatchCollector:
    """What one watch has yielded so far."""

    def __init__(self, commits: AsyncIterator[Changed | Resync], *, patience_s: float) -> None:
        self._commits, self._patience_s, self._notify = commits, patience_s, Notify()
        self.seen: list[Changed | Resync] = []

    @property
    def commits(self) -> list[Changed]:
        """What was seen, all of it commits; `Resync` here means the engine lost history it still should have."""
        assert not [each for each in self.seen if isinstance(each, Resync)], f"Resync out of place: {self.seen}"
        return [each for each in self.seen if isinstance(each, Changed)]

    @property
    def versions(self) -> list[int]:
        return [commit.version for commit in self.commits]

    def states(self, key: str) -> list[Entry | None]:
        """The states `key` went through, as seen."""
        return [change.entry for commit in self.commits for change in commit.changes if change.key == key]

    async def collect(self) -> None:
        """Read the watch for ever."""
        async for each in self._commits:
            self.seen.append(each)
            self._notify.notify()
        raise AssertionError("the watch ended without an error")

    async def until(self, reached: Callable[[list[Changed]], bool], what: str) -> None:
        """Wait until what was seen is enough."""
        try:
            async with asyncio.timeout(self._patience_s):
                while not reached(self.commits):
                    await self._notify.wait()
        except TimeoutError:
            raise AssertionError(f"the watch did not show {what}; it showed {self.seen[-20:]}") from None

    async def reached(self, version: int) -> None:
        """Wait until a commit at or after `version` was seen."""
        await self.until(lambda commits: bool(commits) and commits[-1].version >= version, f"version {version}")


class ContractSuite:
    """What every part of the suite shares: a clock, patience, and how to wait."""

    pytestmark = pytest.mark.asyncio
    patience_s: float = 20.0
    clock: ClassVar[Clock] = RealClock()
    random: ClassVar[Random] = SystemRandom()

    def ttl_ms(self, harness: StoreHarness, *, at_least: int = 600) -> int:
        """A short TTL this engine grants."""
        return max(harness.ttl_ms_min, at_least)

    @asynccontextmanager
    async def following(self, store: Store, prefix: str, *, from_version: int) -> AsyncIterator[WatchCollector]:
        """A watch that is read all the time while the body runs."""
        async with store.watch(prefix, from_version=from_version) as commits:
            follower = WatchCollector(commits, patience_s=self.patience_s)
            async with background_tasks(follower.collect()):
                yield follower

    async def surely(self, store: Store, *operations: Operation) -> int:
        """Commit through whatever happens on the way; the version it got."""
        outcome = await commit_resolved(
            store, clock=self.clock, random=self.random, apply=operations, within_ms=int(self.patience_s * 1000)
        )
        assert isinstance(outcome, Committed), f"a commit without requirements was answered {outcome}"
        return outcome.version

    async def eventually(self, ask: Callable[[], Awaitable[bool]], what: str) -> None:
        """Ask again and again until the answer is yes; a store that is away is asked again."""
        try:
            async with asyncio.timeout(self.patience_s):
                while True:
                    try:
                        if await ask():
                            return
                    except (UnavailableError, OutcomeUnknownError):
                        pass
                    await self.clock.sleep_ms(20)
        except TimeoutError:
            raise AssertionError(f"not in {self.patience_s} s: {what}") from None

    async def wait_until_raises(self, error: type[HoldfastError], ask: Callable[[], Awaitable[object]]) -> None:
        """Ask again and again until `error` comes."""

        async def raised() -> bool:
            try:
                await ask()
            except error:
                return True
            return False

        await self.eventually(raised, f"{error.__name__} from a call that went on without it")
