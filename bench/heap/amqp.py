"""The part of AMQP 0-9-1 that a queue needs, on asyncio streams: one connection with one channel.

Clients of this protocol for asyncio are no dependency of ours, and one that blocks costs a thread for each connection. Frames are
encoded here and written together; contents are received and dropped. Without heartbeats, TLS and reconnects.
"""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import IntEnum
from typing import Final

from holdfast.vocabulary.errors import UnavailableError

_HEAD: Final = struct.Struct(">BHI")  # frame: type, channel, size
_METHOD, _CONTENT, _BODY, _END = 1, 2, 3, b"\xce"
_BASIC: Final = 60
_DELIVERY_MODE, _PRIORITY = 1 << 12, 1 << 11  # which properties a content has
_PERSISTENT: Final = 2


class Method(IntEnum):
    """Methods by class and number."""

    CONNECTION_START = 10 << 16 | 10
    CONNECTION_START_OK = 10 << 16 | 11
    CONNECTION_TUNE = 10 << 16 | 30
    CONNECTION_TUNE_OK = 10 << 16 | 31
    CONNECTION_OPEN = 10 << 16 | 40
    CONNECTION_OPEN_OK = 10 << 16 | 41
    CONNECTION_CLOSE = 10 << 16 | 50
    CHANNEL_OPEN = 20 << 16 | 10
    CHANNEL_OPEN_OK = 20 << 16 | 11
    CHANNEL_CLOSE = 20 << 16 | 40
    QUEUE_DECLARE = 50 << 16 | 10
    QUEUE_DECLARE_OK = 50 << 16 | 11
    QUEUE_DELETE = 50 << 16 | 40
    QUEUE_DELETE_OK = 50 << 16 | 41
    QOS = _BASIC << 16 | 10
    QOS_OK = _BASIC << 16 | 11
    CONSUME = _BASIC << 16 | 20
    CONSUME_OK = _BASIC << 16 | 21
    CANCEL = _BASIC << 16 | 30
    CANCEL_OK = _BASIC << 16 | 31
    PUBLISH = _BASIC << 16 | 40
    DELIVER = _BASIC << 16 | 60
    GET = _BASIC << 16 | 70
    GET_OK = _BASIC << 16 | 71
    GET_EMPTY = _BASIC << 16 | 72
    ACK = _BASIC << 16 | 80
    NACK = _BASIC << 16 | 120
    CONFIRM_SELECT = 85 << 16 | 10
    CONFIRM_SELECT_OK = 85 << 16 | 11


def short(text: bytes) -> bytes:
    """A short string."""
    return bytes([len(text)]) + text


def long(text: bytes) -> bytes:
    """A long string, or the fields of a table."""
    return struct.pack(">I", len(text)) + text


def method(number: Method, arguments: bytes = b"") -> bytes:
    """The frame of a method."""
    channel = 0 if number < Method.CHANNEL_OPEN else 1
    return _frame(_METHOD, channel, struct.pack(">I", number) + arguments)


def persistent(payload: bytes, priority: int) -> bytes:
    """The frames of a persistent content with a priority; they follow a `PUBLISH`."""
    head = struct.pack(">HHQHBB", _BASIC, 0, len(payload), _DELIVERY_MODE | _PRIORITY, _PERSISTENT, priority)
    return _frame(_CONTENT, 1, head) + _frame(_BODY, 1, payload)


def _frame(kind: int, channel: int, body: bytes) -> bytes:
    return _HEAD.pack(kind, channel, len(body)) + body + _END


class Channel:
    """Channel 1 of a connection. Methods arrive in the order in which the broker sent them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, *frames: bytes) -> None:
        self._writer.write(b"".join(frames))

    async def receive(self, *expected: Method) -> tuple[Method, bytes]:
        """The next method and its arguments. Any other than the expected ones is the end."""
        while True:
            kind, _, size = _HEAD.unpack(await self._reader.readexactly(_HEAD.size))
            body = await self._reader.readexactly(size + len(_END))
            if kind == _METHOD:
                number, arguments = Method(int.from_bytes(body[:4], "big")), body[4:-1]
                if number not in expected:
                    raise UnavailableError("rabbitmq", f"{number.name} {arguments!r}")
                return number, arguments

    async def call(self, number: Method, arguments: bytes, answer: Method) -> bytes:
        self.send(method(number, arguments))
        return (await self.receive(answer))[1]


@asynccontextmanager
async def channel(port: int) -> AsyncIterator[Channel]:
    """A channel of its own connection to loopback, as the user that RabbitMQ has at first."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        opened = Channel(reader, writer)
        opened.send(b"AMQP\x00\x00\x09\x01")
        await opened.receive(Method.CONNECTION_START)
        login = long(b"") + short(b"PLAIN") + long(b"\0guest\0guest") + short(b"en_US")
        tune = await opened.call(Method.CONNECTION_START_OK, login, Method.CONNECTION_TUNE)
        opened.send(method(Method.CONNECTION_TUNE_OK, tune[:6] + b"\0\0"))  # no heartbeats
        await opened.call(Method.CONNECTION_OPEN, short(b"/") + b"\0\0", Method.CONNECTION_OPEN_OK)
        await opened.call(Method.CHANNEL_OPEN, b"\0", Method.CHANNEL_OPEN_OK)
        yield opened
    finally:
        writer.close()
