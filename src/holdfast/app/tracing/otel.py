"""The tracer on OpenTelemetry's SDK: its spans, ids and OTLP; the queue is ours. Importing this imports the SDK (extra `otel`)."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from holdfast import __version__
from holdfast.app.tracing.settings import TraceSettings
from holdfast.app.tracing.span_queue import SpanQueue
from holdfast.vocabulary.clock import wall_ns
from holdfast.vocabulary.random import fast_share
from holdfast.vocabulary.tracing import Attributes, Span, SpanKind, TraceContext

_KINDS: Final = {
    "internal": trace.SpanKind.INTERNAL,
    "server": trace.SpanKind.SERVER,
    "client": trace.SpanKind.CLIENT,
}


class OtelSpan:
    """A span of the SDK. Implements `Span`."""

    __slots__ = ("_span", "context")

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        found = span.get_span_context()
        self.context = TraceContext(found.trace_id, found.span_id, sampled=True)

    def set(self, name: str, value: str | int) -> None:
        self._span.set_attribute(name, value)

    def link(self, other: TraceContext) -> None:
        self._span.add_link(_span_context(other))

    def end(self, error: str = "") -> None:
        if not self._span.is_recording():
            return
        if error:
            self._span.set_status(trace.Status(trace.StatusCode.ERROR, error))
        self._span.end()


class OtelTracer:
    """Implements `Tracer`. The decision is made here, before a span exists: what is not recorded costs a number."""

    def __init__(self, tracer: trace.Tracer, *, ratio: float) -> None:
        self._tracer, self._ratio = tracer, ratio

    def samples(self, parent: TraceContext | None) -> bool:
        return parent.sampled if parent is not None else fast_share() < self._ratio

    def record(
        self,
        name: str,
        *,
        parent: TraceContext | None = None,
        links: Sequence[TraceContext] = (),
        kind: SpanKind = "internal",
        attributes: Attributes,
        ago_ns: int = 0,
    ) -> Span:
        above = trace.INVALID_SPAN if parent is None else trace.NonRecordingSpan(_span_context(parent))
        return OtelSpan(
            self._tracer.start_span(
                name,
                trace.set_span_in_context(above),
                kind=_KINDS[kind],
                attributes=attributes,
                links=[trace.Link(_span_context(each)) for each in links],
                start_time=wall_ns() - ago_ns,
            )
        )


def _span_context(context: TraceContext) -> trace.SpanContext:
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if context.sampled else trace.TraceFlags.DEFAULT)
    return trace.SpanContext(context.trace_id, context.span_id, is_remote=True, trace_flags=flags)


class _Queueing(SpanProcessor):
    """Queues what has ended."""

    def __init__(self, queue: SpanQueue[ReadableSpan]) -> None:
        self._queue = queue

    def on_end(self, span: ReadableSpan) -> None:
        self._queue.add(span)


class Exporting:
    """A tracer and the queue behind it."""

    def __init__(self, tracer: OtelTracer, queue: SpanQueue[ReadableSpan]) -> None:
        self.tracer, self.queue = tracer, queue


@asynccontextmanager
async def exporting(settings: TraceSettings, *, instance: str) -> AsyncIterator[Exporting]:
    """Traces for the body. Leaving sends what is queued, for `stop_ms` at most."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # the queue says once what its retries say each time
    exporter = OTLPSpanExporter(endpoint=settings.endpoint(), timeout=settings.timeout_ms / 1000)
    queue: SpanQueue[ReadableSpan] = SpanQueue(
        lambda batch: exporter.export(batch) is SpanExportResult.SUCCESS,
        queue_max=settings.queue_max,
        batch_max=settings.batch_max,
        interval_s=settings.interval_ms / 1000,
    )
    resource = Resource.create(
        {"service.name": "holdfast", "service.version": __version__, "service.instance.id": instance}
    )
    provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(_Queueing(queue))
    queue.start()
    try:
        yield Exporting(OtelTracer(provider.get_tracer("holdfast", __version__), ratio=settings.ratio), queue)
    finally:
        await asyncio.to_thread(queue.stop, settings.stop_ms / 1000)
        exporter.shutdown()  # type: ignore[no-untyped-call]
