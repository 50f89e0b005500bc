"""One stream of pops: messages against credits.

The rules: never more messages are sent than there are credits. A message is leased when it is about to be sent, so that what waits
at a slow client defeats no priority. Leases outlive their stream; what was leased while the client went away is given back.
"""

from collections.abc import AsyncIterable, AsyncIterator
from typing import Final

from holdfast.gateways.grpc.access import CallAccess
from holdfast.gateways.grpc.heap_messages import popped
from holdfast.gateways.heap.calls import HeapCalls
from holdfast.heap.wire import PopRequest
from holdfast.security.acls import Operation, ResourceType
from holdfast.security.confirmations import ANYBODY
from holdfast.v1 import heap_service_pb2 as pb
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.tasks import Notify, background_tasks

_TOGETHER: Final = 100
_WAIT_MS: Final = 10_000
_CREDITS_MAX: Final = 100_000


class PopStream:
    """The credits of one stream."""

    def __init__(self, calls: HeapCalls, access: CallAccess) -> None:
        self._calls, self._access = calls, access
        self._filter: pb.PopFilter | None = None
        self._credits = 0
        self._ended = False
        self._changed = Notify()

    async def items(self, requests: AsyncIterable[pb.PopStreamRequest]) -> AsyncIterator[pb.PopStreamResponse]:
        """Messages as there are credits for them, until the client has ended its side and used what it had."""
        async with background_tasks(self._read(requests)):
            while await self._has_credits():
                found = await self._calls.call(self._request())
                if found:
                    self._credits -= len(found)
                    yield pb.PopStreamResponse(items=map(popped, found))

    async def _read(self, requests: AsyncIterable[pb.PopStreamRequest]) -> None:
        async for request in requests:
            if request.WhichOneof("kind") == "filter":
                if self._filter is not None:
                    raise InvalidError("filter", "a second one", "one, in the first request")
                self._check(request.filter)
                self._filter = request.filter
            else:
                self._add(request.flow_control.credits)
            self._changed.notify()
        self._ended = True
        self._changed.notify()

    def _check(self, given: pb.PopFilter) -> None:
        self._access.require_throughout(Operation.READ, ResourceType.TOPIC, given.topic)
        if len(given.partition_ids) > 1:
            raise InvalidError("partition_ids", f"{len(given.partition_ids)} partitions", "none, or one")

    def _add(self, count: int) -> None:
        if self._filter is None:
            raise InvalidError("flow_control", "before the filter", "after it")
        if not 1 <= count <= _CREDITS_MAX - self._credits:
            raise InvalidError("credits", count, f"at least 1, and at most {_CREDITS_MAX} that are not used")
        self._credits += count

    async def _has_credits(self) -> bool:
        """Wait for credits; False: there will be no more."""
        while not self._credits:
            if self._ended:
                return False
            await self._changed.wait()
        return True

    def _request(self) -> PopRequest:
        given = self._filter
        assert given is not None
        identity = self._access.identity
        return PopRequest(
            topic=given.topic,
            partition=given.partition_ids[0] if given.partition_ids else None,
            consumer=given.consumer or (ANYBODY if identity is None else str(identity.principal)),
            max_messages=min(self._credits, _TOGETHER),
            visibility_timeout_ms=given.visibility_timeout_ms if given.HasField("visibility_timeout_ms") else None,
            wait_ms=_WAIT_MS,
        )
