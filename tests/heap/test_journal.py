"""The way into the log when the leadership is over: its errors are a log's, and clients get those they can act upon."""

from typing import Any

import pytest

from holdfast.heap.journal import Journal
from holdfast.heap.partition_state import HeapState
from holdfast.heap.records import Enqueue
from holdfast.log.errors import NotLeaderError
from holdfast.log.model import OnDurable, PartitionId
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.errors import ClosedError, ExpiredError, FencedError, HoldfastError, OutcomeUnknownError

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

    def append_now(self, batch: bytes) -> int:
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
