"""One fresh world per test."""

from collections.abc import AsyncIterator

import pytest_asyncio
from tests.support.maintenance import MaintenanceWorld, new_world


@pytest_asyncio.fixture
async def world() -> AsyncIterator[MaintenanceWorld]:
    async with new_world() as fresh:
        yield fresh
