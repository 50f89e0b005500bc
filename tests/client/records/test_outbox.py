"""What is unacknowledged: budget, futures, flushes. Without a broker."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast.client.records.model import PartlySentError, RecordMetadata
from holdfast.client.records.outbox import ManyRecords, Outbox, Parcel, resolve
from holdfast.client.records.send_budget import SendBudget
from holdfast.client.records.settings import ProducerSettings
from holdfast.vocabulary.errors import HoldfastError, UnavailableError

SETTINGS = ProducerSettings(buffer_records_max=3, buffer_bytes_max=1_024)
DONE = RecordMetadata("orders", 0, 7, 1)
FAILED = UnavailableError("Kafka", "gone")


@dataclass
class Reported:
    parcel: Parcel
    index: int
    error: object
    message: Any


def report(parcel: Parcel | None, outcome: object, index: int = 0) -> Reported:
    assert parcel is not None
    return Reported(parcel, index, outcome if isinstance(outcome, HoldfastError) else None, outcome)


def outcome(reported: Reported) -> Any:
    return reported.message


def test_a_record_waits_when_records_or_bytes_are_used_up_but_a_large_one_is_admitted_alone() -> None:
    budget = SendBudget(records_max=2, bytes_max=100)
    assert budget.reserve(1, 500)
    assert not budget.reserve(1, 1)
    budget.release(1, 500)
    assert budget.reserve(1, 60)
    assert not budget.reserve(1, 60)
    assert budget.reserve(1, 40)
    assert not budget.reserve(1, 0)
    assert (budget.records, budget.bytes) == (2, 100)


def test_room_is_given_back_by_reports_and_by_what_was_not_queued() -> None:
    outbox = Outbox(SETTINGS)
    many = ManyRecords(future="f")
    parcel = outbox.reserve(3, 300, many=many)
    assert parcel is not None
    assert outbox.reserve(1, 1) is None
    outbox.cancel(parcel, 1, 100)
    assert len(many.outcomes) == 2
    assert outbox.settle([report(parcel, DONE, 0), report(parcel, DONE, 1)], outcome) == []
    assert outbox.unacknowledged == 0
    assert many.complete(1)
    assert many.result() == [DONE, DONE]
    assert outbox.reserve(1, 1_024, future="g") is not None


def test_a_flush_waits_for_what_was_sent_before_it_alone_and_has_its_first_error() -> None:
    outbox = Outbox(SETTINGS)
    first = outbox.reserve(1, 10, future="a")
    periods = outbox.begin_flush()
    later = outbox.reserve(1, 10, future="b")
    assert [period.pending for period in periods] == [1]
    assert outbox.settle([report(first, FAILED)], outcome) == [("a", FAILED)]
    assert [period.pending for period in periods] == [0]
    assert outbox.end_flush(periods) is FAILED
    assert outbox.settle([report(later, DONE)], outcome) == [("b", DONE)]
    assert outbox.end_flush(outbox.begin_flush()) is None


def test_an_error_that_somebody_waits_for_is_not_repeated_by_flush() -> None:
    outbox = Outbox(SETTINGS)
    parcel = outbox.reserve(1, 10, future="a", reported=True)
    periods = outbox.begin_flush()
    outbox.settle([report(parcel, FAILED)], outcome)
    assert outbox.end_flush(periods) is None


def test_many_records_of_which_some_fail_have_the_outcome_of_each() -> None:
    outbox = Outbox(SETTINGS)
    many = ManyRecords(future="f")
    parcel = outbox.reserve(2, 20, many=many)
    many.complete(1)
    ((future, found),) = outbox.settle([report(parcel, FAILED, 1), report(parcel, DONE, 0)], outcome)
    assert future == "f"
    assert isinstance(found, PartlySentError)
    assert found.outcomes == [DONE, FAILED]
    assert str(found) == "1 of 2 records were not acknowledged; the first: Kafka is unavailable: gone"


async def test_a_future_that_was_given_up_is_left_alone() -> None:
    future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
    future.cancel()
    resolve(future, DONE)
    other: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
    resolve(other, FAILED)
    with pytest.raises(UnavailableError):
        await other
