from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.log.partition.making import World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    for owner in made.owners:
        await owner.end()
