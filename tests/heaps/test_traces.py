"""A message carries the span that enqueued it to the one that works on it, with OpenTelemetry as programs use it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support.replicas import admins_of

from holdfast import heaps
from holdfast.heaps import tracing


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)  # of this test alone: the global one is set once
    yield exporter
    provider.shutdown()


@pytest_asyncio.fixture
async def client(tmp_path: Path) -> AsyncIterator[heaps.HeapClient]:
    async with admins_of(tmp_path, "ann") as admins, heaps.connect(f"127.0.0.1:{admins[0].gateway.port}") as client:
        await client.create("jobs")
        yield client


def worked(exporter: InMemorySpanExporter) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == "process jobs"]


async def test_work_is_a_child_of_the_span_that_enqueued(
    client: heaps.HeapClient, exported: InMemorySpanExporter
) -> None:
    with trace.get_tracer("shop").start_as_current_span("checkout") as checkout:
        await client.enqueue("jobs", b"charge", headers={"card": b"4711"})
    (message,) = await client.pop("jobs", wait=30)
    async with message:
        inside = trace.get_current_span().get_span_context()
    assert dict(message.headers).keys() == {"card", tracing.HEADER}
    (work,) = worked(exported)
    assert work.parent is not None
    assert (work.parent.trace_id, work.parent.span_id) == (
        checkout.get_span_context().trace_id,
        checkout.get_span_context().span_id,
    )
    assert work.context is not None
    assert work.context.span_id == inside.span_id
    assert work.kind is trace.SpanKind.CONSUMER
    assert work.attributes is not None
    assert work.attributes["messaging.message.id"] == message.id


async def test_a_failure_is_one_of_the_span_and_the_message_is_tried_again(
    client: heaps.HeapClient, exported: InMemorySpanExporter
) -> None:
    await client.enqueue_many("jobs", [heaps.NewMessage(payload=b"charge")])
    (message,) = await client.pop("jobs", wait=30)
    with pytest.raises(ValueError, match="declined"):
        async with message:
            raise ValueError("declined")
    (work,) = worked(exported)
    assert not work.status.is_ok
    assert work.parent is None, "nobody traced the enqueue"


async def test_a_parent_that_the_program_gave_is_kept(client: heaps.HeapClient, exported: InMemorySpanExporter) -> None:
    given = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with trace.get_tracer("shop").start_as_current_span("checkout"):
        await client.enqueue("jobs", b"charge", headers={tracing.HEADER: given})
    (message,) = await client.pop("jobs", wait=30)
    async with message:
        pass
    (work,) = worked(exported)
    assert work.parent is not None
    assert work.parent.span_id == 0xB7AD6B7169203331


async def test_without_opentelemetry_nothing_is_added(
    client: heaps.HeapClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "_API", "a module that nobody has imported")
    await client.enqueue("jobs", b"charge")
    (message,) = await client.pop("jobs", wait=30)
    async with message:
        assert message.headers == ()
