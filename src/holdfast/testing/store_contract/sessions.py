"""Sessions while they are alive and when they are closed. Sessions that are not renewed are in `expiry`."""

import pytest

from holdfast.contracts.store import Absent, AtVersion, Change, Changed, Committed, Conflict, Entry, Put, Store
from holdfast.testing.harness import StoreHarness
from holdfast.testing.store_contract.suite import ContractSuite, head, put, text, write
from holdfast.vocabulary.errors import InvalidError

LONG_TTL_MS = 60_000  # no test of this file lasts that long


class StoreSessions(ContractSuite):
    """A key put under a session is there as long as the session, and no key else depends on it."""

    async def test_a_session_has_an_id_of_its_own_and_at_least_the_ttl_asked_for(
        self, harness: StoreHarness, store: Store
    ) -> None:
        ttl_ms = self.ttl_ms(harness, at_least=1_500)
        sessions = [await store.open_session(ttl_ms) for _ in range(5)]
        assert len({session.id for session in sessions}) == 5
        assert all(ttl_ms <= session.ttl_ms <= ttl_ms + 1_000 for session in sessions)  # etcd grants whole seconds
        for session in sessions:
            await store.close_session(session.id)

    async def test_a_ttl_below_the_minimum_is_refused(self, store: Store) -> None:
        for ttl_ms in (99, 0, -1):
            with pytest.raises(InvalidError):
                await store.open_session(ttl_ms)

    async def test_an_entry_names_its_session(self, store: Store) -> None:
        session = await store.open_session(LONG_TTL_MS)
        start = await head(store)
        version = await put(store, "hang/1", 1, session=session.id)
        entry = Entry("hang/1", b"1", version, session.id)
        assert await store.get("hang/1") == entry
        assert (await store.scan("hang/", "hang0")).entries == (entry,)
        async with self.watching(store, "hang/", from_version=start) as follower:
            await follower.reached(version)
            assert follower.commits == [Changed(version, (Change("hang/1", entry),))]
        await store.close_session(session.id)

    async def test_closing_a_session_removes_all_its_keys_at_once_in_one_commit(
        self, harness: StoreHarness, store: Store
    ) -> None:
        session = await store.open_session(LONG_TTL_MS)
        keys = sorted(f"mine/{n}" for n in range(120))  # more than one commit could write
        for at in range(0, len(keys), 40):
            await write(store, *(Put(key, b"1", session.id) for key in keys[at : at + 40]))
        stays = await put(store, "mine/stays")
        async with harness.client() as other, self.watching(other, "mine/", from_version=stays) as follower:
            await store.close_session(session.id)
            assert [entry.key for entry in (await other.scan("mine/", "mine0")).entries] == ["mine/stays"]
            after = await put(store, "mine/after")
            await follower.reached(after)
            assert len(follower.commits) == 2, "a session did not end in one commit"
            ended, put_after = follower.commits
            assert stays < ended.version < put_after.version
            assert ended.changes == tuple(Change(key, None) for key in keys)

    async def test_a_closed_session_is_dead_for_ever(self, harness: StoreHarness, store: Store) -> None:
        session = await store.open_session(LONG_TTL_MS)
        assert await store.keep_alive(session.id)
        await store.close_session(session.id)
        async with harness.client() as other:
            for client in (store, other, store):
                assert not await client.keep_alive(session.id)
                outcome = await client.commit(require=[Absent("late")], apply=[Put("late", b"1", session.id)])
                assert isinstance(outcome, Conflict)
                assert outcome.dead_session == session.id
        assert await store.get("late") is None

    async def test_closing_a_dead_session_does_nothing(self, store: Store) -> None:
        session = await store.open_session(LONG_TTL_MS)
        await put(store, "twice", 1, session=session.id)
        await store.close_session(session.id)
        version = await put(store, "twice", 2)
        await store.close_session(session.id)
        assert await store.get("twice") == Entry("twice", b"2", version)

    async def test_a_put_under_a_dead_session_fails_the_whole_commit(self, store: Store) -> None:
        alive, dead = await store.open_session(LONG_TTL_MS), await store.open_session(LONG_TTL_MS)
        await store.close_session(dead.id)
        version = await put(store, "whole/1", 1)
        puts = [Put("whole/1", b"2"), Put("whole/2", b"2", alive.id), Put("whole/3", b"2", dead.id)]
        outcome = await store.commit(require=[AtVersion("whole/1", version)], apply=puts)
        assert isinstance(outcome, Conflict)
        assert outcome.dead_session == dead.id
        assert (await store.scan("whole/", "whole0")).entries == (Entry("whole/1", b"1", version),)
        await store.close_session(alive.id)

    async def test_a_session_that_never_existed_is_dead(self, store: Store) -> None:
        assert not await store.keep_alive("never-opened")
        await store.close_session("never-opened")
        outcome = await store.commit(apply=[Put("nobody", b"1", "never-opened")])
        assert isinstance(outcome, Conflict)
        assert outcome.dead_session == "never-opened"

    async def test_a_key_put_again_without_a_session_outlives_it(self, store: Store) -> None:
        session = await store.open_session(LONG_TTL_MS)
        await write(store, Put("freed/1", b"1", session.id), Put("freed/2", b"1", session.id))
        version = await put(store, "freed/1", 2)
        await store.close_session(session.id)
        assert (await store.scan("freed/", "freed0")).entries == (Entry("freed/1", b"2", version),)

    async def test_a_key_moved_to_another_session_outlives_the_first(self, harness: StoreHarness, store: Store) -> None:
        async with harness.client() as other:
            old, new = await store.open_session(LONG_TTL_MS), await other.open_session(LONG_TTL_MS)
            before = await put(store, "moved", "old", session=old.id)
            # As a transfer does it: the old owner puts the key under the session of another process.
            outcome = await store.commit(
                require=[AtVersion("moved", before)], apply=[Put("moved", text("new"), new.id)]
            )
            assert isinstance(outcome, Committed)
            await store.close_session(old.id)
            assert await other.get("moved") == Entry("moved", text("new"), outcome.version, new.id)
            await other.close_session(new.id)
            assert await store.get("moved") is None

    async def test_a_key_deleted_and_put_again_by_another_outlives_its_first_session(self, store: Store) -> None:
        session = await store.open_session(LONG_TTL_MS)
        await put(store, "again", 1, session=session.id)
        entry = await store.get("again")
        assert entry is not None
        await store.commit(require=[AtVersion("again", entry.version)], apply=[Put("again", b"2")])
        version = await put(store, "again", 3)
        await store.close_session(session.id)
        assert await store.get("again") == Entry("again", b"3", version)
