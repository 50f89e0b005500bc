"""A store as clients may change it: not after its cluster has moved away (`cluster_move`).

Agents are stopped by their session and their epochs. What a gateway writes for its clients (topics, users, ACLs, pipelines) has
neither: a node that leads nothing, or one that was suspended, would acknowledge it at the old place.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager

from holdfast.contracts.store import (
    Absent,
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
from holdfast.kernel.cluster_move import MOVED_KEY, ClusterMovedError, decode_moved


class UnmovedStore:
    """Passes everything on to `store`; a commit requires that the cluster is still there. Implements `Store`."""

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
        """`ClusterMovedError`: the cluster has left this store; nothing was applied."""
        outcome = await self._store.commit(require=(*require, Absent(MOVED_KEY)), apply=apply)
        if isinstance(outcome, Conflict) and (moved := outcome.found.get(MOVED_KEY)) is not None:
            raise ClusterMovedError(moved=decode_moved(moved), migration=None)
        return outcome

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
