"""Producer: sends records from an event loop.

The one rule: `send` waits for room and never drops. Once it has returned, the record is delivered in order and once, or its
future and the next `flush` have the error. A `send` that was cancelled while it waited has sent nothing.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self

from holdfast.client.connection_settings import ConnectionSettings, connection_settings
from holdfast.client.forks import ForkCheck
from holdfast.client.librdkafka import KafkaClient
from holdfast.client.records.model import Header, ProducerRecord, RecordMetadata
from holdfast.client.records.outbox import ManyRecords, Outbox, Parcel, SendPeriod, resolve
from holdfast.client.records.sender import POLL_S_MAX, POLL_S_MIN, EncodedRecord, Encoder, Interceptor, Sender
from holdfast.client.records.serializers import Serializer
from holdfast.client.records.settings import ProducerSettings
from holdfast.vocabulary.errors import ClosedError, UsageError

_SENDS_PER_TURN: Final = 1_024  # of the event loop: others get their turn although there is room
_FLUSH_S: Final = 0.1


class Producer:
    """Sends records. Use it as `async with Producer("localhost:9092") as producer:`; leaving the body flushes.

    Writes are idempotent: retries and failovers neither lose, duplicate nor reorder records. Belongs to one event loop; any
    number of its tasks may send. Serializers are `bytes`, `str`, `json` or functions.
    """

    def __init__(
        self,
        connection: str | ConnectionSettings = "localhost:9092",
        *,
        value_serializer: str | Serializer = "bytes",
        key_serializer: str | Serializer = "bytes",
        interceptors: Sequence[Interceptor] = (),
        settings: ProducerSettings | None = None,
    ) -> None:
        self._connection = connection_settings(connection)
        self._settings = settings or ProducerSettings()
        self._encoder = Encoder(
            value_serializer=value_serializer,
            key_serializer=key_serializer,
            interceptors=interceptors,
            settings=self._settings,
        )
        self._outbox = Outbox(self._settings)
        self._sender: Sender | None = None
        self._closed = False
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._changed: set[asyncio.Future[None]] = set()
        self._sends_left = _SENDS_PER_TURN
        self._timer: asyncio.Handle | None = None
        self._forked = ForkCheck("producer")

    async def __aenter__(self) -> Self:
        if self._sender is not None or self._closed:
            raise UsageError("a producer is opened once: make another one")
        client = await asyncio.to_thread(KafkaClient, self._connection.bootstrap())
        self._sender = Sender(client, self._settings)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except Exception:
            if error is None:  # that of the body came first
                raise

    async def close(self) -> None:
        """Flush and close. Cancelled, it gives up what is not acknowledged yet: those futures get their error."""
        sender, self._closed = self._sender, True
        if sender is None:
            return
        try:
            await self._flush(sender)
        finally:
            self._sender = None
            if len(sender):
                sender.abandon()
                self._timer = self._timer or asyncio.get_running_loop().call_soon(self._poll, POLL_S_MIN, sender)
            self._wake_waiting()
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.to_thread(sender.close)

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = (),
    ) -> "asyncio.Future[RecordMetadata]":
        """Queue a record, once there is room; await the returned future for its acknowledgement, or `flush` for all of them."""
        record, size = self._encoder.encode(topic, ProducerRecord(value, key, partition, timestamp_ms, headers))
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        parcel = self._room(1, size, future=future) or await self._wait_for_room(1, size, future=future)
        if not self._produce(parcel, [record], 0):
            await self._produce_all(parcel, [record], [size], 0)
        return future

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = (),
    ) -> RecordMetadata:
        """Send a record and wait for its acknowledgement. Cancelled while it waits, the record may still be appended."""
        record, size = self._encoder.encode(topic, ProducerRecord(value, key, partition, timestamp_ms, headers))
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        parcel = await self._wait_for_room(1, size, future=future, reported=True)
        await self._produce_all(parcel, [record], [size], 0)
        return await future

    async def send_many(self, topic: str, records: Iterable[Any]) -> "asyncio.Future[list[RecordMetadata]]":
        """Queue records in order: values, or `ProducerRecord` where there is more to say. The fastest way to send.

        The returned future has the metadata of each, or `PartlySentError` with the outcome of each. Cancelled while it waits for
        room, the records before it are sent.
        """
        future: asyncio.Future[list[RecordMetadata]] = asyncio.get_running_loop().create_future()
        many = ManyRecords(future)
        try:
            for chunk, sizes in self._encoder.encode_many(topic, records):
                count, size = len(chunk), sum(sizes)
                parcel = self._room(count, size, many=many) or await self._wait_for_room(count, size, many=many)
                await self._produce_all(parcel, chunk, sizes, len(many.outcomes) - count)
        finally:
            if many.complete(1):
                resolve(future, many.result())
        return future

    async def flush(self) -> None:
        """Return when all records sent before are acknowledged; raises the first error of those sent by `send` or `send_many`."""
        await self._flush(self._open_sender())

    async def _flush(self, sender: Sender) -> None:
        self._forked.check()
        periods = self._outbox.begin_flush()
        while any(period.pending for period in periods):
            await asyncio.to_thread(sender.send_now, _FLUSH_S)
            self._settle(sender)
        self._raise_failure(periods)

    def _raise_failure(self, periods: list[SendPeriod]) -> None:
        error = self._outbox.end_flush(periods)
        if error is not None:
            raise error

    def _room(self, count: int, size: int, **waiting: Any) -> Parcel | None:
        """Room at once; None: others are waiting, there is none, or the loop should get its turn."""
        self._open_sender()
        self._sends_left -= count
        if self._sends_left <= 0 or self._waiting:
            return None
        return self._outbox.reserve(count, size, **waiting)

    async def _wait_for_room(self, count: int, size: int, **waiting: Any) -> Parcel:
        """Room, in turn. Cancelled meanwhile, nothing was taken."""
        if self._sends_left <= 0:
            self._sends_left = _SENDS_PER_TURN
            self._settle(self._open_sender())
            await asyncio.sleep(0)  # noqa: TID251 (no time passes)
        self._open_sender()
        parcel = None if self._waiting else self._outbox.reserve(count, size, **waiting)
        if parcel is not None:
            return parcel
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            while True:
                parcel = self._outbox.reserve(count, size, **waiting) if self._waiting[0] is turn else None
                if parcel is not None:
                    return parcel
                await turn
                turn = self._renewed(turn)
                self._open_sender()
        finally:
            self._waiting.remove(turn)
            self._wake_waiting()

    def _produce(self, parcel: Parcel, records: list[EncodedRecord], start: int, done: int = 0) -> int:
        """Queue records that have room, from number `done` on; how many are queued: less if librdkafka's queue is full."""
        sender = self._open_sender()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(POLL_S_MIN, self._poll, POLL_S_MIN, sender)
        for number in range(done, len(records)):
            if not sender.produce(records[number], parcel, start + number):
                return number
        return len(records)

    async def _produce_all(self, parcel: Parcel, records: list[EncodedRecord], sizes: list[int], start: int) -> None:
        done = 0
        try:
            while (done := self._produce(parcel, records, start, done)) < len(records):
                await self._next_reports()
        except BaseException:
            self._give_back(parcel, sizes[done:])
            raise

    def _give_back(self, parcel: Parcel, sizes: list[int]) -> None:
        self._outbox.cancel(parcel, len(sizes), sum(sizes))
        self._wake_waiting()

    def _renewed(self, turn: "asyncio.Future[None]") -> "asyncio.Future[None]":
        """Another future in the same place of the queue."""
        new: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[self._waiting.index(turn)] = new
        return new

    def _wake_waiting(self) -> None:
        for turn in self._waiting if self._sender is None else list(self._waiting)[:1]:
            if not turn.done():
                turn.set_result(None)

    async def _next_reports(self) -> None:
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changed.add(changed)
        try:
            await changed
        finally:
            self._changed.discard(changed)

    def _settle(self, sender: Sender) -> bool:
        """Serve what was reported, and wake whoever waits for it; False: there was nothing."""
        reports = sender.poll()
        if not reports:
            return False
        for future, outcome in self._outbox.settle(reports, sender.outcome):
            resolve(future, outcome)
        for changed in self._changed:
            if not changed.done():
                changed.set_result(None)
        self._wake_waiting()
        return True

    def _poll(self, pause_s: float, sender: Sender) -> None:
        """Again and again while something is unacknowledged."""
        self._timer = None
        pause_s = POLL_S_MIN if self._settle(sender) else min(POLL_S_MAX, 2 * pause_s)
        if len(sender):
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._poll, pause_s, sender)

    def _open_sender(self) -> Sender:
        self._forked.check()
        if self._closed:
            raise ClosedError("producer")
        if self._sender is None:
            raise UsageError("open the producer first: `async with Producer(…) as producer:`")
        return self._sender
