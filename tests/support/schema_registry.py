"""A schema registry with Confluent's HTTP API on a port of its own: what a pipeline asks for, and how it fails."""

import itertools
import json
import os
import threading
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from holdfast.pipeline.model.definition import SchemaRegistry

USER, PASSWORD = "reader", "s3cret"
_numbers = itertools.count(1)


@dataclass
class RegistryServer:
    url: str = ""
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[tuple[str, int], int] = field(default_factory=dict)
    status: int = 200
    """What every request is answered with instead, unless it is 200."""
    body: bytes = b"<html>a secret of another service</html>"
    with_auth: bool = False
    drips: bool = False
    """Answers come byte by byte, and stop before their end."""
    asked: Counter[str] = field(default_factory=Counter)

    @property
    def config(self) -> SchemaRegistry:
        return SchemaRegistry(
            url=self.url, user=USER if self.with_auth else "", password=PASSWORD if self.with_auth else ""
        )

    def register(self, schema: Any, kind: str = "AVRO", *, subject: str = "", references: Any = ()) -> int:
        number = len(self.schemas) + 1
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self.schemas[number] = {"schema": text, "schemaType": kind, "references": list(references)}
        if kind == "AVRO":
            del self.schemas[number]["schemaType"]  # as the real one leaves it out
        if subject:
            self.subjects[subject, 1 + sum(1 for name, _ in self.subjects if name == subject)] = number
        return number

    def answer(self, path: str, authorization: str) -> tuple[int, bytes]:
        self.asked[path] += 1
        if self.status != 200:
            return self.status, self.body
        if self.with_auth and authorization != "Basic " + b64encode(f"{USER}:{PASSWORD}".encode()).decode():
            return 401, _error(40101, "Unauthorized")
        match [unquote(step) for step in path.partition("?")[0].strip("/").split("/")]:
            case ["schemas", "types"]:
                return 200, b'["JSON", "PROTOBUF", "AVRO"]'
            case ["schemas", "ids", number]:
                found = self.schemas.get(int(number))
                return (404, _error(40403, "Schema not found")) if found is None else (200, json.dumps(found).encode())
            case ["subjects", subject, "versions", version]:
                known = self.subjects.get((subject, int(version)))
                if known is None:
                    return 404, _error(40402, "Version not found.")
                return 200, json.dumps({"subject": subject, "id": known, **self.schemas[known]}).encode()
        return 404, _error(404, "HTTP 404 Not Found")


def _error(code: int, message: str) -> bytes:
    return json.dumps({"error_code": code, "message": message}).encode()


def _drip(file: Any) -> None:
    paused = threading.Event()
    with suppress(OSError):  # the client has gone
        for _ in range(200):
            file.write(b" ")
            paused.wait(0.02)


@contextmanager
def schema_registry(*, with_auth: bool = False) -> Iterator[RegistryServer]:
    """Serving until the block ends; connections are refused then."""
    registry, base = RegistryServer(with_auth=with_auth), f"/r{os.getpid()}-{next(_numbers)}"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = registry.answer(self.path.removeprefix(base), self.headers.get("authorization", ""))
            self.send_response(status)
            self.send_header("content-type", "application/vnd.schemaregistry.v1+json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if registry.drips:
                _drip(self.wfile)
            else:
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False  # closing the server waits for them
    # Clients keep schemas for as long as their process lives, and ports are used again: every registry has a URL of its own.
    registry.url = f"http://127.0.0.1:{server.server_port}{base}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def framed(number: int, value: bytes) -> bytes:
    """A value in Confluent's wire format."""
    return b"\0" + number.to_bytes(4, "big") + value
