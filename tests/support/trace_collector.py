"""A collector of traces: OTLP over HTTP, decoded with OpenTelemetry's own protocol buffers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class ReceivedSpan:
    name: str
    trace: str
    span: str
    parent: str
    links: tuple[tuple[str, str], ...]
    attributes: dict[str, str]
    resource: dict[str, str]
    error: str


@dataclass
class TraceCollector:
    """What was received so far."""

    url: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)

    def named(self, name: str, **attributes: str) -> list[ReceivedSpan]:
        """The spans of this name with these attributes (`_` for `.`)."""
        wanted = {key.replace("_", "."): value for key, value in attributes.items()}.items()
        return [each for each in list(self.spans) if each.name == name and wanted <= each.attributes.items()]

    def receive(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            about = {each.key: _text(each.value) for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [
                    ReceivedSpan(
                        each.name,
                        each.trace_id.hex(),
                        each.span_id.hex(),
                        each.parent_span_id.hex(),
                        tuple((link.trace_id.hex(), link.span_id.hex()) for link in each.links),
                        {attribute.key: _text(attribute.value) for attribute in each.attributes},
                        about,
                        each.status.message,
                    )
                    for each in scope.spans
                ]


def _text(value: object) -> str:
    kind = value.WhichOneof("value")  # type: ignore[attr-defined]
    return str(getattr(value, kind))


@contextmanager
def trace_collector() -> Iterator[TraceCollector]:
    """A collector on a free port for the body."""
    collector = TraceCollector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            assert self.headers["content-type"] == "application/x-protobuf"
            collector.receive(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
