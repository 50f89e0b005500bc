"""Spans of Kafka requests: none and no call at all while traces are off; the right ones, ended, while they are on."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from uuid import UUID

from tests.support.kafka_wire import (
    FETCH,
    PRODUCE,
    KafkaGateway,
    WireClient,
    fetch_request,
    gateway_on,
    produce_request,
)

from holdfast.log.batches import Record, encode
from holdfast.vocabulary.tracing import Attributes, Span, SpanKind, TraceContext, parse_traceparent

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACING_FILES = ("vocabulary/tracing.py", "log/append_traces.py", "kafka/request_spans.py")
VERSION = 9


class RecordedSpan:
    def __init__(self, name: str, parent: TraceContext | None, span_id: int) -> None:
        self.name, self.parent, self.ended, self.error = name, parent, False, ""
        self.context = TraceContext(parent.trace_id if parent is not None else span_id, span_id, sampled=True)
        self.links: list[TraceContext] = []

    def set(self, name: str, value: str | int) -> None: ...

    def link(self, other: TraceContext) -> None:
        self.links.append(other)

    def end(self, error: str = "") -> None:
        self.ended, self.error = True, error


class RecordingTracer:
    """Records what follows a parent; begins nothing by chance."""

    def __init__(self) -> None:
        self.spans: list[RecordedSpan] = []

    def samples(self, parent: TraceContext | None) -> bool:
        return parent is not None and parent.sampled

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
        self.spans.append(RecordedSpan(name, parent, len(self.spans) + 1))
        return self.spans[-1]


@contextmanager
def calls_of_tracing() -> Iterator[list[str]]:
    """The functions of tracing that this thread, which the event loop runs in, calls in the body."""
    called: list[str] = []

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.endswith(TRACING_FILES):
            called.append(frame.f_code.co_name)

    sys.setprofile(profile)
    try:
        yield called
    finally:
        sys.setprofile(None)


def traced_batch(traceparent: str = PARENT) -> bytes:
    return encode([Record(0, 1_000, None, b"value", (("traceparent", traceparent.encode()),))])


async def produce_and_fetch(client: WireClient, *batches: bytes) -> None:
    for each in batches:
        request = produce_request("orders", {0: each}, topic_id=UUID(int=0))
        answer = await client.ask(PRODUCE, VERSION, request)
        assert answer.responses[0].partition_responses[0].error_code.value == 0
    await client.ask(FETCH, 11, fetch_request("orders", {0: 0}))


def trace(gateway: KafkaGateway) -> RecordingTracer:
    tracer = RecordingTracer()
    object.__setattr__(gateway.backend, "tracer", tracer)  # as the composition root gives it, before any connection
    return tracer


async def test_without_a_tracer_nothing_of_tracing_is_called(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        client = await gateway.client()
        await produce_and_fetch(client, traced_batch())
        with calls_of_tracing() as called:
            await produce_and_fetch(client, traced_batch(), traced_batch())
        assert called == []
        trace(gateway)  # the check can fail:
        with calls_of_tracing() as called:
            await produce_and_fetch(await gateway.client(), traced_batch())
        assert "find_traceparent" in called


async def test_a_request_follows_its_record_and_a_fetch_the_record_it_returns(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        tracer = trace(gateway)
        await produce_and_fetch(await gateway.client(), traced_batch())
    assert [(span.name, span.parent) for span in tracer.spans] == [
        ("kafka Produce", parse_traceparent(PARENT)),
        ("kafka Fetch", parse_traceparent(PARENT)),
    ]
    assert all(span.ended and not span.error for span in tracer.spans)


async def test_a_record_whose_caller_is_not_sampled_begins_nothing(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        tracer = trace(gateway)
        await produce_and_fetch(await gateway.client(), traced_batch(PARENT.removesuffix("01") + "00"))
    assert tracer.spans == []
