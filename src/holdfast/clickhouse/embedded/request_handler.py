"""ClickHouse's HTTP interface: one connection, a statement per request.

GET|POST /            a statement, in `query=` or in the body; without one: Ok.
GET /ping             Ok., as long as the process lives
GET /replicas_status  Ok.: there are no replicas that could lag
"""

import json
import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit

from holdfast.clickhouse.embedded.authentication import authenticate
from holdfast.clickhouse.embedded.compressed_blocks import decompress_blocks
from holdfast.clickhouse.embedded.content_encoding import (
    CLICKHOUSE_BLOCKS,
    compressed_body,
    decompressed_body,
    negotiated_encoding,
)
from holdfast.clickhouse.embedded.engine import random_uuid
from holdfast.clickhouse.embedded.errors import QueryError, query_error
from holdfast.clickhouse.embedded.executor import QueryRequest
from holdfast.clickhouse.embedded.kill_query import replace_running_query
from holdfast.clickhouse.embedded.request_body import BodyReader, limited
from holdfast.clickhouse.embedded.results import QueryResult, content_type
from holdfast.clickhouse.embedded.running_queries import RunningQuery
from holdfast.clickhouse.error_codes import ClickHouseErrorCode
from holdfast.vocabulary.errors import InvalidError

if TYPE_CHECKING:
    from holdfast.clickhouse.embedded.server import ClickHouseHttpServer

_log: Final = logging.getLogger(__name__)

# Parameters that are not settings of the engine.
_PROTOCOL_PARAMETERS: Final = frozenset(
    {
        *("query", "database", "default_format", "query_id", "session_id", "session_timeout", "session_check", "role"),
        *("user", "password", "quota_key", "stacktrace", "compress", "decompress", "buffer_size", "wait_end_of_query"),
        *("client_protocol_version", "close_session", "replace_running_query"),
    }
)
_SKIP_CHECKSUM_SETTING: Final = "http_native_compression_disable_checksumming_on_decompress"
_DRAIN_BYTES: Final = 1 << 20  # of a rejected request's body, read so that the connection can be reused


class RequestHandler(BaseHTTPRequestHandler):
    """One connection and its requests, one after the other."""

    server: "ClickHouseHttpServer"
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 64 * 1024

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.settings.idle_ms / 1000)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name in the base class)
        _log.debug("%s", format % args)

    def do_GET(self) -> None:
        self._serve(read_only=True)

    def do_HEAD(self) -> None:
        self._send_plain(200, b"")

    def do_POST(self) -> None:
        self._serve(read_only=False)

    def _serve(self, *, read_only: bool) -> None:
        address = urlsplit(self.path)
        parameters = dict(parse_qsl(address.query, keep_blank_values=True, encoding="utf-8", errors="surrogateescape"))
        self._headers_sent = False
        self._body = BodyReader(self.rfile, None, chunked=False)
        try:
            self._body = self._request_body()
            if address.path in ("/ping", "/replicas_status"):
                self._send_plain(200, b"Ok.\n")
            elif address.path not in ("", "/"):
                self._send_plain(404, f"There is no handle {address.path}\n\nUse / or /ping.\n".encode())
            elif read_only and "query" not in parameters:
                self._send_plain(200, b"Ok.\n")
            else:
                self._query(parameters, read_only=read_only)
        except QueryError as error:
            self._send_error(error)
        except InvalidError as error:
            self._send_error(query_error(ClickHouseErrorCode.BAD_ARGUMENTS, str(error)))
        except (ConnectionError, TimeoutError) as error:
            _log.debug("client %s disconnected: %s", self.client_address, error)
            self.close_connection = True
        except Exception as error:
            _log.exception("request of %s failed", self.client_address)
            self._send_error(query_error(ClickHouseErrorCode.UNKNOWN_EXCEPTION, f"{type(error).__name__}: {error}"))
        finally:
            self._drain()

    def _request_body(self) -> BodyReader:
        coding = self.headers.get("Transfer-Encoding", "").lower()
        if coding not in ("", "identity", "chunked"):
            raise query_error(
                ClickHouseErrorCode.BAD_ARGUMENTS, f"invalid Transfer-Encoding {coding!r}: must be chunked"
            )
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal():
            self.close_connection = True
            raise query_error(ClickHouseErrorCode.BAD_ARGUMENTS, f"invalid Content-Length {length!r}: must be a number")
        return BodyReader(self.rfile, int(length), chunked=coding == "chunked")

    def _query(self, parameters: Mapping[str, str], *, read_only: bool) -> None:
        server = self.server
        user = authenticate(self.headers, parameters, server.settings.users)
        self._query_id = (
            parameters.get("query_id") or self.headers.get("X-ClickHouse-Query-Id") or random_uuid(server.random)
        )
        if parameters.get("role"):
            raise query_error(
                ClickHouseErrorCode.UNKNOWN_ROLE, f"There is no role `{parameters['role']}`: there are none here"
            )
        if parameters.get("replace_running_query", "0") == "1":
            replace_running_query(server.engine, server.registry, self._query_id)
        request = self._request(parameters, user, read_only=read_only)
        with server.registry.register(self._query_id, user) as running:
            running.on_cancel, running.on_disconnect = self._stop_reading, self._abort_connection
            with server.executor.execute(request, running) as result:
                complete = self._send_chunks(result, self._encoding(parameters), running)
        if parameters.get("close_session", "0") == "1":
            server.executor.sessions.forget(request.session_id)
        # The response ends after its query id and its session are free: the client may reuse them at once.
        if complete is None:
            self._send_plain(200, result.body or b"", content_type(result.format), self._result_headers(result))
        elif complete:
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()

    def _request(self, parameters: Mapping[str, str], user: str, *, read_only: bool) -> QueryRequest:
        own = {name: value for name, value in parameters.items() if name in _PROTOCOL_PARAMETERS}
        given = {
            name: value
            for name, value in parameters.items()
            if name not in _PROTOCOL_PARAMETERS and not name.startswith("param_")
        }
        pieces = decompressed_body(self._body.pieces(), self.headers.get("Content-Encoding", ""))
        if own.get("decompress", "0") == "1":
            pieces = decompress_blocks(pieces, check=given.get(_SKIP_CHECKSUM_SETTING, "0") != "1")
        return QueryRequest(
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
            read_only=read_only,
            buffered=own.get("wait_end_of_query", "0") == "1" or self.request_version < "HTTP/1.1",
        )

    def _encoding(self, parameters: Mapping[str, str]) -> str:
        if self.request_version < "HTTP/1.1":
            return ""  # it has no chunked encoding
        if parameters.get("compress", "0") == "1":
            return CLICKHOUSE_BLOCKS
        if parameters.get("enable_http_compression", "0") not in ("1", "true"):
            return ""
        return negotiated_encoding(self.headers.get("Accept-Encoding", ""))

    def _send_chunks(self, result: QueryResult, encoding: str, running: RunningQuery) -> bool | None:
        """Send all but the last chunk; whether the result is complete. None: it is not sent in chunks, and nothing was sent."""
        if result.body is not None and not encoding:
            return None
        tag = self.server.random.token()[:16]
        packing = {"Content-Encoding": encoding} if encoding not in ("", CLICKHOUSE_BLOCKS) else {}
        headers = {**self._result_headers(result), **packing, "X-ClickHouse-Exception-Tag": tag}
        self._send_headers(200, content_type(result.format), {**headers, "Transfer-Encoding": "chunked"})
        failure: list[QueryError] = []
        for piece in compressed_body(_with_exception_trailer(result.pieces, failure, tag), encoding):
            if piece:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        if failure:
            _log.info("query %s failed in the middle of its result: %s", running.query_id, failure[0])
            self.close_connection = True  # no last chunk: the client must not take the result for complete
        self.wfile.flush()
        return not failure

    def _result_headers(self, result: QueryResult) -> dict[str, str]:
        headers = {"X-ClickHouse-Format": result.format}
        if result.statistics:
            headers["X-ClickHouse-Summary"] = json.dumps(
                {name: str(value) for name, value in result.statistics.items()}
            )
        return headers

    def _send_headers(self, status: int, kind: str, headers: Mapping[str, str]) -> None:
        self._headers_sent = True
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("X-ClickHouse-Server-Display-Name", self.server.engine.host)
        self.send_header("X-ClickHouse-Timezone", self.server.engine.timezone)
        if query_id := getattr(self, "_query_id", ""):
            self.send_header("X-ClickHouse-Query-Id", _header_safe(query_id))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _send_plain(
        self,
        status: int,
        body: bytes,
        kind: str = "text/plain; charset=UTF-8",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._send_headers(status, kind, {**(headers or {}), "Content-Length": str(len(body))})
        self.wfile.write(body)
        self.wfile.flush()

    def _send_error(self, error: QueryError) -> None:
        if self._headers_sent:
            self.close_connection = True
            return
        body = f"{error.text} (version {self.server.engine.version} (chDB))\n".encode(errors="replace")
        with suppress(OSError):
            self._send_plain(error.status, body, headers={"X-ClickHouse-Exception-Code": str(error.code)})

    def _drain(self) -> None:
        """Read the rest of a rejected request's body, or close the connection."""
        self._query_id = ""
        try:
            for _ in limited(self._body.pieces() if not self._body.finished else iter(()), _DRAIN_BYTES):
                pass
        except (QueryError, OSError, ValueError):
            self.close_connection = True

    def _stop_reading(self) -> None:
        if not self._body.finished:
            self.connection.shutdown(socket.SHUT_RD)

    def _abort_connection(self) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)


def _with_exception_trailer(pieces: Iterator[bytes], failure: list[QueryError], tag: str) -> Iterator[bytes]:
    """The pieces and, if the statement fails on the way, its error in the format ClickHouse clients look for."""
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
        raise query_error(
            ClickHouseErrorCode.BAD_ARGUMENTS, f"invalid session_timeout {text!r}: must be a number of seconds"
        )
    return int(text)


def _header_safe(text: str) -> str:
    return "".join(each if each.isprintable() and ord(each) < 256 else "?" for each in text)
