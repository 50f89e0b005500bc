"""Outbox: the records of one producer that are not acknowledged yet, and who waits for them. No I/O, no waiting.

The one rule: `flush` answers for what was sent before it and for nothing else, so that it ends although others go on sending.
Records are counted by the periods between flushes. Not thread-safe: its owner serializes the calls.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.client.records.model import PartlySentError, RecordMetadata
from holdfast.client.records.send_budget import SendBudget
from holdfast.client.records.settings import ProducerSettings
from holdfast.vocabulary.errors import HoldfastError

Outcome = RecordMetadata | HoldfastError


@dataclass(slots=True)
class SendPeriod:
    """The records sent between two flushes: how many are pending, and the first failure that nobody waits for."""

    pending: int = 0
    error: HoldfastError | None = None


@dataclass(slots=True)
class ManyRecords:
    """The records of one `send_many`. `future` is resolved when all have an outcome."""

    future: Any
    outcomes: list[Outcome | None] = field(default_factory=list)
    pending: int = 1  # one more while it is being filled

    def complete(self, count: int) -> bool:
        """So many less are pending; True: none is."""
        self.pending -= count
        return not self.pending

    def result(self) -> Any:
        """All metadata, or an error that has the outcome of each."""
        failed = any(isinstance(each, HoldfastError) for each in self.outcomes)
        return PartlySentError(self.outcomes) if failed else self.outcomes  # type: ignore[arg-type]


class Parcel(msgspec.Struct, gc=False):
    """Records that got room together: one with a future of its own, or some of `ManyRecords`.

    `reported`: somebody waits for its failure, flush does not repeat it.
    """

    period: SendPeriod
    count: int
    size: int
    future: Any
    many: ManyRecords | None
    reported: bool


class Outbox:
    """Budget and pending records of one producer."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._budget = SendBudget(records_max=settings.buffer_records_max, bytes_max=settings.buffer_bytes_max)
        self._period = SendPeriod()
        self._flushed: list[SendPeriod] = []

    @property
    def unacknowledged(self) -> int:
        """How many records have no outcome yet."""
        return self._budget.records

    def reserve(
        self, count: int, size: int, *, future: Any = None, many: ManyRecords | None = None, reported: bool = False
    ) -> Parcel | None:
        """Room for records that are to be queued at once; None: wait for reports."""
        if not self._budget.reserve(count, size):
            return None
        self._period.pending += count
        if many is not None:
            many.outcomes.extend([None] * count)
            many.pending += count
        return Parcel(self._period, count, size, future, many, reported)

    def cancel(self, parcel: Parcel, count: int, size: int) -> None:
        """The last `count` records of a parcel were not queued after all."""
        self._budget.release(count, size)
        parcel.count -= count
        parcel.size -= size
        parcel.period.pending -= count
        if parcel.many is not None:
            del parcel.many.outcomes[-count:]
            parcel.many.pending -= count
        if not parcel.count:
            self._budget.bytes -= parcel.size

    def settle(self, reports: Iterable[Any], outcome_of: Callable[[Any], Outcome]) -> list[tuple[Any, Any]]:
        """Futures to resolve, each with its result or error."""
        resolved: list[tuple[Any, Any]] = []
        for report in reports:
            parcel: Parcel = report.parcel
            outcome = outcome_of(report)
            if report.error is not None and not parcel.reported and parcel.period.error is None:
                assert isinstance(outcome, HoldfastError)
                parcel.period.error = outcome
            many = parcel.many
            if many is None:
                resolved.append((parcel.future, outcome))
            else:
                many.outcomes[report.index] = outcome
                many.pending -= 1
                if not many.pending:
                    resolved.append((many.future, many.result()))
            parcel.count -= 1
            parcel.period.pending -= 1
            self._budget.records -= 1
            if not parcel.count:  # bytes are counted by parcel
                self._budget.bytes -= parcel.size
        return resolved

    def begin_flush(self) -> list[SendPeriod]:
        """The periods that a flush which begins now waits for."""
        if self._period.pending or self._period.error is not None:
            self._flushed.append(self._period)
            self._period = SendPeriod()
        return list(self._flushed)

    def end_flush(self, periods: list[SendPeriod]) -> HoldfastError | None:
        """The flush is over; the first failure in it."""
        done = {id(each) for each in periods if not each.pending}
        self._flushed = [each for each in self._flushed if id(each) not in done]
        return next((each.error for each in periods if each.error is not None), None)


def resolve(future: Any, outcome: Any) -> None:
    """Resolve a future of asyncio or of a thread, unless its owner has given it up."""
    if future.done():
        return
    if isinstance(outcome, HoldfastError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
