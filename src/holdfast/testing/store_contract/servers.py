"""Engines with a server: it is killed and restarted, becomes unreachable, is restored from a backup."""

import asyncio

import pytest

from holdfast.contracts.store import Absent, Committed, Entry, NotCommitted, Put, Store
from holdfast.testing.harness import StoreHarness
from holdfast.testing.store_contract.commits import REFUSED
from holdfast.testing.store_contract.faults import MARKER, StoreFaults
from holdfast.testing.store_contract.suite import ContractSuite, head, put, text
from holdfast.testing.store_contract.watches import StoreWatches
from holdfast.vocabulary.errors import CorruptError, InvalidError, OutcomeUnknownError, UnavailableError


class StoreServers(ContractSuite):
    """Acknowledged commits survive the server; a server that lost them stops every holder."""

    async def test_no_commit_is_missed_or_repeated_when_the_server_restarts(
        self, harness: StoreHarness, store: Store
    ) -> None:
        await StoreWatches().watch_through(harness, store, harness.restart)

    async def test_every_commit_is_accounted_for_when_the_server_is_killed_under_it(
        self, harness: StoreHarness, store: Store
    ) -> None:
        await StoreFaults().write_through(store, harness.restart)

    async def test_acknowledged_commits_and_living_sessions_survive_a_restart(
        self, harness: StoreHarness, store: Store
    ) -> None:
        kept = await store.open_session(60_000)
        versions = [await put(store, f"durable/{n}", n, session=kept.id if n % 2 else None) for n in range(20)]
        lost_key = f"durable/{MARKER}"
        harness.lose_answer_to(MARKER)
        with pytest.raises(OutcomeUnknownError) as lost:
            await store.commit(apply=[Put(lost_key, b"1")])
        await harness.restart()

        async with harness.client() as fresh:
            assert fresh.facts.incarnation == store.facts.incarnation
            entries = {entry.key: entry for entry in (await fresh.scan("durable/", "durable0")).entries}
            for n, version in enumerate(versions):
                key = f"durable/{n}"
                assert entries.pop(key) == Entry(key, text(n), version, kept.id if n % 2 else None)
            assert list(entries) == [lost_key]
            assert await fresh.resolve(lost.value.commit_id) == Committed(entries[lost_key].version)
            assert await fresh.keep_alive(kept.id)
            assert await put(fresh, "durable/after") > versions[-1]
            await fresh.close_session(kept.id)
            assert await fresh.get("durable/1") is None

    async def test_a_session_still_ends_when_the_server_restarted_meanwhile(
        self, harness: StoreHarness, store: Store
    ) -> None:
        session = await store.open_session(self.ttl_ms(harness))
        version = await put(store, "brief", 1, session=session.id)
        await harness.restart()
        async with self.watching(store, "brief", from_version=version) as follower:
            await follower.until(bool, "the end of a session that was open when the server was killed")
            assert follower.states("brief") == [None]

        async def refused() -> bool:
            return not await store.keep_alive(session.id)

        await self.wait_until(refused, "a dead session is refused after a restart")

    async def test_an_outcome_resolved_as_not_committed_stays_so_after_a_restart(
        self, harness: StoreHarness, store: Store
    ) -> None:
        harness.lose_request(MARKER)
        with pytest.raises((OutcomeUnknownError, UnavailableError)) as lost:
            await store.commit(apply=[Put(f"{MARKER}/1", b"1")])
        if isinstance(lost.value, OutcomeUnknownError):
            assert await store.resolve(lost.value.commit_id) == NotCommitted()
        await harness.restart()
        async with harness.client() as fresh:
            if isinstance(lost.value, OutcomeUnknownError):
                assert await fresh.resolve(lost.value.commit_id) == NotCommitted()
            assert await fresh.get(f"{MARKER}/1") is None

    async def test_invalid_input_is_refused_without_contacting_the_server(
        self, harness: StoreHarness, store: Store
    ) -> None:
        await harness.set_reachable(False)
        try:
            async with asyncio.timeout(2):
                for require, apply in REFUSED.values():
                    with pytest.raises(InvalidError):
                        await store.commit(require=require, apply=apply)
                with pytest.raises(InvalidError):
                    await store.open_session(1)
        finally:
            await harness.set_reachable(True)

    async def test_an_unreachable_store_is_unavailable_at_open(self, harness: StoreHarness) -> None:
        await harness.set_reachable(False)
        try:
            async with asyncio.timeout(self.timeout_s):
                with pytest.raises(UnavailableError) as refused:
                    async with harness.client():
                        pass
        finally:
            await harness.set_reachable(True)
        assert all((refused.value.service, refused.value.reason))
        async with harness.client() as store:
            assert isinstance(await store.commit(require=[Absent("open")], apply=[Put("open", b"1")]), Committed)

    async def test_a_store_that_went_backwards_stops_every_holder(self, harness: StoreHarness) -> None:
        async with (
            harness.client() as committing,
            harness.client() as renewing,
            harness.client() as reading,
            harness.client() as watching,
        ):
            session = await renewing.open_session(60_000)
            saved = await put(committing, "back/kept", 1, session=session.id)
            await harness.save()
            clients = (committing, renewing, reading, watching)
            start = await self.commit_resolved(committing, Put("back/forgotten", b"0"))
            for n in range(20):  # every client has seen versions that the backup lacks
                await asyncio.gather(*(self.commit_resolved(client, Put(f"back/{n}", b"1")) for client in clients))
            async with watching.watch("back/", from_version=start) as commits:
                await harness.restore_saved()
                for call in (
                    lambda: renewing.keep_alive(session.id),
                    lambda: reading.get("back/kept"),
                    lambda: committing.commit(apply=[Put("back/new", b"1")]),
                ):
                    await self.wait_until_raises(CorruptError, call)
                await self.wait_until_raises(CorruptError, lambda: anext(commits))
            for client in clients:  # once caught, always refused
                with pytest.raises(CorruptError):
                    await client.get("back/kept")
                with pytest.raises(CorruptError):
                    await client.scan("back/", "back0")
                with pytest.raises(CorruptError):
                    await client.commit(require=[Absent("back/x")], apply=[Put("back/x", b"1")])
                with pytest.raises(CorruptError):
                    await client.keep_alive(session.id)
                with pytest.raises(CorruptError):
                    await client.open_session(60_000)
                with pytest.raises(CorruptError):
                    async with client.watch("back/", from_version=start) as commits:
                        await anext(commits)
        async with harness.client() as fresh:  # a new client accepts it as it is
            assert await fresh.get("back/kept") == Entry("back/kept", b"1", saved, session.id)
            assert await fresh.get("back/forgotten") is None
            assert await put(fresh, "back/on") >= await head(fresh) > saved
