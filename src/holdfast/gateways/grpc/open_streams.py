"""Streams that last: how many there may be at a node, and that they end with it."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TypeVar

from holdfast.gateways.grpc.backend import GrpcBackend
from holdfast.vocabulary.errors import ClosedError, UnavailableError

T = TypeVar("T")


@contextmanager
def open_stream(backend: GrpcBackend) -> Iterator[None]:
    """One more stream for the body. `UnavailableError`: there are too many."""
    limit = backend.settings.fetches_max
    if backend.counters.open_streams >= limit:
        raise UnavailableError("stream", f"{limit} are open at this node, which is the limit (grpc.fetches_max)")
    backend.counters.open_streams += 1
    try:
        yield
    finally:
        backend.counters.open_streams -= 1


async def until_stopped(items: AsyncIterable[T], stop: asyncio.Event) -> AsyncIterator[T]:
    """The items; `ClosedError` once the server stops."""
    iterator = aiter(items)
    stopping = asyncio.ensure_future(stop.wait())

    async def take() -> T | None:
        return await anext(iterator, None)

    try:
        while True:
            taking = asyncio.ensure_future(take())
            try:
                await asyncio.wait((taking, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not taking.done():
                    raise ClosedError("the server")
                item = taking.result()
            finally:
                taking.cancel()
            if item is None:
                return
            yield item
    finally:
        stopping.cancel()
