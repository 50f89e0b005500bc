"""Watches: every commit below a prefix, once, in order, pushed; and the same across breaks."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from holdfast.contracts.store import Change, Changed, Delete, Entry, Put, Resync, Store
from holdfast.testing.harness import StoreHarness
from holdfast.testing.store_contract.suite import ContractSuite, head, put, text, write


class StoreWatches(ContractSuite):
    """A watcher misses nothing, and sees nothing twice."""

    push_ms_max: int = 8_000  # for twenty changes one after the other; an engine that polls once a second needs twenty

    async def test_a_watch_replays_exactly_what_came_after_its_version(self, store: Store) -> None:
        versions = [await put(store, f"past/{n}", n) for n in range(20)]
        deleted = await write(store, Delete("past/3"), Delete("past/never"))
        async with self.watching(store, "past/", from_version=versions[9]) as follower:
            await follower.reached(deleted)
            assert follower.commits == [
                *(
                    Changed(version, (Change(f"past/{n}", Entry(f"past/{n}", text(n), version)),))
                    for n, version in enumerate(versions)
                    if n > 9
                ),
                Changed(deleted, (Change("past/3", None),)),
            ]

    async def test_a_watch_shows_only_keys_below_its_prefix(self, store: Store) -> None:
        start = await head(store)
        # Prefixes that mean something else to LIKE, GLOB, regular expressions and locales.
        prefixes = ("w/a_", "w/a%", "w/a*", "w/[a]", "w/a", "w/A", "w/ä", "w/😀", "w/a\\", "w/a/", "")
        names = ("a_1", "a%1", "a*1", "[a]1", "ab", "A1", "ä1", "😀1", "a\\1", "a/1", "a", "b", "aa_1")
        async with AsyncExitStack() as watches:
            followers = {
                prefix: await watches.enter_async_context(self.watching(store, prefix, from_version=start))
                for prefix in prefixes
            }
            for name in names:
                await put(store, f"w/{name}")
            ends = {prefix: await put(store, f"{prefix or 'z'}~end") for prefix in prefixes}
            for prefix, follower in followers.items():
                await follower.reached(max(ends.values()) if not prefix else ends[prefix])
                seen = [change.key for commit in follower.commits for change in commit.changes]
                assert [key for key in seen if not key.endswith("~end")] == [
                    f"w/{name}" for name in names if f"w/{name}".startswith(prefix)
                ], f"below {prefix!r}"

    async def test_the_changes_of_one_commit_come_together_in_key_order(self, store: Store) -> None:
        await write(store, Put("one/c", b"0"), Put("one/d", b"0"))
        start = await head(store)
        version = await write(
            store, Put("one/z", b"1"), Delete("one/d"), Put("other", b"1"), Put("one/a", b"1"), Put("one/é", b"1")
        )
        async with self.watching(store, "one/", from_version=start) as follower:
            await follower.reached(version)
            changes = tuple(
                Change(key, None if key == "one/d" else Entry(key, b"1", version))
                for key in ("one/a", "one/d", "one/z", "one/é")
            )
            assert follower.commits == [Changed(version, changes)]

    async def test_a_commit_that_changed_nothing_below_the_prefix_is_not_shown(self, store: Store) -> None:
        start = await put(store, "quiet/1")
        async with self.watching(store, "quiet/", from_version=start) as follower:
            await write(store, Delete("quiet/none"))
            await store.commit(apply=[])
            await put(store, "loud/1")
            end = await put(store, "quiet/2")
            await follower.reached(end)
            assert follower.versions == [end]

    async def test_changes_are_pushed(self, harness: StoreHarness, store: Store) -> None:
        start = await head(store)
        async with harness.client() as watcher, self.watching(watcher, "push/", from_version=start) as follower:
            begun_at_ms = self.clock.boot_ms()
            for n in range(20):
                await follower.reached(await put(store, "push/1", n))
            assert self.clock.boot_ms() - begun_at_ms < self.push_ms_max, "changes come by polling, not by push"
            assert len(follower.commits) == 20

    async def test_a_watcher_whose_wait_was_cancelled_can_continue(self, store: Store) -> None:
        start = await head(store)
        async with store.watch("tick/", from_version=start) as commits:
            seen = []
            for n in range(3):
                waiting = asyncio.ensure_future(anext(commits))
                await asyncio.wait([waiting], timeout=0.05)
                waiting.cancel()  # as a caller's timeout does
                await asyncio.wait([waiting])
                if not waiting.cancelled():
                    seen.append(waiting.result())
                await put(store, "tick/1", n)
            async with asyncio.timeout(self.timeout_s):
                while len(seen) < 3:
                    seen.append(await anext(commits))
        values = [each.changes[0].entry for each in seen if isinstance(each, Changed)]
        assert [entry and entry.value for entry in values] == [b"0", b"1", b"2"]

    async def test_many_watchers_each_see_their_own_prefix(self, harness: StoreHarness, store: Store) -> None:
        start = await head(store)
        async with harness.client() as other, AsyncExitStack() as watches:
            followers = [
                await watches.enter_async_context(
                    self.watching((store, other)[n % 2], f"crowd/{n:03}/", from_version=start)
                )
                for n in range(100)
            ]
            everything = await watches.enter_async_context(self.watching(other, "crowd/", from_version=start))
            versions = [
                await write(store, *(Put(f"crowd/{n:03}/x", text(turn)) for n in range(at, 100, 4)))
                for turn in range(3)
                for at in range(4)
            ]
            await everything.reached(versions[-1])
            assert everything.versions == versions
            for n, follower in enumerate(followers):
                await follower.reached(versions[8 + n % 4])
                assert follower.versions == versions[n % 4 :: 4]

    async def test_a_watcher_that_starts_far_behind_catches_up(self, harness: StoreHarness, store: Store) -> None:
        start = await head(store)
        versions: list[int] = []

        async def write_some(writer: int) -> None:
            for n in range(60):
                version = await put(store, f"far/{(writer + n) % 50}", [writer, n])
                versions.append(version)

        await asyncio.gather(*(write_some(writer) for writer in range(50)))
        # A client that has just been opened remembers none of these 3000 commits.
        async with harness.client() as late, late.watch("far/", from_version=start) as commits:
            end = await put(store, "far/end")
            state: dict[str, Entry] = {}
            at, seen = start, []
            async with asyncio.timeout(self.timeout_s):
                while at < end:
                    each = await anext(commits)
                    assert each.version > at or isinstance(each, Resync), "out of order, or seen twice"
                    if isinstance(each, Resync):
                        scan = await late.scan("far/", "far0")
                        state, at = {entry.key: entry for entry in scan.entries}, scan.version
                        seen = [version for version in sorted(versions) if version <= at]
                        continue
                    at = each.version
                    seen.append(at)
                    for change in each.changes:
                        assert change.entry is not None
                        state[change.key] = change.entry
        assert seen == [*sorted(versions), end]
        assert state == {entry.key: entry for entry in (await store.scan("far/", "far0")).entries}

    async def test_no_commit_is_missed_or_repeated_when_connections_break(
        self, harness: StoreHarness, store: Store
    ) -> None:
        async def cut_a_few_times() -> None:
            for _ in range(4):
                await harness.cut()
                await self.clock.sleep_ms(50)

        await self.watch_through(harness, store, cut_a_few_times)

    async def test_no_commit_is_missed_or_repeated_when_the_store_is_unreachable_for_a_while(
        self, harness: StoreHarness, store: Store
    ) -> None:
        async def be_away() -> None:
            await harness.set_reachable(False)
            try:
                await self.clock.sleep_ms(700)
            finally:
                await harness.set_reachable(True)

        await self.watch_through(harness, store, be_away)

    async def watch_through(self, harness: StoreHarness, store: Store, fault: Callable[[], Awaitable[None]]) -> None:
        """Write and watch continuously while `fault` is injected; the watch yields exactly what was written."""
        start = await head(store)
        written: list[tuple[int, bytes]] = []
        injected = asyncio.Event()

        async def keep_writing() -> None:
            n = 0
            while n < 80 or not injected.is_set():
                value = text(n)
                written.append((await self.commit_resolved(store, Put("through/1", value)), value))
                n += 1
                await self.clock.sleep_ms(2)

        async def inject() -> None:
            await self.clock.sleep_ms(50)
            await fault()
            injected.set()

        async with harness.client() as watcher, self.watching(watcher, "through/", from_version=start) as follower:
            async with asyncio.TaskGroup() as group:
                group.create_task(keep_writing())
                group.create_task(inject())
            await follower.reached(written[-1][0])
            seen = [(commit.version, entry.value) for commit in follower.commits for _, entry in _only(commit)]
        assert seen == written


def _only(commit: Changed) -> list[tuple[str, Entry]]:
    return [(change.key, change.entry) for change in commit.changes if change.entry is not None]
