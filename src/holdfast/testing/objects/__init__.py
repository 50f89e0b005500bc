"""One harness per engine of objects. `ENGINES` is the factory table the contract suite is parametrised with.

A module here has `serving(directory)`, a context manager that starts the engine's server (if it has one) and gives a
function; each call of that function is an async context manager of an `ObjectsHarness` with a fresh namespace.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol

from holdfast.contracts.objects import Objects


class ObjectsHarness(Protocol):
    """One engine with a real server behind it, as the contract suite sees it: it gives clients, and can hurt them."""

    name: str
    url: str  # opens the same namespace from another process; "" when only this process can reach it

    def client(self, *, deadline_ms: int = 30_000) -> AbstractAsyncContextManager[Objects]:
        """Another client of the same namespace, as another process would open it, that goes on trying for so long."""
        ...

    def lose_answer_to(self, marker: str) -> None:
        """The next request that mentions `marker` arrives and is done; its answer never comes back."""
        ...

    async def set_reachable(self, reachable: bool) -> None:
        """Break every connection and refuse new ones, or accept them again."""
        ...

    async def restart(self) -> None:
        """Kill the server with SIGKILL and start it again on the same data."""
        ...


NewObjectsHarness = Callable[[], AbstractAsyncContextManager[ObjectsHarness]]

OBJECT_ENGINES: Final = ("memory", "folder", "seaweedfs", "moto")


def serving(engine: str, directory: Path) -> AbstractContextManager[NewObjectsHarness]:
    """Start what `engine` needs in `directory`, for as many harnesses as wanted."""
    started: AbstractContextManager[NewObjectsHarness] = import_module(f"{__name__}.{engine}").serving(directory)
    return started
