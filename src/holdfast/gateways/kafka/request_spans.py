"""Spans of Kafka requests: where traces enter and leave by the headers of records. Called only if traces are on.

A Produce request follows the first `traceparent` in the headers of its records. The protocol has no place for one in a Fetch: it is
a part of the trace of the first sampled record that it returns, linked to the others, or by chance a trace of its own.
"""

from collections.abc import Sequence
from typing import Final

from holdfast.gateways.kafka.api import RequestContext
from holdfast.gateways.kafka.fetch_reader import PartitionFetch
from holdfast.kafka.api_keys import ApiKey
from holdfast.vocabulary.tracing import Span, TraceContext, Tracer, find_traceparent

_LINKS_MAX: Final = 8


def begin_request_span(
    tracer: Tracer, call: RequestContext, body: bytes | bytearray | memoryview, count: int
) -> Span | None:
    """The span of a request, or of a run of `count`; None: it is not traced."""
    parent = find_traceparent(body) if call.api.key is ApiKey.PRODUCE else None
    if not tracer.samples(parent):
        return None
    return tracer.record(
        f"kafka {call.api.name}", parent=parent, kind="server", attributes=_attributes(call, holdfast_requests=count)
    )


def trace_fetch(tracer: Tracer, call: RequestContext, reads: Sequence[PartitionFetch], began_ago_ns: int) -> None:
    """Note what a Fetch returns: in its span, or in one that follows a sampled record."""
    links: list[TraceContext] = []
    for read in reads:
        if len(links) < _LINKS_MAX and read.batches:
            found = find_traceparent(memoryview(read.batches[0]))
            if found is not None and found.sampled:
                links.append(found)
    span = call.span
    if span is None:
        if not links:
            return
        span = call.span = tracer.record(
            f"kafka {call.api.name}",
            parent=links[0],
            links=links[1:],
            kind="server",
            attributes=_attributes(call, holdfast_requests=1),
            ago_ns=began_ago_ns,
        )
    else:
        for each in links:
            span.link(each)
    span.set("holdfast.partitions", len(reads))
    span.set("holdfast.bytes", sum(read.size for read in reads))


def _attributes(call: RequestContext, *, holdfast_requests: int) -> dict[str, str | int]:
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": call.api.name,
        "messaging.client.id": call.client_id,
        "client.address": call.peer.host,
        "messaging.kafka.version": call.version,
        "messaging.kafka.correlation_id": call.correlation,
        "holdfast.requests": holdfast_requests,
    }
