"""The public door on the engines that need no server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import holdfast


@pytest.fixture(params=["memory", "sqlite"])
async def hf(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[holdfast.Holdfast]:
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'work.db'}"
    async with holdfast.connect(url) as connected:
        yield connected
