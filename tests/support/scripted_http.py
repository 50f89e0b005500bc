"""A server that answers HTTP requests with what a test wrote down: for answers that real servers give only on bad days."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class RecordedRequest:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class ScriptedAnswer:
    status: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    declared: int | None = None  # a length that is not true


def error(status: str, code: str = "") -> ScriptedAnswer:
    return ScriptedAnswer(status, f"<Error><Code>{code}</Code></Error>".encode() if code else b"")


EMPTY_LIST = ScriptedAnswer(
    "200 OK",
    b'<?xml version="1.0"?><ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated></ListBucketResult>',
)
PUT_DONE = ScriptedAnswer("200 OK", headers={"etag": '"1"', "x-goog-generation": "1"})

Decide = Callable[[RecordedRequest], ScriptedAnswer | None]  # None: no answer, ever


class ScriptedServer:
    """Requests as they came, and the port they came to."""

    def __init__(self, decide: Decide) -> None:
        self.decide = decide
        self.requests: list[RecordedRequest] = []
        self.port = 0
        self._links: set[asyncio.Task[None]] = set()

    @property
    def methods(self) -> list[str]:
        return [request.method for request in self.requests]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *rest = head.decode().split("\r\n")
                method, path, _ = first.split(" ")
                headers = {
                    name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest if line)
                }
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                request = RecordedRequest(method, path, headers, body)
                self.requests.append(request)
                answer = self.decide(request)
                if answer is None:
                    await reader.read()  # until the client gives up
                    return
                length = len(answer.body) if answer.declared is None else answer.declared
                shown = {
                    "content-length": str(length),
                    "last-modified": "Wed, 21 Oct 2015 07:28:00 GMT",
                    **answer.headers,
                }
                lines = "".join(f"{name}: {value}\r\n" for name, value in shown.items())
                writer.write(f"HTTP/1.1 {answer.status}\r\n{lines}\r\n".encode())
                writer.write(b"" if method == "HEAD" else answer.body)
                await writer.drain()
                if answer.declared is not None:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.ensure_future(self.serve(reader, writer))
        self._links.add(link)
        link.add_done_callback(lambda _: writer.transport.abort())  # also if it is cancelled before it begins
        link.add_done_callback(self._links.discard)


@asynccontextmanager
async def scripted_server(decide: Decide) -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer(decide)
    listening = await asyncio.start_server(server.accept, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        links = list(server._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)
