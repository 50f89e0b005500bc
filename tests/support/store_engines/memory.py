"""The memory engine's harness: no server, so faults are made between the store and its clients."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from tests.support.store_engines import NewStoreHarness

from holdfast.contracts.store import Store
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom


class MemoryStoreHarness:
    """Clients of one `MemoryStore`. It has no server: to restart one, or to go back, means nothing here."""

    name = "memory"
    url = ""
    ttl_ms_min = 300

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._faulty = FaultyStore(store, random=SystemRandom())

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Store]:
        yield self._faulty

    def lose_answer_to(self, marker: str) -> None:
        self._faulty.lose_answer_to(marker)

    def lose_request(self, marker: str) -> None:
        self._faulty.lose_request(marker)

    async def cut(self) -> None:
        pass

    async def set_reachable(self, reachable: bool) -> None:
        self._faulty.reachable = reachable

    async def restart(self) -> None:
        pass

    async def save(self) -> None:
        pass

    async def restore_saved(self) -> None:
        pass


@contextmanager
def serving(directory: Path) -> Iterator[NewStoreHarness]:
    """Nothing to start."""

    @asynccontextmanager
    async def new() -> AsyncIterator[MemoryStoreHarness]:
        async with MemoryStore.open(clock=RealClock(), random=SystemRandom()) as store:
            yield MemoryStoreHarness(store)

    yield new
