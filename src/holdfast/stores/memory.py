"""Memory engine: the contract in one process, for tests, simulation and first steps. Nothing survives the process.

It is also the reference: the simplest code that keeps every promise of `contracts.store`.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

from holdfast.contracts.store import (
    AtVersion,
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
    StoreFacts,
)
from holdfast.contracts.validation import StoreLimits, check_commit, check_ttl
from holdfast.stores.change_feed import ChangeFeed
from holdfast.stores.urls import StoreUrl
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ClosedError, InvalidError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import Notify, background_tasks


@dataclass(slots=True)
class _MemorySession:
    ttl_ms: int
    deadline_ms: int
    keys: set[str] = field(default_factory=set)


class MemoryStore:
    """All state in dictionaries; no method yields midway, so each is atomic."""

    def __init__(self, *, clock: Clock, random: Random, limits: StoreLimits, commits_kept: int = 10_000) -> None:
        self._clock, self._random, self._limits = clock, random, limits
        self._version = 0
        self._entries: dict[str, Entry] = {}
        self._keys: list[str] = []  # sorted
        self._sessions: dict[str, _MemorySession] = {}
        self._due: list[tuple[int, str]] = []  # heap of (deadline when queued, session); renewed ones are queued again
        self._due_changed = Notify()
        self._feed = ChangeFeed(head=0, commits_kept=commits_kept)
        self._closed = False
        self.facts = StoreFacts(
            engine="memory",
            server="this process",
            durability="none: all data is lost when the process ends",
            incarnation=random.token(),
        )

    @classmethod
    @asynccontextmanager
    async def open(
        cls, *, clock: Clock, random: Random, limits: StoreLimits | None = None, commits_kept: int = 10_000
    ) -> AsyncIterator["MemoryStore"]:
        """A new, empty store that lives as long as the body."""
        store = cls(clock=clock, random=random, limits=limits or StoreLimits(), commits_kept=commits_kept)
        try:
            async with background_tasks(store.reap_when_due()):
                yield store
        finally:
            store._closed = True
            store._feed.end(ClosedError("memory store"))

    async def get(self, key: str) -> Entry | None:
        self._check_open()
        return self._entries.get(key)

    async def scan(self, start: str, end: str, *, limit: int | None = None, reverse: bool = False) -> Scan:
        self._check_open()
        keys = self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, end)]
        if reverse:
            keys.reverse()
        more = limit is not None and len(keys) > limit
        return Scan(self._version, tuple(self._entries[key] for key in keys[:limit]), more)

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        self._check_open()
        check_commit(require, apply, self._limits)
        self._reap()
        entries = self._entries
        for requirement in require:
            entry = entries.get(requirement.key)
            if (entry.version if entry is not None else 0) != _wanted(requirement):
                return Conflict({each.key: entries.get(each.key) for each in require})
        for operation in apply:
            if type(operation) is Put and operation.session is not None and operation.session not in self._sessions:
                return Conflict({each.key: entries.get(each.key) for each in require}, operation.session)
        if apply:
            self._apply(apply)
        return Committed(self._version)

    async def resolve(self, commit_id: str) -> Committed | NotCommitted:
        raise InvalidError("commit id", commit_id, "the id of an OutcomeUnknownError; this engine raises none")

    async def open_session(self, ttl_ms: int) -> Session:
        self._check_open()
        check_ttl(ttl_ms, self._limits)
        session_id = self._random.token()
        self._sessions[session_id] = _MemorySession(ttl_ms, self._clock.boot_ms() + ttl_ms)
        self._queue(session_id)
        return Session(session_id, ttl_ms)

    async def keep_alive(self, session_id: str) -> bool:
        self._check_open()
        self._reap()
        session = self._sessions.get(session_id)
        if session is None:
            return False
        session.deadline_ms = self._clock.boot_ms() + session.ttl_ms
        return True

    async def close_session(self, session_id: str) -> None:
        self._check_open()
        self._end_session(session_id)

    def watch(self, prefix: str, *, from_version: int) -> AbstractAsyncContextManager[AsyncIterator[Changed | Resync]]:
        self._check_open()
        return self._feed.watch(prefix, from_version=from_version)

    async def reap_when_due(self) -> None:
        """End overdue sessions when no commit does."""
        while True:
            if not self._due:
                await self._due_changed.wait()
                continue
            await self._due_changed.wait_ms(self._clock, self._due[0][0] - self._clock.boot_ms())
            self._reap()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("memory store")

    def _apply(self, apply: Sequence[Operation]) -> None:
        self._version = version = self._version + 1
        changes = []
        for operation in apply:
            key = operation.key
            old = self._entries.get(key)
            if old is not None and old.session is not None:
                self._sessions[old.session].keys.discard(key)
            if type(operation) is Put:
                entry = Entry(key, operation.value, version, operation.session)
                self._entries[key] = entry
                if old is None:
                    insort(self._keys, key)
                if operation.session is not None:
                    self._sessions[operation.session].keys.add(key)
                changes.append(Change(key, entry))
            elif old is not None:
                del self._entries[key]
                del self._keys[bisect_left(self._keys, key)]
                changes.append(Change(key, None))
        if len(changes) > 1:
            changes.sort(key=lambda change: change.key)
        self._feed.publish(Changed(version, tuple(changes)))

    def _queue(self, session_id: str) -> None:
        heapq.heappush(self._due, (self._sessions[session_id].deadline_ms, session_id))
        self._due_changed.notify()

    def _reap(self) -> None:
        if not self._due:
            return
        now_ms = self._clock.boot_ms()
        while self._due and self._due[0][0] <= now_ms:
            _, session_id = heapq.heappop(self._due)
            session = self._sessions.get(session_id)
            if session is None:
                continue
            if session.deadline_ms > now_ms:
                self._queue(session_id)
            else:
                self._end_session(session_id)

    def _end_session(self, session_id: str) -> None:
        session = self._sessions.pop(session_id, None)
        if session is None or not session.keys:
            return
        self._version += 1
        keys = sorted(session.keys)
        for key in keys:
            del self._entries[key]
            del self._keys[bisect_left(self._keys, key)]
        self._feed.publish(Changed(self._version, tuple(Change(key, None) for key in keys)))


def _wanted(requirement: Requirement) -> int:
    return requirement.version if type(requirement) is AtVersion else 0


def open_url(url: StoreUrl, clock: Clock, random: Random) -> AbstractAsyncContextManager[MemoryStore]:
    """`memory:` is a new, empty store for each opening."""
    url.check_options()
    return MemoryStore.open(clock=clock, random=random)
