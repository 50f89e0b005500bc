"""A store and objects whose every change is a labelled step: the process may die before it was asked, and after it was done."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager

from holdfast.contracts.objects import AlreadyExists, Buffer, Missing, ObjectInfo, Objects, Stored
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

Step = Callable[[str], None]


class SteppingStore:
    """Passes calls on. `busy`: one is under way."""

    def __init__(self, store: Store, steps: Step) -> None:
        self._store, self._steps = store, steps
        self._under_way = 0

    def busy(self) -> bool:
        return self._under_way > 0

    @property
    def facts(self) -> StoreFacts:
        return self._store.facts

    async def get(self, key: str) -> Entry | None:
        with self._counted():
            return await self._store.get(key)

    async def scan(self, start: str, end: str, *, limit: int | None = None, reverse: bool = False) -> Scan:
        with self._counted():
            return await self._store.scan(start, end, limit=limit, reverse=reverse)

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        self._steps("store asked")
        with self._counted():
            outcome = await self._store.commit(require=require, apply=apply)
        self._steps("store answered")
        return outcome

    async def resolve(self, commit_id: str) -> Committed | NotCommitted:
        with self._counted():
            return await self._store.resolve(commit_id)

    async def open_session(self, ttl_ms: int) -> Session:
        with self._counted():
            return await self._store.open_session(ttl_ms)

    async def keep_alive(self, session_id: str) -> bool:
        with self._counted():
            return await self._store.keep_alive(session_id)

    async def close_session(self, session_id: str) -> None:
        with self._counted():
            await self._store.close_session(session_id)

    def watch(self, prefix: str, *, from_version: int) -> AbstractAsyncContextManager[AsyncIterator[Changed | Resync]]:
        return self._store.watch(prefix, from_version=from_version)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1


class SteppingObjects:
    """Passes calls on."""

    def __init__(self, objects: Objects, steps: Step) -> None:
        self._objects, self._steps = objects, steps

    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        self._steps("object asked")
        outcome = await self._objects.put(key, body)
        self._steps("object stored")
        return outcome

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> Buffer | Missing:
        return await self._objects.get(key, start=start, end=end)

    async def get_tail(self, key: str, size_bytes: int) -> Buffer | Missing:
        return await self._objects.get_tail(key, size_bytes)

    def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        return self._objects.list(prefix, after=after)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._objects.delete(keys)
