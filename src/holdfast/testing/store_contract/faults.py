"""Lost requests, lost answers, broken connections: the caller gets what is known, and can resolve the rest."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from holdfast.contracts.store import Absent, Committed, Conflict, Entry, NotCommitted, Put, Store
from holdfast.testing.harness import StoreHarness
from holdfast.testing.store_contract.suite import ContractSuite, put, text, write
from holdfast.vocabulary.errors import OutcomeUnknownError, UnavailableError

MARKER: Final = "lost-on-the-way"


class WriteHistory(ContractSuite):
    """The outcome of each write, to be compared with the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.acknowledged: dict[str, int] = {}
        self.unknown: dict[str, str] = {}
        self.refused: set[str] = set()

    async def write(self, key: str) -> None:
        """Write `key` once, and record the outcome."""
        try:
            self.acknowledged[key] = await write(self._store, Put(key, text(key)))
        except OutcomeUnknownError as lost:
            self.unknown[key] = lost.commit_id
        except UnavailableError:
            self.refused.add(key)

    async def settle(self) -> None:
        """Find out what became of unknown outcomes, then hold every word against the store."""

        async def resolved() -> bool:
            for key, commit_id in list(self.unknown.items()):
                outcome = await self._store.resolve(commit_id)
                if isinstance(outcome, Committed):
                    self.acknowledged[key] = outcome.version
                else:
                    self.refused.add(key)
                del self.unknown[key]
            return True

        await self.wait_until(resolved, "unknown outcomes are resolved")
        for key, version in self.acknowledged.items():
            assert await self._store.get(key) == Entry(key, text(key), version), "an acknowledged commit is not there"
        for key in self.refused:
            assert await self._store.get(key) is None, f"{key} was reported as not committed, and exists"


class StoreFaults(ContractSuite):
    """An error states whether the commit was done, or that its outcome is unknown and can be resolved."""

    async def test_a_lost_answer_is_an_unknown_outcome_that_resolves_to_committed(
        self, harness: StoreHarness, store: Store
    ) -> None:
        lost = await self.losing_the_answer(harness, store.commit(apply=[Put(f"{MARKER}/1", b"1"), Put("too", b"2")]))
        entry = await store.get(f"{MARKER}/1")
        assert entry is not None
        for _ in range(3):
            assert await store.resolve(lost.commit_id) == Committed(entry.version)
        assert await store.get("too") == Entry("too", b"2", entry.version)
        async with harness.client() as other:
            assert await other.resolve(lost.commit_id) == Committed(entry.version)

    async def test_an_unknown_outcome_stays_committed_when_its_key_has_changed(
        self, harness: StoreHarness, store: Store
    ) -> None:
        lost = await self.losing_the_answer(harness, store.commit(apply=[Put(f"{MARKER}/1", b"1")]))
        async with harness.client() as other:
            entry = await other.get(f"{MARKER}/1")
            assert entry is not None
            moved = await put(other, f"{MARKER}/1", 2)
        assert await store.resolve(lost.commit_id) == Committed(entry.version)
        assert await store.get(f"{MARKER}/1") == Entry(f"{MARKER}/1", b"2", moved)

    async def test_a_lost_conflict_resolves_to_not_committed(self, harness: StoreHarness, store: Store) -> None:
        version = await put(store, f"{MARKER}/1", 1)
        lost = await self.losing_the_answer(
            harness, store.commit(require=[Absent(f"{MARKER}/1")], apply=[Put(f"{MARKER}/1", b"2")])
        )
        async with harness.client() as other:
            for client in (store, other, store):
                assert await client.resolve(lost.commit_id) == NotCommitted()
        assert await store.get(f"{MARKER}/1") == Entry(f"{MARKER}/1", b"1", version)

    async def test_a_lost_request_is_not_done(self, harness: StoreHarness, store: Store) -> None:
        key = f"{MARKER}/1"
        harness.lose_request(MARKER)
        async with asyncio.timeout(self.timeout_s):
            with pytest.raises((OutcomeUnknownError, UnavailableError)) as raised:
                await store.commit(apply=[Put(key, b"1")])
        if isinstance(raised.value, OutcomeUnknownError):
            async with harness.client() as other:
                for client in (store, other, store):
                    assert await client.resolve(raised.value.commit_id) == NotCommitted()
        assert await store.get(key) is None
        again = await store.commit(require=[Absent(key)], apply=[Put(key, b"2")])
        assert isinstance(again, Committed)
        assert await store.get(key) == Entry(key, b"2", again.version)

    async def test_commits_beside_a_lost_one_get_their_true_outcome(self, harness: StoreHarness, store: Store) -> None:
        for lose in (harness.lose_answer_to, harness.lose_request):
            ledger = WriteHistory(store)
            lose(MARKER)
            keys = [f"beside/{lose.__name__}/{n}" for n in range(30)]
            keys[15] += f"/{MARKER}"
            async with asyncio.timeout(self.timeout_s):
                await asyncio.gather(*(ledger.write(key) for key in keys))
            assert keys[15] not in ledger.acknowledged, "nothing was lost: the harness did not do its part"
            await ledger.settle()

    async def test_every_commit_is_accounted_for_when_connections_break_under_it(
        self, harness: StoreHarness, store: Store
    ) -> None:
        async def cut_a_few_times() -> None:
            for _ in range(5):
                await harness.cut()
                await self.clock.sleep_ms(20)

        await self.write_through(store, cut_a_few_times)

    async def test_an_unreachable_store_fails_in_time_and_works_again_afterwards(
        self, harness: StoreHarness, store: Store
    ) -> None:
        version = await put(store, "reach/1", 1)
        session = await store.open_session(60_000)
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "get": lambda: store.get("reach/1"),
            "scan": lambda: store.scan("reach/", "reach0"),
            "commit": lambda: store.commit(apply=[Put("reach/2", b"1")]),
            "open_session": lambda: store.open_session(60_000),
            "keep_alive": lambda: store.keep_alive(session.id),
        }
        await harness.set_reachable(False)
        try:
            async with asyncio.timeout(self.timeout_s):
                raised = await asyncio.gather(*(call() for call in calls.values()), return_exceptions=True)
        finally:
            await harness.set_reachable(True)
        errors = dict(zip(calls, raised, strict=True))
        lost = errors["commit"]
        if isinstance(lost, OutcomeUnknownError):  # it may have been on its way when the connection broke
            del errors["commit"]
        assert {name for name, error in errors.items() if not isinstance(error, UnavailableError)} == set(), errors

        async def works() -> bool:
            return await store.get("reach/1") == Entry("reach/1", b"1", version)

        await self.wait_until(works, "a store that is back is used again")
        if isinstance(lost, OutcomeUnknownError):
            assert await store.resolve(lost.commit_id) == NotCommitted()
        assert await store.get("reach/2") is None
        assert await store.keep_alive(session.id)
        assert isinstance(await store.commit(require=[Absent("reach/2")], apply=[Put("reach/2", b"1")]), Committed)
        assert isinstance(await store.commit(require=[Absent("reach/2")], apply=[Put("reach/2", b"1")]), Conflict)

    async def losing_the_answer(
        self, harness: StoreHarness, commit: Awaitable[Committed | Conflict]
    ) -> OutcomeUnknownError:
        """Run the commit and lose its answer; the error of its caller."""
        harness.lose_answer_to(MARKER)
        async with asyncio.timeout(self.timeout_s):
            with pytest.raises(OutcomeUnknownError) as raised:
                await commit
        assert all((raised.value.commit_id, raised.value.reason))
        return raised.value

    async def write_through(self, store: Store, fault: Callable[[], Awaitable[None]]) -> None:
        """Write continuously while `fault` is injected, then compare every outcome with the store."""
        ledger, injected = WriteHistory(store), asyncio.Event()

        async def keep_writing(writer: int) -> None:
            n = 0
            while n < 20 or not injected.is_set():
                await ledger.write(f"ledger/{writer}/{n}")
                n += 1
                await self.clock.sleep_ms(2)

        async def inject() -> None:
            await self.clock.sleep_ms(30)
            await fault()
            injected.set()

        async with asyncio.TaskGroup() as group:
            for writer in range(6):
                group.create_task(keep_writing(writer))
            group.create_task(inject())
        await ledger.settle()
        assert ledger.acknowledged
