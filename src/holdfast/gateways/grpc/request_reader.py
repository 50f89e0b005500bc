"""Requests from their bytes.

The rules: nothing is read of a call before its caller is known. What is large is counted before it is parsed, on a thread, one
request at a time, and callers take turns: neither the event loop nor memory nor the thread is for a caller to fill.
"""

import asyncio
from collections import deque
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
    """The thread of one server that parses large requests: one of each caller who waits, then the next of each."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by caller; whose turn is next comes first
        self._busy = False

    async def run(self, caller: str, work: Callable[[], Any]) -> Any:
        """The result of `work`, once it is its turn. Raises what it raises."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="grpc-requests")
        if self._busy:
            await self._turn(caller)
        self._busy = True
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._next()

    async def _turn(self, caller: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._next()  # it was given, and is not used
            raise

    def _next(self) -> None:
        """Give the next turn. The thread stays busy meanwhile: nobody comes between."""
        while self._waiting:
            caller = next(iter(self._waiting))
            turns = self._waiting.pop(caller)
            turn = turns.popleft()
            if turns:
                self._waiting[caller] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False

    def close(self) -> None:
        """Let the thread end."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


class RequestReader:
    """Reads the requests of one rpc. `bytes_max`: of each; None: what the server takes."""

    def __init__(self, kind: Any, thread: ParsingThread, bytes_max: int | None = None) -> None:
        self._kind, self._thread, self._bytes_max = kind, thread, bytes_max
        self._repeats = Repeats.of(kind.DESCRIPTOR)

    async def parse(self, raw: bytes, caller: str) -> Any:
        """The request. `InvalidError`: it is malformed or too large, or has too many entries or fields."""
        if self._bytes_max is not None and len(raw) > self._bytes_max:
            raise InvalidError("bytes of a request", len(raw), f"at most {self._bytes_max}")
        if len(raw) <= SMALL_BYTES:
            return self._parse(raw)
        return await self._thread.run(caller, lambda: self._checked(raw))

    async def each(self, requests: AsyncIterable[bytes], caller: str) -> AsyncIterator[Any]:
        """Those of a stream."""
        async for raw in requests:
            yield await self.parse(raw, caller)

    def _checked(self, raw: bytes) -> Any:
        self._repeats.check(raw, ENTRIES_MAX)
        return self._parse(raw)

    def _parse(self, raw: bytes) -> Any:
        try:
            return self._kind.FromString(raw)
        except DecodeError:
            raise InvalidError("request", "bytes", f"a {self._kind.DESCRIPTOR.full_name}") from None
