"""Just enough of a Kafka broker for librdkafka: it keeps what is produced and serves what a test put there.

One node, one topic `golden` with one partition. Not a broker: no storage, no groups, no errors. It shows what a real client
writes and what it can read, without the Kafka gateway.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from struct import Struct

from holdfast.kafka.api_keys import ApiKey

TOPIC = "golden"

_INT16, _INT32, _INT64 = Struct(">h"), Struct(">i"), Struct(">q")
# librdkafka asks for Produce 7 and Fetch 10 before it will write or read zstd.
VERSIONS = {
    ApiKey.PRODUCE: 7,
    ApiKey.FETCH: 10,
    ApiKey.LIST_OFFSETS: 1,
    ApiKey.METADATA: 1,
    ApiKey.FIND_COORDINATOR: 0,
    ApiKey.API_VERSIONS: 3,
    ApiKey.INIT_PRODUCER_ID: 1,
}


class Reader:
    """Fields of a request, one after another."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self, kind: Struct) -> int:
        (value,) = kind.unpack_from(self.data, self.at)
        self.at += kind.size
        return int(value)

    def text(self) -> str | None:
        length = self.number(_INT16)
        return None if length < 0 else self.take(length).decode()

    def take(self, length: int) -> bytes:
        self.at += length
        return self.data[self.at - length : self.at]


def text(value: str) -> bytes:
    return _INT16.pack(len(value)) + value.encode()


class TinyBroker:
    """`produced` is every payload that arrived; `stored` is what fetches get, from offset 0 on."""

    def __init__(self) -> None:
        self.produced: list[bytes] = []
        self.stored = b""
        self.end_offset = 0
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = _INT32.unpack(await reader.readexactly(4))
                request = Reader(await reader.readexactly(size))
                api, version, correlation = (request.number(kind) for kind in (_INT16, _INT16, _INT32))
                request.text()  # the client's name
                answer = await self.answer(api, version, request)
                writer.write(_INT32.pack(4 + len(answer)) + _INT32.pack(correlation) + answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def answer(self, api: int, version: int, request: Reader) -> bytes:
        match api:
            case 0:
                return self.answer_produce(request)
            case 1:
                return await self.answer_fetch(request)
            case 2:  # one topic, one partition: its end
                return b"".join(
                    (_INT32.pack(1), text(TOPIC), _INT32.pack(1), _INT32.pack(0), _INT16.pack(0), _INT64.pack(-1))
                ) + _INT64.pack(self.end_offset)
            case 3:
                return self.answer_metadata()
            case 10:
                return _INT16.pack(0) + _INT32.pack(1) + text("127.0.0.1") + _INT32.pack(self.port)
            case 18:
                rows = b"".join(
                    _INT16.pack(key) + b"\0\0" + _INT16.pack(most) + b"\0" for key, most in VERSIONS.items()
                )
                return _INT16.pack(0) + bytes([len(VERSIONS) + 1]) + rows + _INT32.pack(0) + b"\0"
            case 22:
                return _INT32.pack(0) + _INT16.pack(0) + _INT64.pack(4_000_000_000) + _INT16.pack(7)
            case _:
                raise AssertionError(f"request {api} version {version} was not announced")

    def answer_metadata(self) -> bytes:
        broker = _INT32.pack(1) + text("127.0.0.1") + _INT32.pack(self.port) + _INT16.pack(-1)
        replicas = _INT32.pack(1) + _INT32.pack(1)
        partition = _INT16.pack(0) + _INT32.pack(0) + _INT32.pack(1) + replicas + replicas
        topic = _INT16.pack(0) + text(TOPIC) + b"\0" + _INT32.pack(1) + partition
        return _INT32.pack(1) + broker + _INT32.pack(1) + _INT32.pack(1) + topic

    def answer_produce(self, request: Reader) -> bytes:
        request.text()  # transactional id
        request.number(_INT16), request.number(_INT32)  # acks, timeout
        assert request.number(_INT32) == 1
        assert request.text() == TOPIC
        assert request.number(_INT32) == 1
        assert request.number(_INT32) == 0
        self.produced.append(request.take(request.number(_INT32)))
        times = _INT64.pack(-1) + _INT64.pack(0)  # append time, log start
        partition = _INT32.pack(0) + _INT16.pack(0) + _INT64.pack(0) + times
        return _INT32.pack(1) + text(TOPIC) + _INT32.pack(1) + partition + _INT32.pack(0)

    async def answer_fetch(self, request: Reader) -> bytes:
        request.take(4 + 4 + 4 + 4 + 1 + 4 + 4)  # replica, wait, least, most, isolation, session, epoch
        assert request.number(_INT32) == 1
        assert request.text() == TOPIC
        assert request.number(_INT32) == 1
        request.take(4 + 4)  # partition, leader epoch
        records = self.stored if request.number(_INT64) < self.end_offset else b""
        if not records:
            await asyncio.sleep(0.05)  # noqa: TID251 - what a long poll does to its client
        offsets = _INT64.pack(self.end_offset) * 2 + _INT64.pack(0)
        partition = _INT32.pack(0) + _INT16.pack(0) + offsets + _INT32.pack(-1) + _INT32.pack(len(records)) + records
        return (
            _INT32.pack(0)
            + _INT16.pack(0)
            + _INT32.pack(0)
            + (_INT32.pack(1) + text(TOPIC) + _INT32.pack(1) + partition)
        )


@asynccontextmanager
async def tiny_broker() -> AsyncIterator[TinyBroker]:
    """A broker on a free port of the loopback."""
    broker = TinyBroker()
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(broker.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(lambda _: writer.transport.abort())  # also if it is cancelled before it begins
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    broker.port = server.sockets[0].getsockname()[1]
    try:
        yield broker
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
