"""Coalesced commits: commits that are made at the same time are sent as one, so that ten thousand partitions do not cost ten
thousand round trips when they are acquired, opened, reserved or released together.

The one rule: nobody can tell, but for the version, which merged commits share. They write different keys, and none requires what
another one writes; if one of them loses its race, it alone gets the `Conflict`, and the others are sent again without it. An answer
that is lost is lost for all of them: `resolve` finds the same outcome for each.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from holdfast.contracts.store import (
    Absent,
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
    StoreFacts,
)
from holdfast.contracts.validation import StoreLimits
from holdfast.vocabulary.errors import ClosedError, HoldfastError, InvalidError
from holdfast.vocabulary.tasks import background_tasks

_IN_FLIGHT_MAX: Final = 4


@dataclass(slots=True, eq=False)
class _Waiting:
    """A commit that was made and not answered yet."""

    require: Sequence[Requirement]
    apply: Sequence[Operation]
    answer: "asyncio.Future[Committed | Conflict]"

    @property
    def operations(self) -> int:
        return len(self.require) + len(self.apply)

    @property
    def size_bytes(self) -> int:
        """At least what an engine counts: keys and values."""
        keys = sum(4 * len(each.key) for each in (*self.require, *self.apply))
        return keys + sum(len(each.value) for each in self.apply if isinstance(each, Put))

    def fails(self, conflict: Conflict) -> bool:
        """Whether the conflict is this commit's own."""
        lost = any(each.key in conflict.found and not _holds(each, conflict.found) for each in self.require)
        return lost or self._puts_under(conflict.dead_session)

    def _puts_under(self, session: str | None) -> bool:
        return session is not None and any(isinstance(each, Put) and each.session == session for each in self.apply)

    def answer_with(self, outcome: "Committed | Conflict | HoldfastError") -> None:
        if self.answer.done():
            return  # its caller was cancelled
        if isinstance(outcome, HoldfastError):
            self.answer.set_exception(outcome)
        elif isinstance(outcome, Conflict):
            found = {each.key: outcome.found[each.key] for each in self.require if each.key in outcome.found}
            dead_session = outcome.dead_session if self._puts_under(outcome.dead_session) else None
            self.answer.set_result(Conflict(found, dead_session))
        else:
            self.answer.set_result(outcome)


@dataclass(slots=True)
class _Merged:
    """Commits that go together, as far as the limits allow."""

    limits: StoreLimits
    commits: list[_Waiting] = field(default_factory=list)
    require: dict[str, Requirement] = field(default_factory=dict)
    apply: dict[str, Operation] = field(default_factory=dict)
    size_bytes: int = 0

    def add(self, commit: _Waiting) -> bool:
        """Add it, if it fits and is independent of the others."""
        size_bytes = self.size_bytes + commit.size_bytes
        more = [each for each in commit.require if each.key not in self.require]
        count = len(self.require) + len(self.apply) + len(more) + len(commit.apply)
        if self.commits and (
            count > self.limits.ops_max
            or size_bytes > self.limits.bytes_max
            or any(each.key in self.apply or self.require.get(each.key, each) != each for each in commit.require)
            or any(each.key in self.apply or each.key in self.require for each in commit.apply)
        ):
            return False
        self.commits.append(commit)
        self.require.update((each.key, each) for each in more)
        self.apply.update((each.key, each) for each in commit.apply)
        self.size_bytes = size_bytes
        return True


class CoalescingStore:
    """Passes everything on to `store`, and commits together. Implements `Store`. Made by `coalescing`."""

    def __init__(self, store: Store, limits: StoreLimits) -> None:
        self._store, self._limits = store, limits
        self._waiting: deque[_Waiting] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._closed = False

    @property
    def facts(self) -> StoreFacts:
        return self._store.facts

    async def get(self, key: str) -> Entry | None:
        return await self._store.get(key)

    async def scan(self, start: str, end: str, *, limit: int | None = None, reverse: bool = False) -> Scan:
        return await self._store.scan(start, end, limit=limit, reverse=reverse)

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        if not apply or len(require) + len(apply) > self._limits.ops_max // 2 or self._closed:
            return await self._store.commit(require=require, apply=apply)
        if len({each.key for each in require}) < len(require) or len({each.key for each in apply}) < len(apply):
            return await self._store.commit(
                require=require, apply=apply
            )  # what is wrong with it is for the engine to say
        waiting = _Waiting(require, apply, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._wake()
        return await waiting.answer

    async def resolve(self, commit_id: str) -> Committed | NotCommitted:
        return await self._store.resolve(commit_id)

    async def open_session(self, ttl_ms: int) -> Session:
        return await self._store.open_session(ttl_ms)

    async def keep_alive(self, session_id: str) -> bool:
        return await self._store.keep_alive(session_id)

    async def close_session(self, session_id: str) -> None:
        await self._store.close_session(session_id)

    def watch(self, prefix: str, *, from_version: int) -> AbstractAsyncContextManager[AsyncIterator[Changed | Resync]]:
        return self._store.watch(prefix, from_version=from_version)

    async def run(self) -> None:
        """Send what waits, one commit at a time, until cancelled."""
        while True:
            merged = self._take()
            if merged.commits:
                await self._send(merged)
            else:
                # Woken in the next turn of the loop: what was committed in this one goes together.
                idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._idle.append(idle)
                await idle

    def close(self) -> None:
        """From now on commits are passed on one by one; what was not sent is refused."""
        self._closed = True
        while self._waiting:
            self._waiting.popleft().answer_with(ClosedError("store"))

    def _wake(self) -> None:
        while self._idle:
            idle = self._idle.pop()
            if not idle.done():
                idle.set_result(None)
                return

    def _take(self) -> _Merged:
        merged = _Merged(self._limits)
        while self._waiting:
            commit = self._waiting[0]
            if not commit.answer.done() and not merged.add(commit):
                break
            self._waiting.popleft()
        return merged

    async def _send(self, merged: _Merged) -> None:
        commits = merged.commits
        outcome: Committed | Conflict | HoldfastError
        try:
            outcome = await self._store.commit(require=list(merged.require.values()), apply=list(merged.apply.values()))
        except HoldfastError as error:
            outcome = error
        except BaseException:
            for commit in commits:
                commit.answer_with(ClosedError("store"))
            raise
        if isinstance(outcome, (Conflict, InvalidError)) and len(commits) > 1:
            failed = [each for each in commits if isinstance(outcome, Conflict) and each.fails(outcome)]
            kept = [each for each in commits if each not in failed]
            for commit in failed:
                commit.answer_with(outcome)
            if failed:
                self._waiting.extendleft(reversed(kept))
                return
            for commit in kept:  # nobody knows whose fault it was
                await self._send_alone(commit)
            return
        for commit in commits:
            commit.answer_with(_copy(outcome))

    async def _send_alone(self, commit: _Waiting) -> None:
        alone = _Merged(self._limits)
        alone.add(commit)
        await self._send(alone)


def _holds(requirement: Requirement, found: Mapping[str, Entry | None]) -> bool:
    entry = found.get(requirement.key)
    if isinstance(requirement, Absent):
        return entry is None
    return entry is not None and entry.version == requirement.version


def _copy(outcome: Committed | Conflict | HoldfastError) -> Committed | Conflict | HoldfastError:
    """An error is raised once: the next caller gets another with the same facts."""
    return type(outcome)(*outcome.args) if isinstance(outcome, HoldfastError) else outcome


@asynccontextmanager
async def coalescing(store: Store, *, limits: StoreLimits | None = None) -> AsyncIterator[CoalescingStore]:
    """The store, with commits that are made at the same time sent together, for the body."""
    made = CoalescingStore(store, limits or StoreLimits())
    try:
        async with background_tasks(*(made.run() for _ in range(_IN_FLIGHT_MAX))):
            yield made
    finally:
        made.close()
