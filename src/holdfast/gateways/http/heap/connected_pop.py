"""Pops that wait, and clients that go away meanwhile.

The one rule: what was leased to a client that is gone is given back at once, and does not count as an attempt.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from holdfast.gateways.heap.calls import HeapCalls
from holdfast.gateways.http.log.waits import Receive, Waits
from holdfast.heap.model import PoppedMessage
from holdfast.heap.wire import PopRequest, ReleaseRequest
from holdfast.vocabulary.errors import HoldfastError


async def pop_while_connected(
    calls: HeapCalls,
    waits: Waits,
    request: PopRequest,
    receive: Receive,
    ended: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> Sequence[PoppedMessage]:
    """The messages of a pop; none if the client is gone, or the server stops, or `ended` returns: it may have them no longer."""
    gone = asyncio.Event()

    async def revoked() -> None:
        assert ended is not None
        await ended()
        gone.set()

    async def observed() -> dict[str, object]:
        message = await receive()
        if message["type"] == "http.disconnect":
            gone.set()
        return dict(message)

    popping = _Popping(calls, request)
    found = await waits.run(popping.run(), observed, None if ended is None else revoked)
    if found is None or gone.is_set():
        await popping.give_back()
        return ()
    return found


class _Popping:
    """A pop and what it got, whether or not anybody takes it."""

    def __init__(self, calls: HeapCalls, request: PopRequest) -> None:
        self._calls, self._request = calls, request
        self._found: Sequence[PoppedMessage] = ()

    async def run(self) -> Sequence[PoppedMessage]:
        self._found = await self._calls.call(self._request)
        return self._found

    async def give_back(self) -> None:
        if self._found:
            tokens = [each.lease_token for each in self._found]
            try:
                await self._calls.call(ReleaseRequest(topic=self._request.topic, tokens=tokens))
            except HoldfastError:
                return  # they come back when their leases expire
