"""Every engine's server, started once per worker when it is first wanted, and a fresh namespace for each test."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack

import pytest
import pytest_asyncio
from tests.support.object_engines import OBJECT_ENGINES, NewObjectsHarness, serving

from holdfast.contracts.objects import Objects
from holdfast.testing.harness import ObjectsHarness

pytest.register_assert_rewrite("holdfast.testing.objects_contract")

ServeObjects = Callable[[str], NewObjectsHarness]


@pytest.fixture(scope="session")
def serve_objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeObjects]:
    running: dict[str, NewObjectsHarness] = {}
    with ExitStack() as started:

        def serve(engine: str) -> NewObjectsHarness:
            if engine not in running:
                running[engine] = started.enter_context(serving(engine, tmp_path_factory.mktemp(engine)))
            return running[engine]

        yield serve


@pytest.fixture(params=OBJECT_ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest_asyncio.fixture
async def harness(engine: str, serve_objects: ServeObjects) -> AsyncIterator[ObjectsHarness]:
    try:
        new = serve_objects(engine)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("holdfast"):
            raise
        pytest.skip(f"the server or driver of {engine} is not installed: no {missing.name}")
    async with new() as fresh:
        yield fresh


@pytest_asyncio.fixture
async def objects(harness: ObjectsHarness) -> AsyncIterator[Objects]:
    async with harness.client() as client:
        yield client
