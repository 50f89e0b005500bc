"""Traces of the SDK, for programs that use OpenTelemetry: a message carries the span that enqueued it, and work on it is a span.

Nothing is to be switched on: a program that has set up OpenTelemetry has imported it. In one that has not, this does nothing.
"""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from holdfast.vocabulary.tracing import TraceContext, parse_traceparent

if TYPE_CHECKING:
    from holdfast.heap.model import NewMessage
    from holdfast.heap.records import Headers
    from holdfast.heaps.message import Message

HEADER: Final = "traceparent"
_API: Final = "opentelemetry.trace"
_TRACER: Final = "holdfast.heaps"


def traced(messages: "Sequence[NewMessage]") -> "Sequence[NewMessage]":
    """The messages with the current span in their headers, unless they have one there."""
    api: Any = sys.modules.get(_API)
    if api is None or not (current := api.get_current_span().get_span_context()).is_valid:
        return messages
    context = TraceContext(current.trace_id, current.span_id, bool(current.trace_flags.sampled))
    header = (HEADER, context.traceparent.encode())
    return [
        each if any(name == HEADER for name, _ in each.headers) else replace(each, headers=(*each.headers, header))
        for each in messages
    ]


def work_on(message: "Message") -> AbstractContextManager[Any] | None:
    """The current span of the work on a message, a child of the one that enqueued it. It ends with the context manager."""
    api: Any = sys.modules.get(_API)
    if api is None:
        return None
    attributes = {
        "messaging.system": "holdfast",
        "messaging.operation.type": "process",
        "messaging.destination.name": message.topic,
        "messaging.destination.partition.id": str(message.partition),
        "messaging.message.id": message.id,
    }
    span: AbstractContextManager[Any] = api.get_tracer(_TRACER).start_as_current_span(
        f"process {message.topic}",
        context=_context(api, message.headers),
        kind=api.SpanKind.CONSUMER,
        attributes=attributes,
    )
    return span


def _context(api: Any, headers: "Headers") -> Any:
    """None: the current one."""
    parent = next(
        (parse_traceparent((value or b"").decode("latin-1")) for name, value in headers if name == HEADER), None
    )
    if parent is None:
        return None
    flags = api.TraceFlags(api.TraceFlags.SAMPLED if parent.sampled else api.TraceFlags.DEFAULT)
    remote = api.SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=flags)
    return api.set_span_in_context(api.NonRecordingSpan(remote))
