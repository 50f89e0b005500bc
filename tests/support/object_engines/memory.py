"""The memory engine's harness: no server, so faults are made between the objects and their clients."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from tests.support.object_engines import NewObjectsHarness

from holdfast.contracts.objects import Objects
from holdfast.objects.memory import MemoryObjects
from holdfast.objects.retry import RetryingObjects, RetrySettings
from holdfast.testing.faulty_objects import FaultyObjects
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom


class MemoryObjectsHarness:
    """Clients of one `MemoryObjects`. It has no server: to restart one means nothing here."""

    name = "memory"
    url = ""

    def __init__(self, objects: Objects) -> None:
        self.faulty = FaultyObjects(objects, clock=RealClock(), random=SystemRandom())

    @asynccontextmanager
    async def client(self, *, deadline_ms: int = 30_000) -> AsyncIterator[Objects]:
        settings = RetrySettings(deadline_ms=deadline_ms, pause_ms=20)
        yield RetryingObjects(self.faulty, clock=RealClock(), random=SystemRandom(), settings=settings)

    def lose_answer_to(self, marker: str) -> None:
        self.faulty.lose_answer_to(marker)

    async def set_reachable(self, reachable: bool) -> None:
        self.faulty.reachable = reachable

    async def restart(self) -> None:
        pass


@contextmanager
def serving(directory: Path) -> Iterator[NewObjectsHarness]:
    """Nothing to start."""

    @asynccontextmanager
    async def new() -> AsyncIterator[MemoryObjectsHarness]:
        async with MemoryObjects.open(clock=RealClock()) as objects:
            yield MemoryObjectsHarness(objects)

    yield new
