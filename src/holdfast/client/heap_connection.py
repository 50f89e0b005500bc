"""A pipelined connection for heap operations: many requests in flight, responses in the order of the requests.

The one rule: what was not sent is an `UnavailableError`, what was sent and has no response is an `OutcomeUnknownError`. Requests of
one loop turn leave in one write. What may wait for long has a connection of its own, pops and what waits for a spine: a response
waits for those before it.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, Final

from holdfast.client.addresses import BrokerAddress
from holdfast.client.broker_login import BrokerLogin, LoginRefusedError
from holdfast.client.own_thread import at_first_address
from holdfast.heap.wire import HeapRequest, PopRequest, decode_response, encode_request
from holdfast.kafka import codec as kafka_codec
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.wire import INT32
from holdfast.vocabulary.errors import OutcomeUnknownError, UnavailableError

_HEADER: Final = Struct(">ihhi")  # size, key, version, correlation
_RESPONSE: Final = Struct(">ii")  # size, correlation
_CLIENT_NAME: Final = "holdfast-heaps"
_CLIENT_ID: Final = Struct(">h").pack(len(_CLIENT_NAME)) + _CLIENT_NAME.encode()
_RESPONSE_BYTES_MAX: Final = 256 << 20
_BUFFERED_BYTES_MAX: Final = 4 << 20
_LIFETIME_USED: Final = 0.85  # of a login: what is sent at its end may arrive after it


class _Waiting:
    """A request that was sent."""

    __slots__ = ("answer", "correlation", "decode", "what")

    def __init__(
        self, what: str, correlation: int, answer: "asyncio.Future[Any]", decode: Callable[[bytes], Any]
    ) -> None:
        self.what, self.correlation, self.answer, self.decode = what, correlation, answer, decode


class HeapConnection(asyncio.Protocol):
    """One connection. Made by `open_heap_connection`."""

    def __init__(self, address: BrokerAddress) -> None:
        self.address = address
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[_Waiting] = deque()
        self._unsent: list[bytes] = []
        self._received = bytearray()
        self._correlation = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self.lost: str | None = None
        self._retire_at_s: float | None = None  # before its login ends; None: it does not
        self._retired = False

    @property
    def is_usable(self) -> bool:
        """Whether it takes further requests; one whose login is about to end is closed when those that were sent are answered."""
        if self.lost is not None or self._retired:
            return False
        if self._retire_at_s is not None and self._loop.time() >= self._retire_at_s:
            self._retired = True
            self._close_if_retired()
        return not self._retired

    def _close_if_retired(self) -> None:
        if self._retired and not self._waiting:
            self.close()

    @property
    def pending(self) -> int:
        """Requests without a response."""
        return len(self._waiting)

    @property
    def oldest(self) -> int | None:
        """The number of the request that has been without a response for longest."""
        return self._waiting[0].correlation if self._waiting else None

    async def ping(self) -> None:
        """Return when the node answers: it lists its APIs, which everybody may ask for."""
        if self.lost is not None:
            raise UnavailableError(f"node {self.address}", self.lost)
        correlation = self._next_correlation()
        header = _HEADER.pack(_HEADER.size - 4 + len(_CLIENT_ID), ApiKey.API_VERSIONS, 0, correlation)
        await self._sent("ping", correlation, (header, _CLIENT_ID), lambda body: None)

    async def call(self, request: HeapRequest) -> Any:
        """The result of a request. Raises what the node raised."""
        if not self._writable.is_set():
            await self._writable.wait()
        if self.lost is not None:
            raise UnavailableError(f"node {self.address}", self.lost)
        correlation = self._next_correlation()
        key = ApiKey.HEAP_POP if isinstance(request, PopRequest) else ApiKey.HEAP
        body = encode_request(request)
        header = _HEADER.pack(_HEADER.size - 4 + len(_CLIENT_ID) + len(body), key, 0, correlation)
        what = f"{type(request).__name__} of {request.topic}"
        return await self._sent(what, correlation, (header, _CLIENT_ID, body), partial(decode_response, request))

    async def log_in(self, login: BrokerLogin) -> None:
        """Log in, before the first call. `LoginRefusedError`, `UnavailableError`."""
        try:
            asked_s = self._loop.time()
            lifetime_ms = await login.log_in(self._kafka_request)
            if lifetime_ms is not None:
                self._retire_at_s = asked_s + lifetime_ms / 1000 * _LIFETIME_USED
        except OutcomeUnknownError as error:
            raise UnavailableError(f"node {self.address}", error.reason) from None

    async def _kafka_request(self, request: Any) -> Any:
        correlation = self._next_correlation()
        frame = kafka_codec.encode_request(request, correlation, client_id=_CLIENT_NAME)

        def decode(body: bytes) -> Any:
            return kafka_codec.decode_response(type(request), INT32.pack(correlation) + body, correlation)

        return await self._sent(type(request).__name__, correlation, (frame,), decode)

    def _next_correlation(self) -> int:
        self._correlation = self._correlation % 0x7FFFFFFF + 1
        return self._correlation

    def _sent(
        self, what: str, correlation: int, frame: tuple[bytes, ...], decode: Callable[[bytes], Any]
    ) -> "asyncio.Future[Any]":
        """The response to a frame that leaves at the end of this loop turn."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append(_Waiting(what, correlation, answer, decode))
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent += frame
        return answer

    def end_requests(self) -> None:
        """Send nothing more: the node gives up what waits there, and closes. What it has answered still arrives. Not with TLS."""
        self._flush()
        if self.lost is None and self._transport is not None and self._transport.can_write_eof():
            self._transport.write_eof()

    def close(self) -> None:
        """Close it. What was sent has an unknown outcome."""
        self._end("the connection was closed")
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and self.lost is None and self._transport is not None:
            self._transport.write(b"".join(unsent))

    # ── the transport's side ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]
        self._transport.set_write_buffer_limits(_BUFFERED_BYTES_MAX)  # type: ignore[union-attr]

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        at = 0
        while len(received) - at >= _RESPONSE.size:
            size, correlation = _RESPONSE.unpack_from(received, at)
            if not 4 <= size <= _RESPONSE_BYTES_MAX:
                self._break(f"a response of {size} bytes")
                return
            if len(received) - at < size + 4:
                break
            body = bytes(memoryview(received)[at + _RESPONSE.size : at + size + 4])
            at += size + 4
            if not self._waiting or self._waiting[0].correlation != correlation:
                self._break("a response to no request")
                return
            self._answer(self._waiting.popleft(), body)
        del received[:at]
        self._close_if_retired()

    def _answer(self, waiting: _Waiting, body: bytes) -> None:
        if waiting.answer.done():
            return  # its caller was cancelled
        try:
            waiting.answer.set_result(waiting.decode(body))
        except Exception as error:
            waiting.answer.set_exception(error)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(str(error or "the node closed the connection"))

    def _break(self, reason: str) -> None:
        self._end(reason)
        if self._transport is not None:
            self._transport.abort()

    def _end(self, reason: str) -> None:
        if self.lost is not None:
            return
        self.lost = reason
        self._writable.set()
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if not each.answer.done():
                each.answer.set_exception(OutcomeUnknownError(each.what, f"{self.address}: {reason}"))


async def open_heap_connection(
    address: BrokerAddress, *, timeout_s: float, login: BrokerLogin | None = None
) -> HeapConnection:
    """A connection to a node. `login`: how to log in, and its TLS; None: neither.

    `UnavailableError`: the node cannot be reached. `LoginRefusedError`: it refuses the login, or its certificate is not trusted.
    """
    try:
        async with asyncio.timeout(timeout_s):
            tls = await login.context() if login is not None else None
            connection = await _connected(address, tls)
            if login is not None:
                try:
                    await connection.log_in(login)
                except BaseException:
                    connection.close()
                    raise
    except TimeoutError:
        raise UnavailableError(f"node {address}", f"not reached within {timeout_s:g} s") from None
    except ssl.SSLCertVerificationError as error:  # it stays so, however often it is tried
        raise LoginRefusedError(f"node {address}", f"its certificate is not trusted: {error}") from None
    except OSError as error:
        raise UnavailableError(f"node {address}", str(error)) from None
    return connection


async def _connected(address: BrokerAddress, tls: ssl.SSLContext | None) -> HeapConnection:
    loop, name = asyncio.get_running_loop(), address.host if tls is not None else None

    async def connect(host: str) -> HeapConnection:
        _, connection = await loop.create_connection(
            lambda: HeapConnection(address), host, address.port, ssl=tls, server_hostname=name
        )
        return connection

    return await at_first_address(*address, connect)
