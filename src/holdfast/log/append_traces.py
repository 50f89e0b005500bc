"""Spans of appends, from the request to the group commit, and the uploads that are linked to them.

The one rule: it exists only where traces are on. What it remembers of appends that are not published is bounded, and what is
forgotten costs a link, nothing else.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from holdfast.log.model import OnDurable, PartitionId
from holdfast.vocabulary.tracing import Span, TraceContext, Tracer

_KEPT_MAX: Final = 16  # of one partition
_PARTITIONS_MAX: Final = 4_096
_LINKS_MAX: Final = 64

UploadedRange = tuple[PartitionId, int]  # and where it ends


class AppendTraces:
    """The spans of one agent's log."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._unpublished: dict[PartitionId, deque[tuple[int, TraceContext]]] = {}

    def append(self, partition: PartitionId, base_offset: int, end_offset: int, parents: Sequence[Span]) -> Span:
        """Records have their offsets; the span ends when they are durable. The first parent has caused it."""
        first, *others = (each.context for each in parents)
        span = self._tracer.record(
            "log append",
            parent=first,
            links=others,
            attributes={
                "messaging.destination.name": partition.topic,
                "messaging.destination.partition.id": str(partition.number),
                "messaging.kafka.offset": base_offset,
                "holdfast.records": end_offset - base_offset,
            },
        )
        if partition not in self._unpublished and len(self._unpublished) >= _PARTITIONS_MAX:
            del self._unpublished[next(iter(self._unpublished))]
        self._unpublished.setdefault(partition, deque(maxlen=_KEPT_MAX)).append((end_offset, span.context))
        return span

    @contextmanager
    def uploading(self, key: str, size_bytes: int, ranges: Iterable[UploadedRange]) -> Iterator[None]:
        """The upload of what these ranges hold, linked to their appends; nothing if none of them was traced."""
        ranges = list(ranges)
        links = [
            context
            for partition, end_offset in ranges
            for end, context in self._unpublished.get(partition, ())
            if end <= end_offset
        ]
        if not links:
            yield
            return
        span = self._tracer.record(
            "object upload",
            parent=links[0] if len({each.trace_id for each in links}) == 1 else None,
            links=links[:_LINKS_MAX],
            kind="client",
            attributes={"holdfast.object.key": key, "holdfast.object.bytes": size_bytes},
        )
        try:
            yield
        except BaseException as error:
            span.end(type(error).__name__)
            raise
        span.end()
        for partition, end_offset in ranges:
            self._forget(partition, end_offset)

    def _forget(self, partition: PartitionId, end_offset: int) -> None:
        kept = self._unpublished.get(partition)
        while kept and kept[0][0] <= end_offset:
            kept.popleft()
        if not kept:
            self._unpublished.pop(partition, None)


def ending(span: Span, on_durable: OnDurable) -> OnDurable:
    """`on_durable` that ends the span first."""

    def ended(error: BaseException | None) -> None:
        span.end(type(error).__name__ if error is not None else "")
        on_durable(error)

    return ended
