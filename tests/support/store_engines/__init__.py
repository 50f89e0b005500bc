"""One harness per engine. `ENGINES` is the factory table every suite that runs on all stores is parametrised with.

A module here has `serving(directory)`, a context manager that starts the engine's server (if it has one) and gives a
function; each call of that function is an async context manager of a `Harness` with a fresh namespace.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

from holdfast.testing.harness import StoreHarness

NewStoreHarness = Callable[[], AbstractAsyncContextManager[StoreHarness]]

STORE_ENGINES: Final = ("memory", "sqlite", "postgres", "etcd", "redis")
# For suites of logic above the contract: the engines without a server always, the others in `make test-long`.
SERVERLESS_FIRST: Final = tuple(
    engine if engine in ("memory", "sqlite") else pytest.param(engine, marks=pytest.mark.long)
    for engine in STORE_ENGINES
)


def serving(engine: str, directory: Path) -> AbstractContextManager[NewStoreHarness]:
    """Start what `engine` needs in `directory`, for as many harnesses as wanted."""
    started: AbstractContextManager[NewStoreHarness] = import_module(f"{__name__}.{engine}").serving(directory)
    return started
