"""A store that passes everything on: what a store with one rule of its own is derived from."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager

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


class ForwardingStore:
    """Each call is one of `store`. Implements `Store`."""

    def __init__(self, store: Store) -> None:
        self._store = store

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
        return await self._store.commit(require=require, apply=apply)

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
