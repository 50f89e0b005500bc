"""Steps shared by the suite: writes, watches that are read in the background, waiting for conditions."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import ClassVar

import msgspec
import pytest

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import Changed, Committed, Entry, Operation, Put, Resync, Session, Store
from holdfast.testing.harness import StoreHarness
from holdfast.vocabulary.clock import Clock, RealClock
from holdfast.vocabulary.errors import HoldfastError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random, SystemRandom
from holdfast.vocabulary.tasks import Notify, background_tasks

TOP = chr(0x10FFFF)  # above every key the suite writes


def text(value: object) -> bytes:
    """`value` as stored."""
    return msgspec.json.encode(value)


async def write(store: Store, *operations: Operation) -> int:
    """Commit without requirements; the version it got."""
    outcome = await store.commit(apply=operations)
    assert isinstance(outcome, Committed), f"a commit without requirements was answered {outcome}"
    return outcome.version


async def put(store: Store, key: str, value: object = 0, *, session: str | None = None) -> int:
    """Put one key; the version it got."""
    return await write(store, Put(key, text(value), session))


async def brief_session(store: Store, ttl_ms: int, keys: Mapping[str, object], *, clock: Clock) -> tuple[Session, int]:
    """A session that will not be renewed, with these keys, and their version.

    One that has ended before it had them, because this process was held up, shows nothing: the next one has twice the TTL.
    """
    while True:
        opened_at_ms = clock.boot_ms()
        session = await store.open_session(ttl_ms)
        outcome = await store.commit(apply=[Put(key, text(value), session.id) for key, value in keys.items()])
        if isinstance(outcome, Committed):
            return session, outcome.version
        assert outcome.dead_session == session.id, f"a commit without requirements was answered {outcome}"
        lived_ms = clock.boot_ms() - opened_at_ms
        assert lived_ms >= session.ttl_ms * 0.95 - 5, f"ended after {lived_ms} ms of {session.ttl_ms} ms"
        ttl_ms = 2 * session.ttl_ms


async def head(store: Store) -> int:
    """The store's current version: a watch from here yields everything later."""
    return (await store.scan("a", "b", limit=1)).version


class WatchCollector:
    """What one watch has yielded so far."""

    def __init__(self, commits: AsyncIterator[Changed | Resync], *, timeout_s: float) -> None:
        self._commits, self._timeout_s, self._notify = commits, timeout_s, Notify()
        self.seen: list[Changed | Resync] = []

    @property
    def commits(self) -> list[Changed]:
        """The commits seen; a `Resync` among them means that the engine lost history it should have."""
        assert not [each for each in self.seen if isinstance(each, Resync)], f"Resync out of place: {self.seen}"
        return [each for each in self.seen if isinstance(each, Changed)]

    @property
    def versions(self) -> list[int]:
        return [commit.version for commit in self.commits]

    def states(self, key: str) -> list[Entry | None]:
        """The states of `key`, as seen."""
        return [change.entry for commit in self.commits for change in commit.changes if change.key == key]

    async def collect(self) -> None:
        """Read the watch for ever."""
        async for each in self._commits:
            self.seen.append(each)
            self._notify.notify()
        raise AssertionError("the watch ended without an error")

    async def until(self, reached: Callable[[list[Changed]], bool], what: str) -> None:
        """Wait until the commits seen satisfy `reached`."""
        try:
            async with asyncio.timeout(self._timeout_s):
                while not reached(self.commits):
                    await self._notify.wait()
        except TimeoutError:
            raise AssertionError(f"the watch did not show {what}; it showed {self.seen[-20:]}") from None

    async def reached(self, version: int) -> None:
        """Wait until a commit at or after `version` was seen."""
        await self.until(lambda commits: bool(commits) and commits[-1].version >= version, f"version {version}")


class ContractSuite:
    """What every part of the suite shares: a clock, a timeout, and how to wait."""

    pytestmark = pytest.mark.asyncio
    timeout_s: float = 20.0
    clock: ClassVar[Clock] = RealClock()
    random: ClassVar[Random] = SystemRandom()

    def ttl_ms(self, harness: StoreHarness, *, at_least: int = 600) -> int:
        """A short TTL this engine grants."""
        return max(harness.ttl_ms_min, at_least)

    @asynccontextmanager
    async def watching(self, store: Store, prefix: str, *, from_version: int) -> AsyncIterator[WatchCollector]:
        """A watch that is read continuously while the body runs."""
        async with store.watch(prefix, from_version=from_version) as commits:
            follower = WatchCollector(commits, timeout_s=self.timeout_s)
            async with background_tasks(follower.collect()):
                yield follower

    async def commit_resolved(self, store: Store, *operations: Operation) -> int:
        """Commit through faults; the version it got."""
        outcome = await commit_resolved(
            store, clock=self.clock, random=self.random, apply=operations, within_ms=int(self.timeout_s * 1000)
        )
        assert isinstance(outcome, Committed), f"a commit without requirements was answered {outcome}"
        return outcome.version

    async def wait_until(self, condition: Callable[[], Awaitable[bool]], what: str) -> None:
        """Poll until `condition` is true; an unavailable store is polled again."""
        try:
            async with asyncio.timeout(self.timeout_s):
                while True:
                    try:
                        if await condition():
                            return
                    except (UnavailableError, OutcomeUnknownError):
                        pass
                    await self.clock.sleep_ms(20)
        except TimeoutError:
            raise AssertionError(f"not within {self.timeout_s} s: {what}") from None

    async def wait_until_raises(self, error: type[HoldfastError], call: Callable[[], Awaitable[object]]) -> None:
        """Call until `error` is raised."""

        async def raised() -> bool:
            try:
                await call()
            except error:
                return True
            return False

        await self.wait_until(raised, f"{error.__name__} from a call that kept succeeding")
