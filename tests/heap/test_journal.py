"""The way into the log when the leadership is over: its errors are a log's, and clients get those they can act upon."""

import asyncio
from typing import Any

import pytest

from holdfast.heap.journal import Journal
from holdfast.heap.partition_state import HeapState
from holdfast.heap.records import Enqueue
from holdfast.log.errors import NotLeaderError
from holdfast.log.model import OnDurable, PartitionId
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.errors import (
    ClosedError,
    ExpiredError,
    FencedError,
    HoldfastError,
    OutcomeUnknownError,
    UnavailableError,
)

LOST = [ExpiredError("session 1", "its local deadline has passed"), FencedError("log/0", 1, 2), ClosedError("log/0")]


class _Log:
    """A log whose leadership ends when a test says so."""

    partition_id = PartitionId(topic="jobs", topic_id="0" * 32, number=0)
    append_bytes_max = 1 << 20

    def __init__(self) -> None:
        self.next_offset = 0
        self.lost: HoldfastError | None = None
        self.waiting: list[OnDurable] = []

    def check_accepting(self) -> None:
        if self.lost is not None:
            raise self.lost

    def append_now(self, batch: bytes) -> int | None:
        self.next_offset += 1
        return self.next_offset - 1

    def notify_durable(self, end_offset: int, on_durable: OnDurable) -> None:
        self.waiting.append(on_durable)


def journal(log: Any) -> Journal:
    return Journal(log, HeapState("min"), clock=FakeClock(), append_bytes=1_000, before_append=lambda: None)


@pytest.mark.parametrize("lost", LOST, ids=lambda error: type(error).__name__)
async def test_what_is_asked_after_the_leadership_is_nothing_and_goes_elsewhere(lost: HoldfastError) -> None:
    log = _Log()
    log.lost = lost
    with pytest.raises(NotLeaderError, match="nothing was changed"):
        journal(log).check()


@pytest.mark.parametrize("lost", LOST, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("is_appended", [False, True])
async def test_what_was_on_its_way_then_has_an_unknown_outcome(lost: HoldfastError, is_appended: bool) -> None:
    log = _Log()
    way = journal(log)
    way.check()
    way.add((Enqueue(0, b"a"),))
    waiting = way.durable()
    way._turn()
    waiting = way.durable() if is_appended else waiting
    for on_durable in log.waiting:
        on_durable(lost)
    with pytest.raises(OutcomeUnknownError):
        await waiting


class _BusyLog(_Log):
    """A log where every append has to wait, and an earlier one is undone meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.room: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def append_now(self, batch: bytes) -> None:
        return None

    async def append(self, batch: bytes) -> int:
        await self.room
        return 0


@pytest.mark.parametrize("ends_first", [False, True])
async def test_what_gets_into_the_log_at_another_place_has_an_unknown_outcome(ends_first: bool) -> None:
    """It is in the log, so that to send it again would be a second time."""
    log = _BusyLog()
    way = journal(log)
    way._state.next_offset = log.next_offset = 1
    way.add((Enqueue(0, b"a"),))
    waiting = way.durable()
    way._turn()
    appending = asyncio.create_task(way.append_deferred())
    await asyncio.sleep(0)  # noqa: TID251
    if ends_first:
        way.end(UnavailableError("disk", "it is full"))
    log.room.set_result(None)
    await appending
    with pytest.raises(OutcomeUnknownError):
        await waiting
    assert way.ended is not None


async def test_what_waits_behind_it_is_nowhere() -> None:
    log = _BusyLog()
    way = journal(log)
    way.add((Enqueue(0, b"a"),))
    way._turn()
    way.add((Enqueue(0, b"b"),))
    waiting = way.durable()
    way.end(UnavailableError("disk", "it is full"))
    with pytest.raises(NotLeaderError, match="nothing was changed"):
        await waiting


class _FullLog(_BusyLog):
    """A log where every append has to wait, and is then refused."""

    async def append(self, batch: bytes) -> int:
        await self.room
        raise UnavailableError("disk", "it is full")


@pytest.mark.parametrize("is_large", [False, True])
async def test_what_waits_for_room_is_not_told_durable_by_what_another_view_appends_there(is_large: bool) -> None:
    """The log goes on below the next view, so that what it says of these offsets is about other records."""
    log = _FullLog()
    way = journal(log)
    way.add((Enqueue(0, b"a" * (2_000 if is_large else 1)),))  # a large one is appended at once
    if not is_large:
        way._turn()
    waiting = way.durable(), way.removals_durable()
    appending = asyncio.create_task(way.append_deferred())
    log.room.set_result(None)
    await appending
    for on_durable in log.waiting:
        on_durable(None)
    with pytest.raises(NotLeaderError, match="nothing was changed"):
        await waiting[0]
    await waiting[1]  # nothing was removed


async def test_what_is_asked_of_a_view_that_has_ended_has_an_unknown_outcome() -> None:
    log = _Log()
    way = journal(log)
    way.add((Enqueue(0, b"a"),))
    way.end(UnavailableError("disk", "it is full"))
    waiting = way.durable()
    assert log.waiting == []
    with pytest.raises(OutcomeUnknownError):
        await waiting
