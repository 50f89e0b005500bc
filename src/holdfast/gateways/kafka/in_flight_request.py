"""A request of a connection, from its arrival to its response: its handler, its throttle time, the header of its response."""

import asyncio
from struct import Struct
from typing import Final

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseChunks
from holdfast.gateways.kafka.quota_meters import RequestMeter
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.wire import INT32
from holdfast.security.client_quotas import Quota
from holdfast.vocabulary.clock import stopwatch_ns
from holdfast.vocabulary.tracing import Span

NO_BODY: Final = memoryview(b"")
_RESPONSE_HEADER: Final = Struct(">ii")  # size, correlation id
_RESPONSE_HEADER_FLEXIBLE: Final = Struct(">iix")
# Encoded by hand: from which version on the first field of the response is the throttle time.
_THROTTLE_FIRST: Final = {ApiKey.FETCH: 1, ApiKey.METADATA: 3, ApiKey.DESCRIBE_CONFIGS: 0}


class InFlightRequest:
    """A request, or a run of them, from its arrival to its response."""

    __slots__ = ("api", "arrived_ns", "body", "call", "count", "done", "response", "size", "span", "task")

    def __init__(self, api: Api, call: RequestContext, body: memoryview, size: int, count: int = 1) -> None:
        self.api, self.call, self.body, self.size, self.count = api, call, body, size, count
        self.arrived_ns = stopwatch_ns()
        self.span: Span | None = None
        self.task: asyncio.Future[ResponseChunks | None] | None = None
        self.response: ResponseChunks | BaseException | None = None
        self.done = False

    async def handle(self) -> ResponseChunks | None:
        """The response of a handler that is no `direct` one; None: there is none."""
        api, call = self.api, self.call
        if api.raw is not None:
            chunks = await api.raw(call, self._take_body())
            return chunks if call.meter is None or chunks is None else _throttled(call, call.meter, chunks)
        if api.long_poll:  # waits for others, which may be in the places
            return await self._handle_control()
        async with call.backend.large_requests.slot(call, self.body):
            return await self._handle_control()

    async def _handle_control(self) -> ResponseChunks:
        api, call, large = self.api, self.call, self.call.backend.large_requests
        assert api.control is not None
        response = await api.control(call, await large.decode(call, self._take_body()))
        if call.meter is not None:
            call.meter.charge_time()
            response = {**response, "throttle_time": call.throttle_ms}
        return (await large.encode(api.key, call.version, response),)

    @property
    def ends_with_its_client(self) -> bool:
        """Whether it is given up once its client is gone: others finish what they have begun."""
        return self.api.long_poll or self.call.is_paced or not self.call.begun

    def _take_body(self) -> memoryview:
        """A long poll must not keep the memory of its request."""
        body, self.body = self.body, NO_BODY
        return body

    def response_header(self, response: ResponseChunks) -> bytes:
        """What is written before a response."""
        # An ApiVersions response always has the oldest header: the client does not know the server's versions yet.
        flexible = self.api.is_flexible(self.call.version) and self.api.key != ApiKey.API_VERSIONS
        header = _RESPONSE_HEADER_FLEXIBLE if flexible else _RESPONSE_HEADER
        return header.pack(header.size - 4 + sum(map(len, response)), self.call.correlation)


def _throttled(call: RequestContext, meter: RequestMeter, chunks: ResponseChunks) -> ResponseChunks:
    """The response of a metered request, with its throttle time where it has one."""
    if call.api.key is ApiKey.FETCH:
        meter.charge(Quota.FETCH, sum(map(len, chunks)))
    meter.charge_time()
    first_from = _THROTTLE_FIRST.get(call.api.key)
    if not meter.throttle_ms or first_from is None or call.version < first_from:
        return chunks
    return (INT32.pack(meter.throttle_ms), memoryview(chunks[0])[INT32.size :], *chunks[1:])
