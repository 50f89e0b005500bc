"""Requests from their bytes.

The rules: nothing is read of a call before its caller is known. What is large is counted before it is parsed, on a thread, one
request at a time: neither the event loop nor memory is for a caller to fill.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from google.protobuf.message import DecodeError

from holdfast.gateways.grpc.entries import Repeats
from holdfast.heap.model import ENTRIES_MAX
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import KIB

SMALL_BYTES: Final = 64 * KIB  # parsed in 4 ms at most


class ParsingThread:
    """The thread of one server that parses large requests."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[[], Any]) -> Any:
        """The result of `work`. Raises what it raises."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="grpc-requests")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Let the thread end."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


class RequestReader:
    """Reads the requests of one rpc."""

    def __init__(self, kind: Any, thread: ParsingThread) -> None:
        self._kind, self._thread = kind, thread
        self._repeats = Repeats.of(kind.DESCRIPTOR)

    async def parse(self, raw: bytes) -> Any:
        """The request. `InvalidError`: it is malformed, or has too many entries."""
        if len(raw) <= SMALL_BYTES:
            return self._parse(raw)
        return await self._thread.run(lambda: self._checked(raw))

    async def each(self, requests: AsyncIterable[bytes]) -> AsyncIterator[Any]:
        """Those of a stream."""
        async for raw in requests:
            yield await self.parse(raw)

    def _checked(self, raw: bytes) -> Any:
        self._repeats.check(raw, ENTRIES_MAX)
        return self._parse(raw)

    def _parse(self, raw: bytes) -> Any:
        try:
            return self._kind.FromString(raw)
        except DecodeError:
            raise InvalidError("request", "bytes", f"a {self._kind.DESCRIPTOR.full_name}") from None
