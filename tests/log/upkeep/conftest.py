"""One fresh world per test."""

from collections.abc import AsyncIterator

import pytest_asyncio
from tests.log.upkeep.world import World, new_world


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    async with new_world() as fresh:
        yield fresh
