"""One harness per engine of objects. `OBJECT_ENGINES` parametrises every suite that runs on all of them.

A module here has `serving(directory)`, a context manager that starts the engine's server (if it has one) and gives a
function; each call of that function is an async context manager of an `ObjectsHarness` with a fresh namespace.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Final

from holdfast.testing.harness import ObjectsHarness

NewObjectsHarness = Callable[[], AbstractAsyncContextManager[ObjectsHarness]]

OBJECT_ENGINES: Final = ("memory", "folder", "seaweedfs", "moto")


def serving(engine: str, directory: Path) -> AbstractContextManager[NewObjectsHarness]:
    """Start what `engine` needs in `directory`, for as many harnesses as wanted."""
    started: AbstractContextManager[NewObjectsHarness] = import_module(f"{__name__}.{engine}").serving(directory)
    return started
