"""Simulated object storage: refusals, lost requests and answers, and listings that lag."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast.contracts.objects import AlreadyExists, Missing, Stored
from holdfast.kernel.objects_owner import MARKS
from holdfast.sim.cluster.history import ClusterHistory, ObjectDeleted
from holdfast.sim.cluster.loop import ClusterLoop
from holdfast.sim.cluster.objects import Bucket, BucketConditions, SimObjects
from holdfast.sim.network import NetworkLink
from holdfast.sim.process import SimClock, SimProcess
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import SeededRandom


class Storage:
    """A bucket and one process that uses it."""

    def __init__(self, **conditions: float) -> None:
        self.random = SeededRandom(3)
        self.loop = ClusterLoop(self.random, callbacks_max=100_000)
        self.history = ClusterHistory(self.loop, tracing=False)
        self.process = SimProcess("ann", self.loop)
        self.clock = SimClock(self.loop, self.process)
        self.link = NetworkLink()
        self.conditions = BucketConditions(**conditions)  # type: ignore[arg-type]
        self.bucket = Bucket(loop=self.loop, clock=self.clock, history=self.history)
        self.objects = SimObjects(
            self.bucket,
            loop=self.loop,
            process=self.process,
            link=self.link,
            conditions=self.conditions,
            random=self.random,
            history=self.history,
        )

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        async def body() -> None:
            await main()

        try:
            self.loop.run_until_complete(body())
        finally:
            self.loop.close()

    async def keys(self, prefix: str = "") -> list[str]:
        return [info.key async for info in self.objects.list(prefix)]


def test_what_was_put_is_there() -> None:
    storage = Storage()

    async def main() -> None:
        objects = storage.objects
        assert await objects.put("a/b", (b"12", b"345")) == Stored("a/b", 5)
        assert await objects.put("a/b", (b"x",)) == AlreadyExists("a/b")
        assert await objects.get("a/b", start=1, end=3) == b"23"
        assert await objects.get_tail("a/b", 2) == b"45"
        assert await objects.get("a/c") == Missing("a/c")
        await objects.delete(("a/b", "a/c"))
        assert await storage.keys() == []
        assert [event.key for event in storage.history.events if isinstance(event, ObjectDeleted)] == ["a/b"]

    storage.run(main)


def test_a_lost_answer_says_nothing_of_what_happened() -> None:
    storage = Storage(lost_share=0.5)

    async def main() -> None:
        there, not_there = 0, 0
        for number in range(30):
            with pytest.raises(UnavailableError):
                await storage.objects.put(f"k/{number}", (b"x",))
            await storage.clock.sleep_ms(5_000)
            found = not isinstance(storage.bucket.get(f"k/{number}", 0, None), Missing)
            there, not_there = there + found, not_there + (not found)
        assert there
        assert not_there

    storage.run(main)


def test_a_link_that_is_down_refuses_everything() -> None:
    storage = Storage()

    async def main() -> None:
        storage.link.up = False
        with pytest.raises(UnavailableError):
            await storage.objects.put("k", (b"x",))
        assert isinstance(storage.bucket.get("k", 0, None), Missing)

    storage.run(main)


def test_a_listing_may_miss_what_is_new_and_show_what_is_gone_but_never_for_marks() -> None:
    storage = Storage(listing_lag_ms=10_000.0)

    async def main() -> None:
        await storage.objects.put("old", (b"x",))
        await storage.objects.put(f"{MARKS}1", (b"x",))
        await storage.clock.sleep_ms(10_000)
        await storage.objects.delete(("old", f"{MARKS}1"))
        await storage.objects.put("new", (b"x",))
        await storage.objects.put(f"{MARKS}2", (b"x",))
        seen = [tuple(await storage.keys()) for _ in range(20)]
        assert any("old" in keys for keys in seen)
        assert any("new" not in keys for keys in seen)
        assert {tuple(await storage.keys(MARKS)) for _ in range(20)} == {(f"{MARKS}2",)}

    storage.run(main)


def test_a_process_that_died_gets_no_answer() -> None:
    storage = Storage()

    async def main() -> None:
        task = asyncio.ensure_future(storage.objects.put("k", (b"x",)))
        await asyncio.sleep(0)  # noqa: TID251 (no time passes)
        storage.process.die()
        with pytest.raises(asyncio.CancelledError):
            await task

    storage.run(main)
