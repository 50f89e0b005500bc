"""Servers whose harness blocks, from an event loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


@asynccontextmanager
async def on_thread(server: AbstractContextManager[T]) -> AsyncIterator[T]:
    """Enter and leave a context manager on another thread."""
    entered = await asyncio.to_thread(server.__enter__)
    try:
        yield entered
    finally:
        await asyncio.to_thread(server.__exit__, None, None, None)
