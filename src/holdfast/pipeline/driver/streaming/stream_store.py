"""The record of a streaming generation in the store, as one owner reads and writes it.

The one rule: whoever loses a compare-and-swap stops. A newer owner has the record; or a write of this one, whose answer was lost,
came late: then the record is claimed again.
"""

from collections.abc import Callable, Coroutine
from threading import Lock
from typing import Any, TypeVar

from holdfast.client.loop_thread import loop_thread
from holdfast.contracts.store import Entry, Store
from holdfast.pipeline.driver.streaming import protocol
from holdfast.pipeline.driver.streaming.stream_record import StreamRecord, decode_record, encode_record
from holdfast.registry.streams import read_stream, replace_stream
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import FencedError, UnavailableError
from holdfast.vocabulary.random import Random

T = TypeVar("T")


class StreamStore:
    """Of one generation under one epoch. Safe for the slot's thread and the thread of the query's batches."""

    def __init__(
        self, store: Store, namespace: str, epoch: int, *, clock: Clock, random: Random, timeout_ms: int
    ) -> None:
        self._store, self._namespace, self._epoch = store, namespace, epoch
        self._clock, self._random, self._timeout_s = clock, random, timeout_ms / 1_000
        self._lock = Lock()
        self._entry: Entry | None = None
        self._record = StreamRecord(epoch=0)

    @property
    def record(self) -> StreamRecord:
        """As this owner wrote it last."""
        return self._record

    def claim(self) -> StreamRecord:
        """Make this epoch the owner. `FencedError`: a newer one is. `UnavailableError`: see `update`."""
        with self._lock:
            self._entry = self._wait(read_stream(self._store, self._namespace))
            found = None if self._entry is None else decode_record(self._entry.key, self._entry.value)
            self._write(protocol.claimed(found, self._namespace, self._epoch))
            return self._record

    def update(self, change: Callable[[StreamRecord], StreamRecord]) -> StreamRecord:
        """Replace the record. `FencedError`: a newer owner has. `UnavailableError`: unknown, or overtaken by an earlier write."""
        with self._lock:
            after = change(self._record)
            if after != self._record:
                self._write(after)
            return after

    def _write(self, record: StreamRecord) -> None:
        value = encode_record(record)
        written = self._wait(
            replace_stream(self._store, self._namespace, self._entry, value, clock=self._clock, random=self._random)
        )
        if written is None:
            found = self._wait(read_stream(self._store, self._namespace))
            newest = self._epoch if found is None else decode_record(found.key, found.value).epoch
            if newest == self._epoch:
                raise UnavailableError("store", "an earlier write of this owner came late: the record is read again")
            raise FencedError(self._namespace, self._epoch, newest)
        self._entry, self._record = written, record

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        future = loop_thread().submit(work)
        try:
            return future.result(self._timeout_s)
        except TimeoutError:
            future.cancel()
            raise UnavailableError("store", f"no response within {self._timeout_s:.0f} s") from None
