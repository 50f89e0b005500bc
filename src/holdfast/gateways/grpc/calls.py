"""From the descriptor of a service to handlers: one method of ours for each rpc, by its name.

The rules: an rpc without a method or without a rule does not start. A call's caller is known before its request is read: to gRPC
every request is a stream, of bytes, which it reads when it is asked to. Whatever a method raises becomes a status by the one table.
A call that was cancelled, or whose client has gone, is cancelled here, and what it held is freed before its end: a stream's
generator is closed, never left to the garbage collector.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc.aio import ServicerContext

from holdfast.gateways.grpc.access import CallAccess, peer_host
from holdfast.gateways.grpc.backend import GrpcBackend
from holdfast.gateways.grpc.call_limits import CallLimits
from holdfast.gateways.grpc.errors import Failure, RequestTimeoutError, failure_of
from holdfast.gateways.grpc.request_reader import ParsingThread, RequestReader
from holdfast.gateways.grpc.rules import RpcRule, rule_of
from holdfast.vocabulary.clock import stopwatch_ns
from holdfast.vocabulary.errors import HoldfastError, InvalidError
from holdfast.vocabulary.tasks import background_tasks
from holdfast.vocabulary.tracing import Span, current_span, parse_traceparent

_log: Final = logging.getLogger(__name__)
_FAILURES: Final = frozenset({"INTERNAL", "UNKNOWN", "UNAVAILABLE", "DATA_LOSS", "DEADLINE_EXCEEDED"})  # the server's

Context: TypeAlias = "ServicerContext[Any, Any]"
Handler = Callable[[Any, Context], Awaitable[Any]]


class MissingMethodError(LookupError):
    """An rpc that nobody serves."""

    def __init__(self, rpc: str) -> None:
        super().__init__(f"{rpc} has no method")


def service_handler(
    service: ServiceDescriptor, served: object, backend: GrpcBackend, thread: ParsingThread, limits: CallLimits
) -> "grpc.GenericRpcHandler[Any, Any]":
    """The handlers of all rpcs of a service, which `served` has a method for each of."""
    made = {method.name: _method_handler(method, served, backend, thread, limits) for method in service.methods}
    return grpc.method_handlers_generic_handler(service.full_name, made)


def rpc_name(method: MethodDescriptor) -> str:
    """`/package.Service/Method`, as on the wire."""
    return f"/{method.containing_service.full_name}/{method.name}"


def _method_handler(
    method: MethodDescriptor, served: object, backend: GrpcBackend, thread: ParsingThread, limits: CallLimits
) -> "grpc.RpcMethodHandler[Any, Any]":
    rpc = rpc_name(method)
    rule = rule_of(rpc)
    work = getattr(served, re.sub(r"(?<!^)(?=[A-Z])", "_", method.name).lower(), None)
    if work is None:
        raise MissingMethodError(rpc)
    reader = RequestReader(GetMessageClass(method.input_type), thread, rule.bytes_max)
    calls = _Calls(rpc, rule, backend, reader, limits, streams=method.server_streaming)
    serialize = GetMessageClass(method.output_type).SerializeToString
    if not method.server_streaming:
        return grpc.stream_unary_rpc_method_handler(calls.unary(work), response_serializer=serialize)
    handle = calls.both_ways(work) if method.client_streaming else calls.streaming(work)
    return grpc.stream_stream_rpc_method_handler(handle, response_serializer=serialize)


@dataclass(slots=True)
class _Call:
    """A call whose caller is known. `caller`: its principal, or its address. `request`: None until it is read."""

    access: CallAccess
    caller: str
    request: Any = None


class _Calls:
    """The calls of one rpc."""

    def __init__(
        self, rpc: str, rule: RpcRule, backend: GrpcBackend, reader: RequestReader, limits: CallLimits, *, streams: bool
    ) -> None:
        self._rpc, self._rule, self._security = rpc, rule, backend.security
        self._limits, self._streams, self._request_ms = limits, streams, backend.settings.request_ms
        self._name, self._counters = rpc.rpartition(".")[2], backend.counters
        self._tracer, self._reader = backend.tracer, reader

    def unary(self, work: Callable[[Any, CallAccess], Awaitable[Any]]) -> Handler:
        """A handler that returns one response."""

        async def handle(_: Any, context: Context) -> Any:
            began_ns = stopwatch_ns()
            try:
                async with self._call(context) as call:
                    await self._read(call, context)
                    return await work(call.request, call.access)
            finally:
                self._counters.latencies[self._name].observe((stopwatch_ns() - began_ns) / 1e9)

        return handle

    def streaming(self, work: Callable[[Any, CallAccess], AsyncIterator[Any]]) -> Handler:
        """A handler that writes responses, each once the one before has been taken by the transport."""

        async def handle(_: Any, context: Context) -> None:
            async with self._call(context) as call:
                await self._read(call, context)
                await self._write(work(call.request, call.access), call, context)

        return handle

    def both_ways(self, work: Callable[[Any, CallAccess], AsyncIterator[Any]]) -> Handler:
        """The same, of a stream of requests."""

        async def handle(requests: Any, context: Context) -> None:
            async with self._call(context) as call:
                call.access.check(None)
                await self._write(work(self._reader.each(requests, call.caller), call.access), call, context)

        return handle

    async def _read(self, call: _Call, context: Context) -> None:
        """Read the request, and check what is needed first. It has to arrive: a call that waits for it is one of those of all."""
        try:
            async with asyncio.timeout(self._request_ms / 1000):
                raw: Any = await context.read()
        except TimeoutError:
            raise RequestTimeoutError(self._request_ms) from None
        if not isinstance(raw, bytes):  # the end of the stream
            raise InvalidError("request", "nothing", "a message")
        call.request = await self._reader.parse(raw, call.caller)
        call.access.check(call.request)

    @staticmethod
    async def _write(responses: Any, call: _Call, context: Context) -> None:
        async with aclosing(responses), background_tasks(call.access.ended(call.request)):
            async for response in responses:
                await context.write(response)

    @asynccontextmanager
    async def _call(self, context: Context) -> AsyncIterator[_Call]:
        """A call, which is counted and recorded. What its body raises becomes its status."""
        call: _Call | None = None
        failed: Exception | None = None
        with self._counted(context), ExitStack() as place:
            try:
                found = await self._access(context)
                caller = peer_host(context.peer()) if found.identity is None else str(found.identity.principal)
                call = _Call(found, caller)
                place.enter_context(
                    self._limits.public(caller, streams=self._streams)
                    if self._rule.public
                    else self._limits.caller(caller)
                )
                found.check_unread()
                yield call
            except Exception as error:
                failed = error
            if self._security is not None:
                access, request = (None, None) if call is None else (call.access, call.request)
                self._security.record(self._rpc, self._rule, access, context.peer(), request, failed)
            if failed is not None:
                await self._abort(context, failed)

    async def _access(self, context: Context) -> CallAccess:
        if self._security is None:
            return CallAccess(self._rule)
        metadata: Any = context.invocation_metadata() or ()
        return await self._security.access(self._rule, metadata, context.peer())

    @contextmanager
    def _counted(self, context: Context) -> Iterator[None]:
        self._counters.in_flight += 1
        code = "CANCELLED"
        span = self._span(context) if self._tracer is not None and not self._rule.public else None
        token = current_span.set(span) if span is not None else None
        try:
            yield
            code = "OK"
        except grpc.aio.AbortError:
            code = grpc.StatusCode(context.code()).name
            raise
        finally:
            self._counters.in_flight -= 1
            if not self._counters.in_flight:
                self._counters.idle.notify()
            self._counters.calls[self._name, code] += 1
            if span is not None and token is not None:
                current_span.reset(token)
                span.set("rpc.grpc.status_code", code)
                span.end(f"status {code}" if code in _FAILURES else "")

    def _span(self, context: Context) -> Span | None:
        """The span of a call that is recorded."""
        assert self._tracer is not None
        metadata: Any = context.invocation_metadata() or ()
        given = next((value for name, value in metadata if name == "traceparent"), None)
        parent = parse_traceparent(given) if isinstance(given, str) else None
        if not self._tracer.samples(parent):
            return None
        service, _, method = self._name.partition("/")
        attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method}
        return self._tracer.record(f"gRPC {method}", parent=parent, kind="server", attributes=attributes)

    async def _abort(self, context: Context, error: Exception) -> None:
        if isinstance(error, HoldfastError):
            failure = failure_of(error)
        elif isinstance(error, BaseExceptionGroup) or not isinstance(error, grpc.RpcError | grpc.aio.AbortError):
            _log.error("%s failed", self._name, exc_info=error)
            failure = Failure(grpc.StatusCode.INTERNAL, "INTERNAL", "see the log of this server")
        else:
            raise error
        await context.abort(failure.code, failure.detail, failure.metadata)
