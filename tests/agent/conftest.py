from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.cluster import LocalCluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    made = LocalCluster(tmp_path)
    yield made
    await made.end()
