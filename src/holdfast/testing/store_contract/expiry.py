"""Sessions that are not renewed: the store ends them, by its own clock, in a commit that everyone sees."""

import asyncio

from holdfast.contracts.store import Absent, Change, Committed, Conflict, Entry, Put, Store
from holdfast.testing.harness import StoreHarness
from holdfast.testing.store_contract.owners import running_owner
from holdfast.testing.store_contract.suite import ContractSuite, brief_session, put, text, write

SLACK_MS = 300  # how much later than its deadline a session must be dead to any call


class StoreExpiry(ContractSuite):
    """A session ends by a commit: not before its TTL, not long after, and for ever."""

    async def test_an_unrenewed_session_ends_in_one_commit_that_removes_all_its_keys(
        self, harness: StoreHarness, store: Store
    ) -> None:
        stays = await put(store, "due/stays")
        opened_at_ms = self.clock.boot_ms()
        keys = {f"due/{n}": 1 for n in range(5)}
        session, last = await brief_session(store, self.ttl_ms(harness), keys, clock=self.clock)
        async with harness.client() as other, self.watching(other, "due/", from_version=last) as follower:
            await follower.until(bool, "the end of the session")
            lived_ms = self.clock.boot_ms() - opened_at_ms
            ended = follower.commits[0]
            assert ended.version > last
            assert ended.changes == tuple(Change(f"due/{n}", None) for n in range(5))
            for client in (store, other):
                scan = await client.scan("due/", "due0")
                assert scan.version >= ended.version, "a reader is behind what a watcher saw"
                assert scan.entries == (Entry("due/stays", b"0", stays),)
                assert not await client.keep_alive(session.id)
        # The store's clock may run at another rate than ours, but not by this much.
        assert lived_ms >= session.ttl_ms * 0.95 - 5, f"ended after {lived_ms} ms of {session.ttl_ms} ms"

    async def test_a_key_vanishes_only_with_a_commit(self, harness: StoreHarness, store: Store) -> None:
        _, version = await brief_session(store, self.ttl_ms(harness), {"vanish": 1}, clock=self.clock)
        async with harness.client() as reader:

            async def gone() -> bool:
                return await reader.get("vanish") is None

            await self.wait_until(gone, "the key of a dead session is gone")
            scan = await reader.scan("vanish", "vanish0")
            assert scan.entries == ()
            assert scan.version > version, "the key is gone, and no commit removed it"
            async with self.watching(reader, "vanish", from_version=version) as follower:
                await follower.until(bool, "the commit that took the key away")
                assert follower.states("vanish") == [None]

    async def test_a_contender_takes_over_after_the_deadline_and_not_before(
        self, harness: StoreHarness, store: Store
    ) -> None:
        opened_at_ms = self.clock.boot_ms()
        session, version = await brief_session(store, self.ttl_ms(harness), {"seat": "ann"}, clock=self.clock)
        held = Entry("seat", b'"ann"', version, session.id)
        async with harness.client() as contender:

            async def taken() -> bool:
                outcome = await contender.commit(require=[Absent("seat")], apply=[Put("seat", b'"bob"')])
                if isinstance(outcome, Committed):
                    return True
                assert outcome == Conflict({"seat": held})
                return False

            await self.wait_until(taken, "a contender takes what a dead session held")
            lived_ms = self.clock.boot_ms() - opened_at_ms
            assert lived_ms >= session.ttl_ms * 0.95 - 5, f"taken from a living session, after {lived_ms} ms"
            late = await store.commit(apply=[Put("seat", b'"ann again"', session.id)])
            assert isinstance(late, Conflict)
            assert late.dead_session == session.id
            seat = await store.get("seat")
            assert seat is not None
            assert (seat.value, seat.session) == (b'"bob"', None)

    async def test_an_overdue_session_is_dead_to_every_call(self, harness: StoreHarness, store: Store) -> None:
        ttl_ms = self.ttl_ms(harness)
        bare = await store.open_session(ttl_ms)
        holding, left = [(await brief_session(store, ttl_ms, {f"overdue/{n}": 1}, clock=self.clock))[0] for n in (1, 2)]
        await self.clock.sleep_ms(max(holding.ttl_ms, left.ttl_ms) + SLACK_MS)  # what is waited for is time itself
        for session in (bare, holding):
            assert not await store.keep_alive(session.id), "an overdue session was renewed"
        assert await store.get("overdue/1") is None
        outcome = await store.commit(apply=[Put("overdue/3", b"1", left.id)])
        assert isinstance(outcome, Conflict)
        assert outcome.dead_session == left.id
        assert (await store.scan("overdue/", "overdue0")).entries == ()

    async def test_keep_alive_keeps_a_session_and_its_keys(self, harness: StoreHarness, store: Store) -> None:
        # A renewal that is late because this process was held up proves nothing: begin again with a longer TTL.
        for at_least in (600, 2_000, 6_000):
            session = await store.open_session(self.ttl_ms(harness, at_least=at_least))
            kept = await store.commit(apply=[Put("kept", b"1", session.id)])
            if isinstance(kept, Conflict):
                assert kept.dead_session == session.id
                continue
            begun_at_ms = sent_at_ms = self.clock.boot_ms()
            alive, late = await store.keep_alive(session.id), False
            while alive and self.clock.boot_ms() - begun_at_ms < 1.6 * session.ttl_ms:
                await self.clock.sleep_ms(session.ttl_ms / 4)
                previous_ms, sent_at_ms = sent_at_ms, self.clock.boot_ms()
                alive = await store.keep_alive(session.id)
                late = late or self.clock.boot_ms() - previous_ms > session.ttl_ms * 0.9
            if late:
                await store.close_session(session.id)
                continue
            assert alive, "a session renewed in time was ended"
            assert await store.get("kept") == Entry("kept", b"1", kept.version, session.id)
            await store.close_session(session.id)
            return
        raise AssertionError("this machine is too slow to renew in time, even every 1.5 s")

    async def test_at_the_very_deadline_a_session_is_either_renewed_or_dead(
        self, harness: StoreHarness, store: Store
    ) -> None:
        ttl_ms = self.ttl_ms(harness)

        async def renew_at(offset_ms: int) -> bool:
            key = f"edge/{offset_ms:+}"
            session, _ = await brief_session(store, ttl_ms, {key: 1}, clock=self.clock)
            await self.clock.sleep_ms(session.ttl_ms + offset_ms)
            sent_at_ms = self.clock.boot_ms()
            alive = await store.keep_alive(session.id)
            entry = await store.get(key)
            if alive and self.clock.boot_ms() - sent_at_ms < session.ttl_ms * 0.9:
                assert entry is not None, f"{offset_ms} ms from its deadline a session was renewed without its key"
            if not alive:
                assert entry is None, f"{offset_ms} ms from its deadline a session died and its key did not"
                outcome = await store.commit(apply=[Put(key, b"2", session.id)])
                assert isinstance(outcome, Conflict)
                assert not await store.keep_alive(session.id)
            await store.close_session(session.id)
            return alive

        outcomes = await asyncio.gather(*(renew_at(offset_ms) for offset_ms in range(-120, 420, 12)))
        assert not outcomes[-1], "a session long overdue was renewed"

    async def test_each_session_ends_independently(self, harness: StoreHarness, store: Store) -> None:
        ttl_ms, long = self.ttl_ms(harness), await store.open_session(60_000)
        while True:
            freed, _ = await brief_session(store, ttl_ms, {"apart/freed": 1}, clock=self.clock)
            short, _ = await brief_session(store, ttl_ms, {"apart/moved": 1, "apart/short": 1}, clock=self.clock)
            last = await write(
                store,
                Put("apart/freed", b"2"),
                Put("apart/long", b"1", long.id),
                Put("apart/moved", b"2", long.id),
            )
            if await store.get("apart/short") is not None:
                break
            ttl_ms = 2 * short.ttl_ms  # it ended too early, because this process was held up
        async with self.watching(store, "apart/", from_version=last) as follower:
            await follower.until(lambda commits: bool(commits), "the end of the short session")

            async def freed_is_over() -> bool:
                outcome = await store.commit(apply=[Put("probe", b"1", freed.id)])
                return isinstance(outcome, Conflict)

            await self.wait_until(freed_is_over, "the end of a session without keys")
            assert [commit.changes for commit in follower.commits] == [(Change("apart/short", None),)]
        assert [entry.key for entry in (await store.scan("apart/", "apart0")).entries] == [
            "apart/freed", "apart/long", "apart/moved"
        ]  # fmt: skip
        await store.close_session(long.id)

    async def test_a_paused_owner_loses_its_key_and_finds_out_when_resumed(
        self, harness: StoreHarness, store: Store
    ) -> None:
        # SIGSTOP if another process can open the store; otherwise a clock that is paused.
        start = (await store.scan("owned", "owned0")).version
        ttl_ms = self.ttl_ms(harness, at_least=1_000)
        async with asyncio.timeout(self.timeout_s * 2), running_owner(harness, ttl_ms=ttl_ms, key="owned") as owner:
            word, session_id = (await owner.read_line()).split()
            assert word == "holding"
            owner.pause()
            async with self.watching(store, "owned", from_version=start) as follower:
                await follower.until(lambda commits: len(commits) >= 2, "the stopped owner's key, put and gone")
                sessions = [entry and entry.session for entry in follower.states("owned")]
                assert sessions == [session_id, None]
            outcome = await store.commit(require=[Absent("owned")], apply=[Put("owned", text("contender"))])
            assert isinstance(outcome, Committed)
            owner.resume()
            assert await owner.read_line() == "lost"
            assert await owner.read_line() == "refused"
            assert await store.get("owned") == Entry("owned", text("contender"), outcome.version)
