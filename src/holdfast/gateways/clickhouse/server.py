"""ClickHouse's HTTP interface: a thread per connection, a statement per request.

GET|POST /            a statement, in `query=` or in the body; without one: Ok.
GET /ping             Ok., as long as the process lives
GET /replicas_status  Ok.: there are no replicas that could be behind
"""

import json
import logging
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from holdfast.gateways.clickhouse.answers import Answer, content_type
from holdfast.gateways.clickhouse.blocks import from_blocks
from holdfast.gateways.clickhouse.body import Body, limited
from holdfast.gateways.clickhouse.compression import BLOCKS, chosen, packed, unpacked
from holdfast.gateways.clickhouse.engine import Engine
from holdfast.gateways.clickhouse.errors import (
    BAD_ARGUMENTS,
    UNKNOWN_EXCEPTION,
    UNKNOWN_ROLE,
    QueryError,
    refusal,
)
from holdfast.gateways.clickhouse.executing import Executor, Request
from holdfast.gateways.clickhouse.killing import replace
from holdfast.gateways.clickhouse.running import Registry, Running
from holdfast.gateways.clickhouse.settings import ClickHouseSettings
from holdfast.gateways.clickhouse.users import user_of
from holdfast.vocabulary.clock import Chance, Clock
from holdfast.vocabulary.errors import InvalidError

_log: Final = logging.getLogger(__name__)

# Parameters that are not settings of the engine.
_OWN: Final = frozenset(
    {
        *("query", "database", "default_format", "query_id", "session_id", "session_timeout", "session_check", "role"),
        *("user", "password", "quota_key", "stacktrace", "compress", "decompress", "buffer_size", "wait_end_of_query"),
        *("client_protocol_version", "close_session", "replace_running_query"),
    }
)
_UNCHECKED: Final = "http_native_compression_disable_checksumming_on_decompress"
_DRAIN_BYTES: Final = 1 << 20  # of a refused request's body, read so that the connection can go on


class ClickHouseServer(ThreadingHTTPServer):
    """Listens, and has a thread for each connection."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, listening: socket.socket, engine: Engine, settings: ClickHouseSettings, *, clock: Clock, chance: Chance
    ) -> None:
        super().__init__(listening.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.settings, self.chance, self.engine = settings, chance, engine
        self.registry = Registry(settings, clock=clock, chance=chance)
        self.executor = Executor(engine, self.registry, settings, clock=clock)
        self._seats = threading.BoundedSemaphore(settings.connections_max)

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """A thread for the connection, if there is room for another."""
        if not self._seats.acquire(blocking=False):
            _log.warning("more than %d connections: one was refused", self.settings.connections_max)
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        """Serve the connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._seats.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that broke is its client's business; the log says so at the level for that."""
        _log.debug("connection of %s broke", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: ClickHouseServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 64 * 1024

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.settings.idle_ms / 1000)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name in the base class)
        _log.debug("%s", format % args)

    def do_GET(self) -> None:
        self._serve(reads_only=True)

    def do_HEAD(self) -> None:
        self._plain(200, b"")

    def do_POST(self) -> None:
        self._serve(reads_only=False)

    def _serve(self, *, reads_only: bool) -> None:
        address = urlsplit(self.path)
        parameters = dict(parse_qsl(address.query, keep_blank_values=True, encoding="utf-8", errors="surrogateescape"))
        self._begun = False
        self._body = Body(self.rfile, None, chunked=False)
        try:
            self._body = self._request_body()
            if address.path in ("/ping", "/replicas_status"):
                self._plain(200, b"Ok.\n")
            elif address.path not in ("", "/"):
                self._plain(404, f"There is no handle {address.path}\n\nUse / or /ping.\n".encode())
            elif reads_only and "query" not in parameters:
                self._plain(200, b"Ok.\n")
            else:
                self._query(parameters, reads_only=reads_only)
        except QueryError as error:
            self._fail(error)
        except InvalidError as error:
            self._fail(refusal(BAD_ARGUMENTS, str(error)))
        except (ConnectionError, TimeoutError):
            self.close_connection = True
        except Exception as error:
            _log.exception("a request failed")
            self._fail(refusal(UNKNOWN_EXCEPTION, f"{type(error).__name__}: {error}"))
        finally:
            self._drain()

    def _request_body(self) -> Body:
        coding = self.headers.get("Transfer-Encoding", "").lower()
        if coding not in ("", "identity", "chunked"):
            raise refusal(BAD_ARGUMENTS, f"Transfer-Encoding {coding} is not known: allowed is chunked")
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal():
            self.close_connection = True
            raise refusal(BAD_ARGUMENTS, f"Content-Length {length!r} is not a number")
        return Body(self.rfile, int(length), chunked=coding == "chunked")

    def _query(self, parameters: Mapping[str, str], *, reads_only: bool) -> None:
        server = self.server
        user = user_of(self.headers, parameters, server.settings.users)
        self._query_id = parameters.get("query_id") or self.headers.get("X-ClickHouse-Query-Id") or _uuid(server.chance)
        if parameters.get("role"):
            raise refusal(UNKNOWN_ROLE, f"There is no role `{parameters['role']}`: there are none here")
        if parameters.get("replace_running_query", "0") == "1":
            replace(server.engine, server.registry, self._query_id)
        request = self._request(parameters, user, reads_only=reads_only)
        with server.registry.entered(self._query_id, user) as one:
            one.on_cancel, one.on_insist = self._stop_reading, self._break_off
            with server.executor.answer(request, one) as answer:
                complete = self._streamed(answer, self._encoding(parameters), one)
        if parameters.get("close_session", "0") == "1":
            server.executor.sessions.forget(request.session_id)
        # The client must not see the end before its id and its session are free again: it may use them at once.
        if complete is None:
            self._plain(200, answer.whole or b"", content_type(answer.format), self._described(answer))
        elif complete:
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()

    def _request(self, parameters: Mapping[str, str], user: str, *, reads_only: bool) -> Request:
        own = {name: value for name, value in parameters.items() if name in _OWN}
        given = {
            name: value for name, value in parameters.items() if name not in _OWN and not name.startswith("param_")
        }
        pieces = unpacked(self._body.pieces(), self.headers.get("Content-Encoding", ""))
        if own.get("decompress", "0") == "1":
            pieces = from_blocks(pieces, check=given.get(_UNCHECKED, "0") != "1")
        return Request(
            query=own.get("query", "").encode(errors="surrogateescape"),
            body=limited(pieces, self.server.settings.body_bytes_max),
            user=user,
            query_id=self._query_id,
            database=own.get("database") or self.headers.get("X-ClickHouse-Database") or "",
            default_format=own.get("default_format") or self.headers.get("X-ClickHouse-Format") or "",
            settings=given,
            parameters={
                name[len("param_") :]: value for name, value in parameters.items() if name.startswith("param_")
            },
            session_id=own.get("session_id", ""),
            session_ms=_seconds(own.get("session_timeout", "60")) * 1000,
            session_check=own.get("session_check", "0") == "1",
            reads_only=reads_only,
            whole=own.get("wait_end_of_query", "0") == "1" or self.request_version < "HTTP/1.1",
        )

    def _encoding(self, parameters: Mapping[str, str]) -> str:
        if self.request_version < "HTTP/1.1":
            return ""  # it has no chunks
        if parameters.get("compress", "0") == "1":
            return BLOCKS
        if parameters.get("enable_http_compression", "0") not in ("1", "true"):
            return ""
        return chosen(self.headers.get("Accept-Encoding", ""))

    def _streamed(self, answer: Answer, encoding: str, one: Running) -> bool | None:
        """Send all but the last chunk of an answer that is sent in chunks, and say if it is complete; None: it is not sent so."""
        if answer.whole is not None and not encoding:
            return None
        tag = self.server.chance.token()[:16]
        packing = {"Content-Encoding": encoding} if encoding not in ("", BLOCKS) else {}
        headers = {**self._described(answer), **packing, "X-ClickHouse-Exception-Tag": tag}
        self._head(200, content_type(answer.format), {**headers, "Transfer-Encoding": "chunked"})
        failure: list[QueryError] = []
        for piece in packed(_to_the_end(answer.pieces, failure, tag), encoding):
            if piece:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        if failure:
            _log.info("query %s failed in the middle of its answer: %s", one.query_id, failure[0])
            self.close_connection = True  # without the last chunk, so that nobody takes the answer for a whole one
        self.wfile.flush()
        return not failure

    def _described(self, answer: Answer) -> dict[str, str]:
        headers = {"X-ClickHouse-Format": answer.format}
        if answer.figures:
            headers["X-ClickHouse-Summary"] = json.dumps({name: str(value) for name, value in answer.figures.items()})
        return headers

    def _head(self, status: int, kind: str, headers: Mapping[str, str]) -> None:
        self._begun = True
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("X-ClickHouse-Server-Display-Name", self.server.engine.host)
        self.send_header("X-ClickHouse-Timezone", self.server.engine.timezone)
        if query_id := getattr(self, "_query_id", ""):
            self.send_header("X-ClickHouse-Query-Id", _header(query_id))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _plain(
        self,
        status: int,
        body: bytes,
        kind: str = "text/plain; charset=UTF-8",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._head(status, kind, {**(headers or {}), "Content-Length": str(len(body))})
        self.wfile.write(body)
        self.wfile.flush()

    def _fail(self, error: QueryError) -> None:
        if self._begun:
            self.close_connection = True
            return
        body = f"{error.text} (version {self.server.engine.version} (chDB))\n".encode(errors="replace")
        with suppress(OSError):
            self._plain(error.status, body, headers={"X-ClickHouse-Exception-Code": str(error.code)})

    def _drain(self) -> None:
        """Read what a refused request still brings, or give the connection up."""
        self._query_id = ""
        try:
            for _ in limited(self._body.pieces() if not self._body.finished else iter(()), _DRAIN_BYTES):
                pass
        except (QueryError, OSError, ValueError):
            self.close_connection = True

    def _stop_reading(self) -> None:
        if not self._body.finished:
            self.connection.shutdown(socket.SHUT_RD)

    def _break_off(self) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)


def _to_the_end(pieces: Iterator[bytes], failure: list[QueryError], tag: str) -> Iterator[bytes]:
    """The pieces, and behind them, if it comes to that, why there are no more."""
    try:
        yield from pieces
    except QueryError as error:
        failure.append(error)
        text = error.text.encode()
        yield b"\r\n__exception__\r\n%b\r\n%b\n%d %b\r\n__exception__\r\n" % (
            tag.encode(),
            text,
            len(text),
            tag.encode(),
        )


def _seconds(text: str) -> int:
    if not text.isdecimal():
        raise refusal(BAD_ARGUMENTS, f"session_timeout cannot be {text!r}: allowed is a number of seconds")
    return int(text)


def _header(text: str) -> str:
    return "".join(sign if sign.isprintable() and ord(sign) < 256 else "?" for sign in text)


def _uuid(chance: Chance) -> str:
    digits = (chance.token() + chance.token())[:32]
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
