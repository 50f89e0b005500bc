from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.partitions import PartitionWorld


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[PartitionWorld]:
    made = PartitionWorld(tmp_path)
    yield made
    for owner in made.owners:
        await owner.end()
