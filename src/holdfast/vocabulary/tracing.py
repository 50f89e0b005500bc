"""Traces: which pieces of work, here and elsewhere, belong to one request. Values and the contract of a tracer.

The one rule: who does the work holds a tracer or None, and with None calls nothing of this module. Whether a trace is recorded is
decided once, where it begins: whoever carries a parent follows it.
"""

import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Final, Literal, NamedTuple, Protocol

SpanKind = Literal["internal", "server", "client"]
Attributes = Mapping[str, str | int]

_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_TEXT_BYTES: Final = 55
_SAMPLED: Final = 1
# A record's header as it is in a batch: its name, the length of its value as a varint (55), and the first version of the format.
_HEADER: Final = b"traceparent" + bytes([2 * _TEXT_BYTES]) + b"00-"
_SEARCHED_BYTES: Final = 16 * 1024


class TraceContext(NamedTuple):
    """A span, as others refer to it. `sampled`: it is recorded, so that what it causes is to be."""

    trace_id: int
    span_id: int
    sampled: bool

    @property
    def traceparent(self) -> str:
        """As W3C Trace Context writes it, in HTTP and in headers of records."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(self.sampled):02x}"


def parse_traceparent(text: str) -> TraceContext | None:
    """The span that a header names; None: it names none."""
    found = _TRACEPARENT.fullmatch(text)
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return None
    trace_id, span_id = int(found[2], 16), int(found[3], 16)
    if not trace_id or not span_id:
        return None
    return TraceContext(trace_id, span_id, bool(int(found[4], 16) & _SAMPLED))


def find_traceparent(batches: bytes | bytearray | memoryview) -> TraceContext | None:
    """The first span that a header of a record names, in the first 16 KiB. Records that are compressed show none.

    One search in memory: records are not parsed.
    """
    data = bytes(batches[:_SEARCHED_BYTES]) if isinstance(batches, memoryview) else batches
    at = data.find(_HEADER, 0, _SEARCHED_BYTES)
    if at < 0:
        return None
    begin = at + len(_HEADER) - len(b"00-")
    return parse_traceparent(bytes(data[begin : begin + _TEXT_BYTES]).decode("latin-1"))


class Span(Protocol):
    """Recorded work, from its start to `end`."""

    @property
    def context(self) -> TraceContext:
        """What others refer to it by."""
        ...

    def set(self, name: str, value: str | int) -> None:
        """Add an attribute."""
        ...

    def link(self, other: TraceContext) -> None:
        """It has to do with that one, which did not cause it."""
        ...

    def end(self, error: str = "") -> None:
        """It is over; the first call counts."""
        ...


class Tracer(Protocol):
    """Makes spans."""

    def samples(self, parent: TraceContext | None) -> bool:
        """Whether to record a request: if its parent is or, without one, by chance. Asked before anything is made for a span."""
        ...

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
        """A span whose trace is recorded. `ago_ns`: how long ago it started."""
        ...


current_span: Final[ContextVar[Span | None]] = ContextVar("current_span", default=None)
