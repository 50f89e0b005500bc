"""How operations of a partition get into its log: applied at once, appended as one batch per turn of the event loop, then durable.

The one rule: the state is as of what was appended, in the log's order; nobody is answered before the log is durable that far. An
append that fails ends the journal, and the view with it: there is nothing to take back, the next view is read from the log.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count, repeat
from typing import Final

from holdfast.heap.fairness.rules import FairRules
from holdfast.heap.partition_state import HeapState
from holdfast.heap.records import (
    Cancel,
    Enqueue,
    Grant,
    Headers,
    Move,
    Operation,
    Purge,
    Reprioritise,
    encode_operation,
    enqueue_keys,
)
from holdfast.log.batches import PlainRecord, encode
from holdfast.log.errors import NotLeaderError
from holdfast.log.owned_partition import OwnedPartition
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import (
    ClosedError,
    ExpiredError,
    FencedError,
    HoldfastError,
    InvalidError,
    OutcomeUnknownError,
    UnavailableError,
)
from holdfast.vocabulary.histogram import LATENCY_BOUNDS_MS, Histogram
from holdfast.vocabulary.settings import MIB
from holdfast.vocabulary.tasks import Notify

_RECORD_BYTES: Final = 80  # around a payload
_PLAIN_BYTES: Final = 1_200  # the same with the longest name of a producer
_MESSAGE_BYTES: Final = 8_192  # the same at most, with texts of every kind in its key
_WAITING_BYTES_MAX: Final = 8 * MIB
_REMOVALS: Final = (
    Grant,
    Cancel,
    Purge,
    Move,
    Reprioritise,
    FairRules,
)  # a message may not be ready any more, or be worse
_LEADERSHIP_LOST: Final = (
    FencedError,
    ExpiredError,
    ClosedError,
)  # what a log says of itself, and no client can act upon


class Journal:
    """The way into the log of one leadership. `before_append` is called once per turn, and may add operations to it."""

    def __init__(
        self,
        log: OwnedPartition,
        state: HeapState,
        *,
        clock: Clock,
        append_bytes: int,
        before_append: Callable[[], None],
    ) -> None:
        self.ended: HoldfastError | None = None
        self.compression = "none"
        self.apply_ms = Histogram(LATENCY_BOUNDS_MS)  # of each batch, from its append to durable
        self.wake = Notify()  # something for `run` to do, of this journal or its owner
        self._log, self._state, self._append_bytes, self._before_append = log, state, append_bytes, before_append
        self._clock = clock
        self._steady_ms = clock.now_ms() - clock.boot_ms()
        self._records: list[PlainRecord] = []
        self._removals_end = 0  # after the last record by which a message may not be ready any more
        self._bytes = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._scheduled = False
        self._deferred: tuple[bytes, int, list[asyncio.Future[None]]] | None = None  # an append that has to wait

    def now_ms(self) -> int:
        """The wall clock as it was when this leadership began, and the time since: it does not jump."""
        return self._clock.boot_ms() + self._steady_ms

    def check(self) -> None:
        """Raise unless operations are taken. `NotLeaderError`, `UnavailableError`: try again, here or elsewhere."""
        if self.ended is not None:
            raise self._not_leader(self.ended)
        try:
            self._log.check_accepting()
        except _LEADERSHIP_LOST as error:
            raise self._not_leader(error) from error
        if self._deferred is not None and self._bytes >= _WAITING_BYTES_MAX:
            raise UnavailableError(f"partition {self._log.partition_id}", "too much waits to be appended")

    def checked_bytes(self, messages: Sequence[Enqueue]) -> int:
        """At most how many bytes messages take. `InvalidError`: more than a batch can hold."""
        most = self._log.append_bytes_max
        _, payloads, _, _, _, partition_keys, origins, headers, fairness_keys = zip(*messages, strict=True)
        total, size = len(messages), sum(map(len, payloads))
        plain = all(each.count(None) == total for each in (partition_keys, origins, fairness_keys))
        if plain and not any(headers):
            size += _PLAIN_BYTES * total
        else:
            for message in messages:
                keyed = message.partition_key is not None or message.fairness_key is not None
                plain = not keyed and message.origin is None and not message.headers
                size += _PLAIN_BYTES if plain else _MESSAGE_BYTES + _size_of(message.headers)
        if size > most:
            raise InvalidError("bytes of a batch", size, f"at most {most}; a larger wal.file_bytes allows more")
        return size

    def add(self, operations: Sequence[Operation], size_bytes: int = 0) -> int:
        """Apply operations, and append them in one batch, in this turn; the offset of the first. The caller has called `check`.

        `size_bytes`: at most so many, if they have payloads.
        """
        state, now_ms = self._state, self.now_ms()
        first = state.next_offset
        if self._records and self._bytes + size_bytes > self._log.append_bytes_max:
            self._flush()
        encoded = [encode_operation(operation) for operation in operations]  # what cannot be written is not applied
        for offset, (operation, (key, value, headers)) in enumerate(zip(operations, encoded, strict=True), first):
            state.apply(offset, now_ms, operation)
            if isinstance(operation, _REMOVALS):
                self._removals_end = offset + 1
            self._records.append((len(self._records), now_ms, key, value, headers))
            self._bytes += len(key) + len(value) + _RECORD_BYTES
            if headers:
                self._bytes += _size_of(headers)
        self._added()
        return first

    def add_messages(self, messages: Sequence[Enqueue], size_bytes: int, now_ms: int) -> int:
        """`add` of messages, at most so many bytes. `now_ms`: the time that is part of their ids."""
        state, records = self._state, self._records
        first = state.next_offset
        if records and self._bytes + size_bytes > self._log.append_bytes_max:
            self._flush()
            records = self._records
        keys = enqueue_keys(messages)  # what cannot be written is not applied
        state.apply_enqueues(first, now_ms, messages)
        _, payloads, _, _, _, _, _, headers, _ = zip(*messages, strict=True)
        records += zip(count(len(records)), repeat(now_ms), keys, payloads, headers, strict=False)
        self._bytes += sum(map(len, keys)) + sum(map(len, payloads)) + _RECORD_BYTES * len(keys)
        if any(headers):
            self._bytes += sum(map(_size_of, headers))
        self._added()
        return first

    def _added(self) -> None:
        if self._bytes >= min(self._append_bytes, self._log.append_bytes_max // 4):
            self._flush()
        else:
            self.schedule()

    def schedule(self) -> None:
        """Have a turn soon."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def durable(self) -> "asyncio.Future[None]":
        """Done once everything added so far is durable. Raises what an append raises. `OutcomeUnknownError`: leadership is lost."""
        return self._durable_to(self._state.next_offset)

    def removals_durable(self) -> "asyncio.Future[None]":
        """`durable` of every message that was ready and is not any more; what became ready since need not be."""
        return self._durable_to(self._removals_end)

    def _durable_to(self, end: int) -> "asyncio.Future[None]":
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.ended is not None:  # what was added may have no place in the log: the next view writes there
            _resolve([waiter], self._outcome_unknown(self.ended))
        elif self._records and end > self._state.next_offset - len(self._records):
            self._waiters.append(waiter)
        elif self._deferred is not None and end > self._deferred[1]:  # the log knows nothing of it yet
            self._deferred[2].append(waiter)
        else:
            self._log.notify_durable(end, lambda error: _resolve([waiter], self._unknown(error)))
        return waiter

    async def append_deferred(self) -> None:
        """Append what could not be appended at once, and what came since."""
        while self._deferred is not None and self.ended is None:
            batch, base, waiters = self._deferred
            try:
                found = await self._log.append(batch)
            except HoldfastError as error:
                _resolve(waiters, self._not_leader(error))
                self._deferred = None
                self.end(error)
                return
            self._deferred = None
            self._appended(found, base, waiters)
            self._flush()

    def end(self, error: HoldfastError) -> None:
        """Take nothing more. What was not appended never will be; what was, is answered by the log."""
        if self.ended is not None:
            return
        self.ended = error
        waiters, self._waiters = self._waiters, []
        if self._deferred is not None:  # it may be on its way, and get into the log yet
            _resolve(self._deferred[2], self._outcome_unknown(error))
        self._records.clear()
        _resolve(waiters, self._not_leader(error))
        self.wake.notify()

    def _turn(self) -> None:
        self._scheduled = False
        if self.ended is None:
            self._before_append()
            self._flush()

    def _flush(self) -> None:
        """Append what was added as one batch, unless an earlier one still waits."""
        if not self._records or self._deferred is not None or self.ended is not None:
            return
        records, waiters = self._records, self._waiters
        self._records, self._waiters, self._bytes = [], [], 0
        base = self._state.next_offset - len(records)
        failpoints.reached("heap.before-append")
        try:
            batch = encode(records, compression=self.compression)
            found = self._log.append_now(batch) if self._log.next_offset == base else -1
        except HoldfastError as error:
            _resolve(waiters, self._not_leader(error))
            self.end(error)
            return
        if found is None:
            self._deferred = (batch, base, waiters)
            self.wake.notify()
        else:
            self._appended(found, base, waiters)

    def _appended(self, found: int, base: int, waiters: "list[asyncio.Future[None]]") -> None:
        """A batch has its place; if that is another one than expected, an earlier append was undone below us. -1: it has none."""
        if found != base:
            error = NotLeaderError(
                self._log.partition_id.topic, self._log.partition_id.number, reason="an append failed"
            )
            _resolve(waiters, error if found < 0 else self._outcome_unknown(error))
            self.end(error)
            return
        failpoints.reached("heap.appended")
        appended_ms = self._clock.boot_ms()
        end = self._state.next_offset - len(self._records)

        def on_durable(error: BaseException | None) -> None:
            if error is None:
                failpoints.reached("heap.durable")
                self.apply_ms.observe(self._clock.boot_ms() - appended_ms)
            _resolve(waiters, self._unknown(error))
            if isinstance(error, HoldfastError):
                self.end(error)

        self._log.notify_durable(end, on_durable)

    def _not_leader(self, error: HoldfastError) -> HoldfastError:
        which = self._log.partition_id
        if isinstance(error, NotLeaderError):
            return error
        return NotLeaderError(which.topic, which.number, reason=f"nothing was changed: {error}")

    def _unknown(self, error: BaseException | None) -> BaseException | None:
        """Why what was appended is not durable here: whoever leads next may find it in the log, or not."""
        return self._outcome_unknown(error) if isinstance(error, _LEADERSHIP_LOST) else error

    def _outcome_unknown(self, error: BaseException) -> OutcomeUnknownError:
        return OutcomeUnknownError(f"operation of {self._log.partition_id}", str(error))


def _size_of(headers: Headers) -> int:
    return sum(len(name) * 4 + len(value or b"") + 10 for name, value in headers)


def _resolve(waiters: "list[asyncio.Future[None]]", error: BaseException | None) -> None:
    for waiter in waiters:
        if not waiter.done():
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)
                waiter.exception()  # whoever waited may be gone
