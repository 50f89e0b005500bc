"""A store whose calls are counted: how long they took, what failed, who lost a race. It decides nothing and changes no answer."""

from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

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
from holdfast.vocabulary.clock import stopwatch_ns
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.histogram import Latencies

T = TypeVar("T")


class StoreCounters:
    """Calls since the process started, by operation. A conflict is an answer: a commit that lost its race."""

    def __init__(self) -> None:
        self.latencies = Latencies()
        self.errors: dict[str, int] = {}
        self.conflicts = 0


class MeasuredStore:
    """Passes everything on to `store`. Implements `Store`."""

    def __init__(self, store: Store, counters: StoreCounters) -> None:
        self._store, self.counters = store, counters

    @property
    def facts(self) -> StoreFacts:
        return self._store.facts

    async def get(self, key: str) -> Entry | None:
        return await self._measure("get", self._store.get(key))

    async def scan(self, start: str, end: str, *, limit: int | None = None, reverse: bool = False) -> Scan:
        return await self._measure("scan", self._store.scan(start, end, limit=limit, reverse=reverse))

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        outcome = await self._measure("commit", self._store.commit(require=require, apply=apply))
        self.counters.conflicts += isinstance(outcome, Conflict)
        return outcome

    async def resolve(self, commit_id: str) -> Committed | NotCommitted:
        return await self._measure("resolve", self._store.resolve(commit_id))

    async def open_session(self, ttl_ms: int) -> Session:
        return await self._measure("open_session", self._store.open_session(ttl_ms))

    async def keep_alive(self, session_id: str) -> bool:
        return await self._measure("keep_alive", self._store.keep_alive(session_id))

    async def close_session(self, session_id: str) -> None:
        await self._measure("close_session", self._store.close_session(session_id))

    def watch(self, prefix: str, *, from_version: int) -> AbstractAsyncContextManager[AsyncIterator[Changed | Resync]]:
        return self._store.watch(prefix, from_version=from_version)

    async def _measure(self, operation: str, call: Awaitable[T]) -> T:
        began_ns = stopwatch_ns()
        try:
            return await call
        except HoldfastError:
            self.counters.errors[operation] = self.counters.errors.get(operation, 0) + 1
            raise
        finally:
            self.counters.latencies[operation].observe((stopwatch_ns() - began_ns) / 1e9)
