from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.agent.making import Cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    await made.end()
