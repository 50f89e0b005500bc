"""Producer: sends records from any thread.

It is no wrapper: a hop to an event loop for each record would cost more than all the rest. It shares encoder, sender and outbox
with the asynchronous one; a lock is what the event loop is there. The one rule is the same: `send` waits and never drops.
"""

import threading
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self

from holdfast.client.connection_settings import ConnectionSettings, connection_settings
from holdfast.client.forks import ForkCheck
from holdfast.client.librdkafka import KafkaClient
from holdfast.client.records.model import Header, ProducerRecord, RecordMetadata
from holdfast.client.records.outbox import ManyRecords, Outbox
from holdfast.client.records.sender import POLL_S_MAX, POLL_S_MIN, EncodedRecord, Encoder, Interceptor, Sender
from holdfast.client.records.serializers import Serializer
from holdfast.client.records.settings import ProducerSettings
from holdfast.client.sync.pending_send import PendingSend
from holdfast.vocabulary.errors import ClosedError, UsageError

_FLUSH_S: Final = 0.1
_SENDS_PER_POLL: Final = 1_024


class Producer:
    """Sends records. Use it as `with Producer("localhost:9092") as producer:`; leaving the body flushes. Safe for many threads.

    Writes are idempotent: retries and failovers neither lose, duplicate nor reorder records. Serializers are `bytes`, `str`,
    `json` or functions.
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
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)  # something was reported, or it was closed
        self._queued = threading.Condition(self._lock)  # something is unacknowledged, or it was closed
        self._idle = False
        self._sends_left = _SENDS_PER_POLL
        self._forked = ForkCheck("producer")
        self._sender: Sender | None = None
        self._closed = False

    def __enter__(self) -> Self:
        if self._sender is not None or self._closed:
            raise UsageError("a producer is opened once: make another one")
        self._sender = Sender(KafkaClient(self._connection.bootstrap()), self._settings)
        self._poller = threading.Thread(target=self._keep_polling, name="holdfast-producer", daemon=True)
        self._poller.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception:
            if error is None:  # that of the body came first
                raise

    def close(self) -> None:
        """Flush and close. Interrupted, it gives up what is not acknowledged yet: those futures get their error."""
        sender, self._closed = self._sender, True
        if sender is None:
            return
        try:
            self._flush(sender)
        finally:
            with self._lock:
                self._sender = None
                if len(sender):
                    sender.abandon()
                called = self._settle_locked(sender)
                self._changed.notify_all()
                self._queued.notify_all()
            _run_callbacks(called)
        self._poller.join()
        sender.close()

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = (),
    ) -> PendingSend[RecordMetadata]:
        """Queue a record, once there is room; ask the returned future for its acknowledgement, or `flush` for all of them."""
        self._forked.check()  # first: in a fork, the lock may be held for ever
        record, size = self._encoder.encode(topic, ProducerRecord(value, key, partition, timestamp_ms, headers))
        future: PendingSend[RecordMetadata] = PendingSend(self._changed)
        self._send([record], [size], future=future)
        return future

    def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = (),
    ) -> RecordMetadata:
        """Send a record and wait for its acknowledgement. Interrupted while it waits, the record may still be appended."""
        self._forked.check()  # first: in a fork, the lock may be held for ever
        record, size = self._encoder.encode(topic, ProducerRecord(value, key, partition, timestamp_ms, headers))
        future: PendingSend[RecordMetadata] = PendingSend(self._changed)
        self._send([record], [size], future=future, reported=True)
        return future.result()

    def send_many(self, topic: str, records: Iterable[Any]) -> PendingSend[list[RecordMetadata]]:
        """Queue records in order: values, or `ProducerRecord` where there is more to say. The fastest way to send.

        The returned future has the metadata of each, or `PartlySentError` with the outcome of each.
        """
        self._forked.check()
        future: PendingSend[list[RecordMetadata]] = PendingSend(self._changed)
        many = ManyRecords(future)
        try:
            for chunk, sizes in self._encoder.encode_many(topic, records):
                self._send(chunk, sizes, many=many)
        finally:
            called: list[PendingSend[Any]] = []
            with self._lock:
                if many.complete(1):
                    called = self._resolve([(future, many.result())])
            _run_callbacks(called)
        return future

    def flush(self) -> None:
        """Return when all records sent before are acknowledged; raises the first error of those sent by `send` or `send_many`."""
        self._flush(self._open_sender())

    def _flush(self, sender: Sender) -> None:
        self._forked.check()
        with self._lock:
            periods = self._outbox.begin_flush()
        while any(period.pending for period in periods):
            sender.send_now(_FLUSH_S)
            self._settle(sender)
        with self._lock:
            error = self._outbox.end_flush(periods)
        if error is not None:
            raise error

    def _send(self, records: list[EncodedRecord], sizes: list[int], **waiting: Any) -> None:
        size = sum(sizes)
        with self._lock:
            sender = self._open_sender()
            while (parcel := self._outbox.reserve(len(records), size, **waiting)) is None:
                self._changed.wait()
                sender = self._open_sender()
            start = 0 if parcel.many is None else len(parcel.many.outcomes) - len(records)
            number = 0
            try:
                while number < len(records):
                    if sender.produce(records[number], parcel, start + number):
                        number += 1
                    else:
                        self._changed.wait()
                        sender = self._open_sender()
            except BaseException:
                self._outbox.cancel(parcel, len(records) - number, sum(sizes[number:]))
                raise
            self._sends_left -= len(records)
            called: list[PendingSend[Any]] = []
            if self._sends_left <= 0:
                self._sends_left = _SENDS_PER_POLL
                called = self._settle_locked(sender)
            elif self._idle:
                self._queued.notify()
        _run_callbacks(called)

    def _settle(self, sender: Sender) -> None:
        with self._lock:
            called = self._settle_locked(sender)
        _run_callbacks(called)

    def _settle_locked(self, sender: Sender) -> list[PendingSend[Any]]:
        """Serve what was reported, and wake whoever waits for it; those with callbacks, which run without the lock."""
        reports = sender.poll()
        return self._resolve(self._outbox.settle(reports, sender.outcome)) if reports else []

    def _resolve(self, resolved: list[tuple[PendingSend[Any], Any]]) -> list[PendingSend[Any]]:
        called = [future for future, outcome in resolved if future._resolve(outcome)]
        self._changed.notify_all()
        return called

    def _keep_polling(self) -> None:
        """On a thread: again and again while something is unacknowledged."""
        pause_s = POLL_S_MIN
        while True:
            with self._lock:
                while (sender := self._sender) is not None and not self._outbox.unacknowledged:
                    self._idle = True
                    self._queued.wait()
                self._idle = False
                if sender is None:
                    return
                before = self._outbox.unacknowledged
                called = self._settle_locked(sender)
                reported = self._outbox.unacknowledged != before
                pause_s = POLL_S_MIN if reported else min(POLL_S_MAX, 2 * pause_s)
                if not called:
                    self._queued.wait(pause_s)
            _run_callbacks(called)

    def _open_sender(self) -> Sender:
        if self._closed:
            raise ClosedError("producer")
        if self._sender is None:
            raise UsageError("open the producer first: `with Producer(…) as producer:`")
        return self._sender


def _run_callbacks(called: list[PendingSend[Any]]) -> None:
    for future in called:
        future._run_callbacks()
