"""Commits by many callers at once: one winner, one order, no answer given to the wrong caller."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, suppress
from itertools import pairwise

import pytest

from holdfast.contracts.store import Absent, AtVersion, Committed, Conflict, Delete, Entry, Put, Requirement, Store
from holdfast.testing.harness import StoreHarness
from holdfast.testing.store_contract.suite import ContractSuite, head, put, text, write


class StoreRaces(ContractSuite):
    """The store orders all commits once, and every client sees that order."""

    @pytest.mark.parametrize("created", [True, False], ids=["to create", "to replace"])
    async def test_of_fifty_racing_commits_on_one_key_exactly_one_wins(
        self, harness: StoreHarness, store: Store, created: bool
    ) -> None:
        require: Requirement = Absent("race") if created else AtVersion("race", await put(store, "race", "old"))
        async with AsyncExitStack() as clients:
            racers = [await clients.enter_async_context(harness.client()) for _ in range(5)]
            outcomes = await asyncio.gather(
                *(racers[n % 5].commit(require=[require], apply=[Put("race", text(n))]) for n in range(50))
            )
        won = [(n, outcome.version) for n, outcome in enumerate(outcomes) if isinstance(outcome, Committed)]
        assert len(won) == 1, f"{len(won)} of 50 were reported as winners"
        winner = Entry("race", text(won[0][0]), won[0][1])
        assert await store.get("race") == winner
        lost = [outcome for outcome in outcomes if isinstance(outcome, Conflict)]
        assert [outcome.found["race"] for outcome in lost] == [winner] * 49

    async def test_no_update_is_lost_between_read_and_commit(self, harness: StoreHarness, store: Store) -> None:
        await put(store, "counter", 0)

        async def count(client: Store, times: int) -> None:
            while times:
                entry = await client.get("counter")
                assert entry is not None
                step = Put("counter", text(int(entry.value) + 1))
                outcome = await client.commit(require=[AtVersion("counter", entry.version)], apply=[step])
                times -= isinstance(outcome, Committed)

        async with harness.client() as second, harness.client() as third, asyncio.timeout(self.timeout_s * 2):
            await asyncio.gather(*(count(client, 8) for client in (store, second, third) for _ in range(2)))
        entry = await store.get("counter")
        assert entry is not None
        assert entry.value == b"48"

    async def test_versions_follow_commit_order_and_a_watcher_sees_each_once(
        self, harness: StoreHarness, store: Store
    ) -> None:
        start = await head(store)
        acknowledged: Counter[int] = Counter()

        async def write_many(client: Store, writer: int) -> None:
            last = 0
            for n in range(40):
                keys = {f"many/{(writer + n) % 7}", f"many/{n % 5}"}
                if n % 9 == 8:
                    version = await write(client, *(Delete(key) for key in keys))
                else:
                    version = await write(client, *(Put(key, text([writer, n])) for key in keys))
                assert version > last, "a later commit of one caller got an earlier version"
                last = version
                acknowledged[version] += 1

        async with (
            harness.client() as second,
            harness.client() as third,
            self.watching(third, "many/", from_version=start) as follower,
        ):
            await asyncio.gather(
                *(write_many(client, at * 5 + n) for at, client in enumerate((store, second, third)) for n in range(5))
            )
            end = await put(store, "many/end")
            acknowledged[end] += 1
            await follower.reached(end)
        assert set(acknowledged.values()) == {1}, "two commits were given one version"
        assert follower.versions == sorted(set(follower.versions)), "versions out of order, or seen twice"
        # A deletion of keys that were all absent shows in no watch.
        assert set(follower.versions) <= set(acknowledged)
        replayed: dict[str, Entry] = {}
        for commit in follower.commits:
            for change in commit.changes:
                replayed.pop(change.key, None)
                if change.entry is not None:
                    assert change.entry.version == commit.version
                    replayed[change.key] = change.entry
        scan = await store.scan("many/", "many0")
        assert {entry.key: entry for entry in scan.entries} == replayed

    async def test_a_commit_that_began_after_another_was_acknowledged_has_a_higher_version(
        self, harness: StoreHarness, store: Store
    ) -> None:
        spans: list[tuple[int, int, int]] = []  # began, acknowledged, version; on one counter of moments
        moment = 0

        async def write_some(client: Store, key: str) -> None:
            nonlocal moment
            for n in range(25):
                began = moment = moment + 1
                version = await put(client, key, n)
                moment += 1
                spans.append((began, moment, version))

        async with harness.client() as second, harness.client() as third:
            await asyncio.gather(
                *(write_some(client, f"order/{n}") for n, client in enumerate((store, second, third) * 2))
            )
        by_version = sorted(spans, key=lambda span: span[2])
        latest_began = 0
        for (began, _, _), (_, acknowledged, version) in pairwise(by_version):
            latest_began = max(latest_began, began)
            assert acknowledged > latest_began, f"version {version} is above one that began after its acknowledgement"

    async def test_a_cancelled_commit_does_not_affect_others(self, store: Store) -> None:
        pairs = [(f"pair/{n:03}/a", f"pair/{n:03}/b") for n in range(90)]

        async def write_pair(n: int) -> int:
            return await write(store, *(Put(key, text(n)) for key in pairs[n]))

        tasks = [asyncio.ensure_future(write_pair(n)) for n in range(len(pairs))]
        # Some are given up before they are sent, some while they wait, some while the answer is on its way.
        for n in range(0, 30, 3):
            tasks[n].cancel()
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for n in range(30, len(tasks), 3):
            tasks[n].cancel()
            with suppress(asyncio.CancelledError):
                await tasks[n]
        async with asyncio.timeout(self.timeout_s):
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)

        entries = {entry.key: entry for entry in (await store.scan("pair/", "pair0")).entries}
        for n, (outcome, (one, other)) in enumerate(zip(outcomes, pairs, strict=True)):
            if isinstance(outcome, asyncio.CancelledError):
                found = {entry and (entry.value, entry.version) for entry in (entries.get(one), entries.get(other))}
                assert len(found) == 1, f"half a commit: {found}"
            else:
                assert isinstance(outcome, int), outcome
                assert entries[one] == Entry(one, text(n), outcome), "an answer went to the wrong caller"
                assert entries[other] == Entry(other, text(n), outcome)

        for n in range(20):
            version = await put(store, "after", n)
            assert await store.get("after") == Entry("after", text(n), version)

    async def test_a_cancelled_read_does_not_affect_others(self, store: Store) -> None:
        for n in range(20):
            await put(store, f"read/{n}", n)
        for _ in range(3):
            tasks = [asyncio.ensure_future(store.get(f"read/{n}")) for n in range(20)]
            scans = [asyncio.ensure_future(store.scan(f"read/{n}", f"read/{n}~")) for n in range(20)]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in (*tasks[1::2], *scans[1::2]):
                task.cancel()
            async with asyncio.timeout(self.timeout_s):
                await asyncio.gather(*tasks, *scans, return_exceptions=True)
            for n in range(0, 20, 2):
                entry, scan = tasks[n].result(), scans[n].result()
                assert entry is not None
                assert entry.value == text(n)
                assert scan.entries[0] == entry
