"""The contract suite can fail: each planted defect is caught by its test, which passes on the correct store."""

import inspect
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from tests.support.store_engines.memory import MemoryStoreHarness

from holdfast.contracts.store import (
    Change,
    Changed,
    Committed,
    Conflict,
    Entry,
    NotCommitted,
    Operation,
    Put,
    Requirement,
    Resync,
    Scan,
    Session,
    Store,
)
from holdfast.contracts.validation import StoreLimits
from holdfast.stores.memory import MemoryStore
from holdfast.stores.version_guard import VersionGuard
from holdfast.testing import store_contract as contract
from holdfast.testing.faulty_store import FaultyStore
from holdfast.testing.harness import StoreHarness
from holdfast.testing.store_contract.suite import ContractSuite
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import HoldfastError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import SystemRandom


class ExpiryIsAClockPredicate(MemoryStore):
    """Breaks docs/safety.md, rule 1: readers compare clocks, and no commit ever ends the session."""

    def _reap(self) -> None:
        pass

    def _hidden(self, entry: Entry) -> bool:
        session = self._sessions.get(entry.session or "")
        return session is not None and session.deadline_ms <= self._clock.boot_ms()

    async def reap_when_due(self) -> None:
        pass

    async def get(self, key: str) -> Entry | None:
        entry = await super().get(key)
        return None if entry is None or self._hidden(entry) else entry

    async def scan(self, start: str, end: str, *, limit: int | None = None, reverse: bool = False) -> Scan:
        scan = await super().scan(start, end, reverse=reverse)
        return Scan(scan.version, tuple(entry for entry in scan.entries if not self._hidden(entry)))


class RenewsTheOverdue(MemoryStore):
    """Only commits reap, and a renewal ignores the deadline."""

    async def reap_when_due(self) -> None:
        pass

    async def keep_alive(self, session_id: str) -> bool:
        session = self._sessions.get(session_id)
        if session is None:
            return False
        session.deadline_ms = self._clock.boot_ms() + session.ttl_ms
        return True


class RaisesTheDead(MemoryStore):
    """A renewal brings back a session that has ended."""

    async def keep_alive(self, session_id: str) -> bool:
        return True


class WritesUnderTheDead(MemoryStore):
    """A put under a dead session is applied, without the session."""

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        self._reap()
        revived = [
            Put(each.key, each.value) if isinstance(each, Put) and each.session not in self._sessions else each
            for each in apply
        ]
        return await super().commit(require=require, apply=revived)


class EndsSessionsEarly(MemoryStore):
    """Grants half of the TTL it returns."""

    async def open_session(self, ttl_ms: int) -> Session:
        session = await super().open_session(ttl_ms // 2)
        return Session(session.id, ttl_ms)


class EndsSessionsKeyByKey(MemoryStore):
    """One commit for each key of a session."""

    def _end_session(self, session_id: str) -> None:
        session = self._sessions.pop(session_id, None)
        for key in sorted(session.keys) if session is not None else ():
            self._version += 1
            del self._entries[key]
            self._keys.remove(key)
            self._feed.publish(Changed(self._version, (Change(key, None),)))


class RemembersFormerSessions(MemoryStore):
    """A key moved to another session dies with the first one too."""

    def _apply(self, apply: Sequence[Operation]) -> None:
        before = {each.key: self._entries.get(each.key) for each in apply}
        super()._apply(apply)
        for key, old in before.items():
            if old is not None and old.session is not None:
                self._sessions[old.session].keys.add(key)


class IgnoresConflicts(MemoryStore):
    """Requirements are not looked at."""

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        return await super().commit(apply=apply)


class ChecksThenActs(MemoryStore):
    """Requirements are looked at, and the commit follows a moment later."""

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        checked = await super().commit(require=require)
        if isinstance(checked, Conflict):
            return checked
        await self._clock.sleep_ms(1)
        return await super().commit(apply=apply)


class NumbersOutOfOrder(MemoryStore):
    """Breaks docs/safety.md, rule 2: versions are allocated in pairs and used in the wrong order."""

    _drawn = 0

    def _apply(self, apply: Sequence[Operation]) -> None:
        self._drawn += 1
        self._version = self._drawn - 1 + (1 if self._drawn % 2 else -1)
        super()._apply(apply)


class TearsScans(MemoryStore):
    """A scan reads its two halves at two moments."""

    async def scan(self, start: str, end: str, *, limit: int | None = None, reverse: bool = False) -> Scan:
        first = await super().scan(start, end, limit=limit, reverse=reverse)
        await self._clock.sleep_ms(2)
        second = await super().scan(start, end, limit=limit, reverse=reverse)
        half = len(first.entries) // 2
        return Scan(second.version, first.entries[:half] + second.entries[half:], second.more)


class _Altered(MemoryStore):
    """A watch whose stream went through `alter`."""

    async def alter(self, commits: AsyncIterator[Changed | Resync]) -> AsyncIterator[Changed | Resync]:
        async for each in commits:  # as a generator: a caller's timeout ends it
            yield each

    @asynccontextmanager
    async def _watch(self, prefix: str, from_version: int) -> AsyncIterator[AsyncIterator[Changed | Resync]]:
        async with super().watch(prefix, from_version=from_version) as commits:
            yield self.alter(commits)

    def watch(self, prefix: str, *, from_version: int) -> AbstractAsyncContextManager[AsyncIterator[Changed | Resync]]:
        return self._watch(prefix, from_version)


class EndsAWatchThatWaitedInVain(_Altered):
    """The generator as it is."""


class LosesAChange(_Altered):
    async def alter(self, commits: AsyncIterator[Changed | Resync]) -> AsyncIterator[Changed | Resync]:
        async for each in commits:
            if each.version % 7:
                yield each


class RepeatsAChange(_Altered):
    async def alter(self, commits: AsyncIterator[Changed | Resync]) -> AsyncIterator[Changed | Resync]:
        async for each in commits:
            yield each
            if each.version % 7 == 0:
                yield each


class SwapsChanges(_Altered):
    async def alter(self, commits: AsyncIterator[Changed | Resync]) -> AsyncIterator[Changed | Resync]:
        async for each in commits:
            if each.version % 7 == 0:
                yield await anext(commits)
            yield each


class Polls(_Altered):
    async def alter(self, commits: AsyncIterator[Changed | Resync]) -> AsyncIterator[Changed | Resync]:
        async for each in commits:
            await self._clock.sleep_ms(100)
            yield each


class WatchesEverything(MemoryStore):
    """A watch that does not look at its prefix."""

    def watch(self, prefix: str, *, from_version: int) -> AbstractAsyncContextManager[AsyncIterator[Changed | Resync]]:
        return super().watch("", from_version=from_version)


class OrdersAsLocalesDo(MemoryStore):
    """Upper and lower case together."""

    async def scan(self, start: str, end: str, *, limit: int | None = None, reverse: bool = False) -> Scan:
        scan = await super().scan(start, end, limit=limit, reverse=reverse)
        return Scan(scan.version, tuple(sorted(scan.entries, key=lambda entry: entry.key.lower(), reverse=reverse)))


class RewritesJson(MemoryStore):
    """Values are kept as something that means the same."""

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        same = [Put(each.key, each.value.strip(), each.session) if isinstance(each, Put) else each for each in apply]
        return await super().commit(require=require, apply=same)


class SaysUnavailableForUnknown(FaultyStore):
    """A lost answer is reported as not done."""

    def _unknown(self, outcome: Committed | NotCommitted) -> OutcomeUnknownError:
        raise UnavailableError("store", "no answer")


class RepeatsWhatIsUnknown(FaultyStore):
    """A lost answer makes it commit again, behind the caller's back."""

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        try:
            return await super().commit(require=require, apply=apply)
        except OutcomeUnknownError:
            await super().commit(require=require, apply=apply)
            raise


class ResolvesEverythingAsCommitted(FaultyStore):
    async def resolve(self, commit_id: str) -> Committed | NotCommitted:
        await super().resolve(commit_id)
        return Committed(1)


class ResolvesEverythingAsNotCommitted(FaultyStore):
    async def resolve(self, commit_id: str) -> Committed | NotCommitted:
        await super().resolve(commit_id)
        return NotCommitted()


PLANTED: list[tuple[type[MemoryStore] | type[FaultyStore], type[ContractSuite], str]] = [
    (ExpiryIsAClockPredicate, contract.StoreExpiry, "a_key_vanishes_only_with_a_commit"),
    (
        ExpiryIsAClockPredicate,
        contract.StoreExpiry,
        "an_unrenewed_session_ends_in_one_commit_that_removes_all_its_keys",
    ),
    (ExpiryIsAClockPredicate, contract.StoreExpiry, "a_contender_takes_over_after_the_deadline_and_not_before"),
    (RenewsTheOverdue, contract.StoreExpiry, "an_overdue_session_is_dead_to_every_call"),
    (RenewsTheOverdue, contract.StoreExpiry, "at_the_very_deadline_a_session_is_either_renewed_or_dead"),
    (RaisesTheDead, contract.StoreSessions, "a_closed_session_is_dead_for_ever"),
    (RaisesTheDead, contract.StoreExpiry, "at_the_very_deadline_a_session_is_either_renewed_or_dead"),
    (WritesUnderTheDead, contract.StoreSessions, "a_put_under_a_dead_session_fails_the_whole_commit"),
    (WritesUnderTheDead, contract.StoreExpiry, "a_contender_takes_over_after_the_deadline_and_not_before"),
    (WritesUnderTheDead, contract.StoreExpiry, "a_paused_owner_loses_its_key_and_finds_out_when_resumed"),
    (EndsSessionsEarly, contract.StoreExpiry, "an_unrenewed_session_ends_in_one_commit_that_removes_all_its_keys"),
    (EndsSessionsEarly, contract.StoreExpiry, "a_contender_takes_over_after_the_deadline_and_not_before"),
    (EndsSessionsKeyByKey, contract.StoreSessions, "closing_a_session_removes_all_its_keys_at_once_in_one_commit"),
    (RemembersFormerSessions, contract.StoreSessions, "a_key_moved_to_another_session_outlives_the_first"),
    (RemembersFormerSessions, contract.StoreSessions, "a_key_put_again_without_a_session_outlives_it"),
    (IgnoresConflicts, contract.StoreCommits, "a_required_version_must_be_the_latest"),
    (IgnoresConflicts, contract.StoreRaces, "of_fifty_racing_commits_on_one_key_exactly_one_wins"),
    (ChecksThenActs, contract.StoreRaces, "of_fifty_racing_commits_on_one_key_exactly_one_wins"),
    (ChecksThenActs, contract.StoreRaces, "no_update_is_lost_between_read_and_commit"),
    (NumbersOutOfOrder, contract.StoreCommits, "versions_grow_from_commit_to_commit_whoever_commits"),
    (NumbersOutOfOrder, contract.StoreRaces, "versions_follow_commit_order_and_a_watcher_sees_each_once"),
    (
        NumbersOutOfOrder,
        contract.StoreRaces,
        "a_commit_that_began_after_another_was_acknowledged_has_a_higher_version",
    ),
    (TearsScans, contract.StoreScans, "a_large_scan_is_of_one_version_while_others_write"),
    (OrdersAsLocalesDo, contract.StoreScans, "keys_come_in_code_point_order"),
    (RewritesJson, contract.StoreCommits, "a_value_is_read_back_byte_for_byte"),
    (EndsAWatchThatWaitedInVain, contract.StoreWatches, "a_watcher_whose_wait_was_cancelled_can_continue"),
    (LosesAChange, contract.StoreWatches, "a_watch_replays_exactly_what_came_after_its_version"),
    (LosesAChange, contract.StoreWatches, "a_watcher_that_starts_far_behind_catches_up"),
    (LosesAChange, contract.StoreWatches, "no_commit_is_missed_or_repeated_when_connections_break"),
    (RepeatsAChange, contract.StoreRaces, "versions_follow_commit_order_and_a_watcher_sees_each_once"),
    (RepeatsAChange, contract.StoreWatches, "no_commit_is_missed_or_repeated_when_connections_break"),
    (SwapsChanges, contract.StoreRaces, "versions_follow_commit_order_and_a_watcher_sees_each_once"),
    (SwapsChanges, contract.StoreWatches, "no_commit_is_missed_or_repeated_when_the_store_is_unreachable_for_a_while"),
    (Polls, contract.StoreWatches, "changes_are_pushed"),
    (WatchesEverything, contract.StoreWatches, "a_watch_shows_only_keys_below_its_prefix"),
    (SaysUnavailableForUnknown, contract.StoreFaults, "a_lost_answer_is_an_unknown_outcome_that_resolves_to_committed"),
    (SaysUnavailableForUnknown, contract.StoreFaults, "commits_beside_a_lost_one_get_their_true_outcome"),
    (RepeatsWhatIsUnknown, contract.StoreFaults, "a_lost_answer_is_an_unknown_outcome_that_resolves_to_committed"),
    (RepeatsWhatIsUnknown, contract.StoreFaults, "a_lost_request_is_not_done"),
    (ResolvesEverythingAsCommitted, contract.StoreFaults, "a_lost_request_is_not_done"),
    (ResolvesEverythingAsCommitted, contract.StoreFaults, "a_lost_conflict_resolves_to_not_committed"),
    (ResolvesEverythingAsNotCommitted, contract.StoreFaults, "commits_beside_a_lost_one_get_their_true_outcome"),
    (
        ResolvesEverythingAsNotCommitted,
        contract.StoreFaults,
        "an_unknown_outcome_stays_committed_when_its_key_has_changed",
    ),
]

# The arguments of parametrised sentences that the defects show with
ARGUMENTS: dict[str, Any] = {"created": True, "reverse": False, "value": b' { "b" : 1,\n\t"a":2 , "b": 3 } '}


# How a sentence that is not true fails: anything else is a mistake in the defect
FAILED = (AssertionError, TimeoutError, StopAsyncIteration, HoldfastError)


async def hold_against(suite: ContractSuite, sentence: str, harness: StoreHarness) -> None:
    """Run one test of the suite on one harness."""
    test = getattr(suite, f"test_{sentence}")
    async with harness.client() as store:
        offered = {"harness": harness, "store": store, **ARGUMENTS}
        await test(**{name: offered[name] for name in inspect.signature(test).parameters})


async def expect_failure(suite: ContractSuite, sentence: str, harness: StoreHarness) -> None:
    """The test fails by an assertion or a timeout."""
    suite.timeout_s = 1.0
    if isinstance(suite, contract.StoreWatches):
        suite.push_ms_max = 1_500
    try:
        await hold_against(suite, sentence, harness)
    except (*FAILED, pytest.fail.Exception):  # the latter when `pytest.raises` saw nothing raised
        return
    except BaseExceptionGroup as several:
        if several.subgroup(FAILED) is None:
            raise
        return
    pytest.fail("the planted defect was not noticed")


@pytest.mark.parametrize(
    ("defect", "suite", "sentence"), PLANTED, ids=[f"{defect.__name__}-{name}" for defect, _, name in PLANTED]
)
async def test_a_planted_defect_is_caught(
    defect: type[MemoryStore] | type[FaultyStore], suite: type[ContractSuite], sentence: str
) -> None:
    flawed = defect if issubclass(defect, MemoryStore) else MemoryStore
    async with flawed.open(clock=RealClock(), random=SystemRandom()) as store:
        harness = MemoryStoreHarness(store)
        if issubclass(defect, FaultyStore):
            harness._faulty = defect(store, random=SystemRandom())
        await expect_failure(suite(), sentence, harness)


@pytest.mark.parametrize(
    ("suite", "sentence"), list(dict.fromkeys((suite, sentence) for _, suite, sentence in PLANTED))
)
async def test_the_same_test_passes_on_the_correct_store(suite: type[ContractSuite], sentence: str) -> None:
    async with MemoryStore.open(clock=RealClock(), random=SystemRandom()) as store:
        await hold_against(suite(), sentence, MemoryStoreHarness(store))


class StaysOpen(MemoryStore):
    """Closing it ends neither calls nor watchers."""

    @classmethod
    @asynccontextmanager
    async def open(cls, **components: Any) -> AsyncIterator["StaysOpen"]:
        yield cls(**components)


class LeavingIsNotClosing(contract.StoreClosing):
    def opening(self, harness: StoreHarness) -> AbstractAsyncContextManager[Store]:
        return StaysOpen.open(clock=RealClock(), random=SystemRandom(), limits=StoreLimits())


@pytest.mark.parametrize("sentence", ["closing_the_store_ends_its_watchers", "a_closed_store_refuses_every_call"])
async def test_a_store_that_does_not_close_is_caught(sentence: str) -> None:
    async with MemoryStore.open(clock=RealClock(), random=SystemRandom()) as store:
        await expect_failure(LeavingIsNotClosing(), sentence, MemoryStoreHarness(store))


@pytest.mark.parametrize("engine", ["redis"])  # its guard goes by versions alone
async def test_a_store_without_its_guard_is_caught_going_backwards(
    harness: StoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VersionGuard, "observe", lambda *_, **__: None)
    await expect_failure(contract.StoreServers(), "a_store_that_went_backwards_stops_every_holder", harness)
