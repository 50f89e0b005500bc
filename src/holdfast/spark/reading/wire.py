"""One connection to a broker: a request goes out, its answer comes back. kio writes and reads the messages.

The one rule: a connection that failed in the middle of a request is closed, never used again: what comes next on it would be the
answer to a question nobody remembers.
"""

import asyncio
import io
from collections.abc import Callable, Hashable
from functools import cache
from struct import Struct
from typing import Any, Final, cast

from holdfast.spark.reading.addresses import Address
from holdfast.vocabulary.errors import UnavailableError

_CLIENT: Final = "holdfast-spark"
_INT32: Final = Struct(">i")
_ANSWER_BYTES_MAX: Final = 512 << 20


class Connection:
    """Questions to one broker, one after the other."""

    def __init__(self, address: Address, *, timeout_s: float) -> None:
        self._address, self._timeout_s = address, timeout_s
        self._turn = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._asked = 0

    async def ask(self, request: Any) -> Any:
        """The answer to a kio request. `UnavailableError` if there is none in time."""
        async with self._turn:
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await self._ask(request)
            except (OSError, EOFError, TimeoutError) as error:
                await self._drop()
                reason = str(error) or f"no answer within {self._timeout_s:g} s"
                raise UnavailableError(f"broker {self._address}", reason) from None
            except BaseException:
                await self._drop()
                raise

    async def close(self) -> None:
        """Hang up."""
        async with self._turn:
            await self._drop()

    async def _ask(self, request: Any) -> Any:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._address.host, self._address.port)
        reader, writer = self._streams
        self._asked = self._asked % 0x7FFFFFFF + 1
        writer.write(_encoded(request, self._asked))
        await writer.drain()
        (size,) = _INT32.unpack(await reader.readexactly(4))
        if not 4 <= size <= _ANSWER_BYTES_MAX:
            raise ConnectionError(f"it answered with a frame of {size} bytes: this is no Kafka broker")
        return _decoded(type(request), await reader.readexactly(size), self._asked)

    async def _drop(self) -> None:
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].transport.abort()


def _encoded(request: Any, correlation_id: int) -> bytes:
    out = io.BytesIO()
    header = request.__header_schema__(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=correlation_id,
        client_id=_CLIENT,
    )
    _writer(cast(Hashable, type(header)))(out, header)
    _writer(cast(Hashable, type(request)))(out, request)
    body = out.getvalue()
    return _INT32.pack(len(body)) + body


def _decoded(asked: Any, frame: bytes, correlation_id: int) -> Any:
    from kio.index import load_response_schema

    kind = load_response_schema(asked.__api_key__, asked.__version__)
    header, size = _reader(cast(Hashable, kind.__header_schema__))(frame, 0)
    if header.correlation_id != correlation_id:
        raise ConnectionError("it answered another question")
    return _reader(cast(Hashable, kind))(frame, size)[0]


@cache
def _writer(kind: Hashable) -> Callable[[io.BytesIO, Any], None]:
    from kio.serial import entity_writer

    return entity_writer(cast(Any, kind))


@cache
def _reader(kind: Hashable) -> Callable[[bytes, int], tuple[Any, int]]:
    from kio.serial import entity_reader

    return entity_reader(cast(Any, kind))
