"""FaultyStore: a store that loses requests and answers on demand."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from holdfast.contracts.store import (
    Changed,
    Committed,
    Conflict,
    Entry,
    NotCommitted,
    Operation,
    Requirement,
    Resync,
    Scan,
    Session,
    Store,
    StoreFacts,
)
from holdfast.vocabulary.errors import OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random

_LOST: Final = "the answer was lost on purpose"


class FaultyStore:
    """Passes calls on to `store` and loses those that a test selects. Counts calls by method, and lost races.

    `reachable`: whether anything is sent at all. `answering`: whether answers come back; without them what was sent is done, the
    outcome of commits is unknown, and everything else is unavailable. `sessions_over`: every keep-alive is answered, whatever else
    is, with the end of its session.
    """

    def __init__(self, store: Store, *, random: Random) -> None:
        self._store, self._random = store, random
        self._outcomes: dict[str, Committed | NotCommitted] = {}
        self._lose_answer_to: str | None = None
        self._lose_request: str | None = None
        self._stop_answering_at: str | None = None
        self._watches: set[_FaultyWatch] = set()
        self.reachable = True
        self.answering = True
        self.sessions_over = False
        self.calls: dict[str, int] = {}
        self.conflicts = 0  # commits with operations that lost their race

    @property
    def facts(self) -> StoreFacts:
        return self._store.facts

    def lose_answer_to(self, marker: str) -> None:
        """The next commit that mentions `marker` is done; its answer is lost."""
        self._lose_answer_to = marker

    def lose_request(self, marker: str) -> None:
        """The next commit that mentions `marker` is lost; its outcome is unknown to its sender."""
        self._lose_request = marker

    def stop_answering_at(self, marker: str) -> None:
        """The next commit that mentions `marker` and succeeds is done; from then on nothing is answered."""
        self._stop_answering_at = marker

    def resync_watches(self) -> None:
        """Every open watch has lost its history: the next it yields is `Resync`."""
        for watch in self._watches:
            watch.resync.set()

    async def get(self, key: str) -> Entry | None:
        self._pass("get")
        self._answer()
        return await self._store.get(key)

    async def scan(self, start: str, end: str, *, limit: int | None = None, reverse: bool = False) -> Scan:
        self._pass("scan")
        self._answer()
        return await self._store.scan(start, end, limit=limit, reverse=reverse)

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        self._pass("commit")
        keys = [each.key for each in (*require, *apply)]
        if self._lose_request is not None and any(self._lose_request in key for key in keys):
            self._lose_request = None
            raise self._unknown(NotCommitted())
        outcome = await self._store.commit(require=require, apply=apply)
        self.conflicts += isinstance(outcome, Conflict) and bool(apply)
        at = self._stop_answering_at
        if at is not None and isinstance(outcome, Committed) and any(at in key for key in keys):
            self._stop_answering_at, self.answering = None, False
        lost = self._lose_answer_to is not None and any(self._lose_answer_to in key for key in keys)
        if lost or not self.answering:
            self._lose_answer_to = None if lost else self._lose_answer_to
            raise self._unknown(outcome if isinstance(outcome, Committed) else NotCommitted())
        return outcome

    async def resolve(self, commit_id: str) -> Committed | NotCommitted:
        self._pass("resolve")
        self._answer()
        if commit_id in self._outcomes:
            return self._outcomes[commit_id]
        return await self._store.resolve(commit_id)

    async def open_session(self, ttl_ms: int) -> Session:
        self._pass("open_session")
        opened = await self._store.open_session(ttl_ms)
        self._answer()
        return opened

    async def keep_alive(self, session_id: str) -> bool:
        if self.sessions_over:
            return False
        self._pass("keep_alive")
        alive = await self._store.keep_alive(session_id)
        self._answer()
        return alive

    async def close_session(self, session_id: str) -> None:
        self._pass("close_session")
        await self._store.close_session(session_id)
        self._answer()

    def watch(self, prefix: str, *, from_version: int) -> AbstractAsyncContextManager[AsyncIterator[Changed | Resync]]:
        self._pass("watch")
        return self._watch(prefix, from_version)

    @asynccontextmanager
    async def _watch(self, prefix: str, from_version: int) -> AsyncIterator[AsyncIterator[Changed | Resync]]:
        async with self._store.watch(prefix, from_version=from_version) as changes:
            watch = _FaultyWatch(changes, from_version)
            self._watches.add(watch)
            try:
                yield watch
            finally:
                self._watches.discard(watch)
                await watch.close()

    def _pass(self, method: str) -> None:
        if not self.reachable:
            raise UnavailableError("store", "made unreachable on purpose")
        self.calls[method] = self.calls.get(method, 0) + 1

    def _answer(self) -> None:
        if not self.answering:
            raise UnavailableError("store", _LOST)

    def _unknown(self, outcome: Committed | NotCommitted) -> OutcomeUnknownError:
        commit_id = self._random.token()
        self._outcomes[commit_id] = outcome
        return OutcomeUnknownError(commit_id, _LOST)


class _FaultyWatch(AsyncIterator[Changed | Resync]):
    """A watch that can lose its history."""

    def __init__(self, changes: AsyncIterator[Changed | Resync], version: int) -> None:
        self._changes, self._version = changes, version
        self._next: asyncio.Future[Changed | Resync] | None = None
        self.resync = asyncio.Event()

    async def __anext__(self) -> Changed | Resync:
        if self._next is None:
            self._next = asyncio.ensure_future(anext(self._changes))
        resync = asyncio.ensure_future(self.resync.wait())
        try:
            await asyncio.wait((self._next, resync), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.close()  # what a caller's timeout does to the engine's watch is the engine's affair
            if self._next.cancelled():
                self._next = None
            raise
        finally:
            resync.cancel()
        if self.resync.is_set():
            self.resync.clear()
            return Resync(self._version)
        change, self._next = self._next.result(), None
        self._version = change.version
        return change

    async def close(self) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait((self._next,))  # the watch must not be closed while it is read
