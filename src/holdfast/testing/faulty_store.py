"""FaultyStore: a store that loses requests and answers on demand."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
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
    """Passes calls on to `store` and loses those that a test selects. Counts calls by method."""

    def __init__(self, store: Store, *, random: Random) -> None:
        self._store, self._random = store, random
        self._outcomes: dict[str, Committed | NotCommitted] = {}
        self._lose_answer_to: str | None = None
        self._lose_request: str | None = None
        self.reachable = True
        self.calls: dict[str, int] = {}

    @property
    def facts(self) -> StoreFacts:
        return self._store.facts

    def lose_answer_to(self, marker: str) -> None:
        """The next commit that mentions `marker` is done; its answer is lost."""
        self._lose_answer_to = marker

    def lose_request(self, marker: str) -> None:
        """The next commit that mentions `marker` is lost; its outcome is unknown to its sender."""
        self._lose_request = marker

    async def get(self, key: str) -> Entry | None:
        self._pass("get")
        return await self._store.get(key)

    async def scan(self, start: str, end: str, *, limit: int | None = None, reverse: bool = False) -> Scan:
        self._pass("scan")
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
        if self._lose_answer_to is not None and any(self._lose_answer_to in key for key in keys):
            self._lose_answer_to = None
            raise self._unknown(outcome if isinstance(outcome, Committed) else NotCommitted())
        return outcome

    async def resolve(self, commit_id: str) -> Committed | NotCommitted:
        self._pass("resolve")
        if commit_id in self._outcomes:
            return self._outcomes[commit_id]
        return await self._store.resolve(commit_id)

    async def open_session(self, ttl_ms: int) -> Session:
        self._pass("open_session")
        return await self._store.open_session(ttl_ms)

    async def keep_alive(self, session_id: str) -> bool:
        self._pass("keep_alive")
        return await self._store.keep_alive(session_id)

    async def close_session(self, session_id: str) -> None:
        self._pass("close_session")
        await self._store.close_session(session_id)

    def watch(self, prefix: str, *, from_version: int) -> AbstractAsyncContextManager[AsyncIterator[Changed | Resync]]:
        self._pass("watch")
        return self._store.watch(prefix, from_version=from_version)

    def _pass(self, method: str) -> None:
        if not self.reachable:
            raise UnavailableError("store", "made unreachable on purpose")
        self.calls[method] = self.calls.get(method, 0) + 1

    def _unknown(self, outcome: Committed | NotCommitted) -> OutcomeUnknownError:
        commit_id = self._random.token()
        self._outcomes[commit_id] = outcome
        return OutcomeUnknownError(commit_id, _LOST)
