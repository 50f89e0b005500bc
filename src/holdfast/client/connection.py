"""One connection to a broker: requests and responses, encoded by kio.

The one rule: a connection that failed in the middle of a request is closed and never reused: the next bytes on it would be the
response to the abandoned request.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from holdfast.client.addresses import BrokerAddress
from holdfast.client.broker_login import BrokerLogin
from holdfast.client.own_thread import at_first_address
from holdfast.kafka.codec import decode_response, encode_request
from holdfast.kafka.wire import INT32
from holdfast.vocabulary.errors import UnavailableError

T = TypeVar("T")

_CLIENT_ID: Final = "holdfast-spark"
_RESPONSE_BYTES_MAX: Final = 512 << 20


class BrokerConnection:
    """One broker; requests are sent one at a time. The time of one counts from the call on, also while it waits for its turn.

    `login`: how to log in, and its TLS; None: neither. `pending`: requests that are sent or wait for their turn.
    """

    def __init__(self, address: BrokerAddress, *, timeout_s: float, login: BrokerLogin | None = None) -> None:
        self._address, self._timeout_s, self._login = address, timeout_s, login
        self._lock = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._correlation_id = 0
        self.pending = 0

    async def connect(self) -> None:
        """Open the connection, unless it is open. `UnavailableError`: nothing was sent."""
        await self._exclusively(self._open)

    async def request(self, request: Any) -> Any:
        """The response to a kio request. `UnavailableError` if there is none in time."""
        return await self._exclusively(lambda: self._request(request))

    async def _exclusively(self, work: Callable[[], Awaitable[T]]) -> T:
        self.pending += 1
        try:
            async with asyncio.timeout(self._timeout_s), self._lock:
                try:
                    return await work()
                except BaseException:
                    await self._drop()
                    raise
        except (OSError, EOFError, TimeoutError) as error:
            reason = _reason(error) or f"no answer within {self._timeout_s:g} s"
            raise UnavailableError(f"broker {self._address}", reason) from None
        finally:
            self.pending -= 1

    async def close(self) -> None:
        """Close the connection; the next request opens another one."""
        async with self._lock:
            await self._drop()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None or self._streams[0].at_eof():
            await self._drop()
            login = self._login
            tls = await login.context() if login is not None else None
            self._streams = await _connected(self._address, tls)
            if login is not None:
                await login.log_in(self._exchange)
        return self._streams

    async def _request(self, request: Any) -> Any:
        await self._open()
        return await self._exchange(request)

    async def _exchange(self, request: Any) -> Any:
        assert self._streams is not None
        reader, writer = self._streams
        self._correlation_id = self._correlation_id % 0x7FFFFFFF + 1
        writer.write(encode_request(request, self._correlation_id, client_id=_CLIENT_ID))
        await writer.drain()
        (size,) = INT32.unpack(await reader.readexactly(4))
        if not 4 <= size <= _RESPONSE_BYTES_MAX:
            raise ConnectionError(f"response of {size} bytes: this is not a Kafka broker")
        return decode_response(type(request), await reader.readexactly(size), self._correlation_id)

    async def _drop(self) -> None:
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].transport.abort()


async def _connected(
    address: BrokerAddress, tls: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    name = address.host if tls is not None else None
    return await at_first_address(
        *address, lambda host: asyncio.open_connection(host, address.port, ssl=tls, server_hostname=name)
    )


def _reason(error: Exception) -> str:
    return "connection refused" if isinstance(error, ConnectionRefusedError) else str(error)
