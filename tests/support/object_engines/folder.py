"""The folder engine's harness: a fresh folder for each, with faults made between the engine and its clients."""

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from tests.support.object_engines import NewObjectsHarness

from holdfast.contracts.objects import Objects
from holdfast.objects.retry import RetryingObjects, RetrySettings
from holdfast.objects.urls import open_objects
from holdfast.testing.faulty_objects import FaultyObjects
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom


class FolderHarness:
    """Clients of one folder; each is an engine of its own, as in another process."""

    name = "folder"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"file://{folder}"
        self._clients: list[FaultyObjects] = []

    @asynccontextmanager
    async def client(self, *, deadline_ms: int = 30_000) -> AsyncIterator[Objects]:
        clock, random = RealClock(), SystemRandom()
        async with open_objects(self.url, clock=clock, random=random) as objects:
            faulty = FaultyObjects(objects, clock=clock, random=random)
            self._clients.append(faulty)
            settings = RetrySettings(deadline_ms=deadline_ms, pause_ms=20)
            yield RetryingObjects(faulty, clock=clock, random=random, settings=settings)

    def lose_answer_to(self, marker: str) -> None:
        for faulty in self._clients:
            faulty.lose_answer_to(marker)

    async def set_reachable(self, reachable: bool) -> None:
        for faulty in self._clients:
            faulty.reachable = reachable

    async def restart(self) -> None:
        pass


@contextmanager
def serving(directory: Path) -> Iterator[NewObjectsHarness]:
    """Nothing to start; folders below `directory`."""
    numbers = itertools.count(1)

    @asynccontextmanager
    async def new() -> AsyncIterator[FolderHarness]:
        yield FolderHarness(directory / f"t{next(numbers)}")

    yield new
