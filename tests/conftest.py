"""Every engine's server, started once per worker when it is first wanted, and a fresh namespace for each test."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack

import pytest
import pytest_asyncio
from hypothesis import settings

from holdfast.contracts.store import Store
from holdfast.testing.engines import ENGINES, NewHarness, serving
from holdfast.testing.harness import Harness

pytest.register_assert_rewrite("holdfast.testing.store_contract")

Serve = Callable[[str], NewHarness]

# A busy machine is no defect: what takes long is bounded by the time-out of the test.
settings.register_profile("holdfast", deadline=None)
settings.load_profile("holdfast")


@pytest.fixture(scope="session")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    running: dict[str, NewHarness] = {}
    with ExitStack() as started:

        def serve(engine: str) -> NewHarness:
            if engine not in running:
                running[engine] = started.enter_context(serving(engine, tmp_path_factory.mktemp(engine)))
            return running[engine]

        yield serve


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest_asyncio.fixture
async def harness(engine: str, serve: Serve) -> AsyncIterator[Harness]:
    try:
        new = serve(engine)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("holdfast"):
            raise
        pytest.skip(f"the server or driver of {engine} is not installed: no module {missing.name}")
    async with new() as fresh:
        yield fresh


@pytest_asyncio.fixture
async def store(harness: Harness) -> AsyncIterator[Store]:
    async with harness.client() as client:
        yield client
