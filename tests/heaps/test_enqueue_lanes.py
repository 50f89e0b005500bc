"""Which messages leave together, when, and to which partition."""

import asyncio
from collections import Counter

import pytest

from holdfast.heap.model import NewMessage
from holdfast.heaps.enqueue_lanes import Lane, SharedLane, WaitingMessages, cut, message_bytes


def given(count: int = 1, size_bytes: int = 10) -> WaitingMessages:
    messages = [NewMessage(payload=b"x")] * count
    return WaitingMessages(messages, size_bytes, asyncio.get_running_loop().create_future())


def shared(partitions: int) -> SharedLane:
    lane = SharedLane()
    lane.partitions = partitions
    return lane


async def test_messages_of_one_partition_never_wait_for_more() -> None:
    lane = Lane(3)
    lane.add(given())
    assert (lane.lingers(), lane.begin().partition) == (False, 3)
    lane.add(given())
    assert not lane.lingers()


async def test_the_first_message_leaves_at_once_and_what_comes_meanwhile_waits_for_more() -> None:
    lane = shared(4)
    lane.add(given())
    assert not lane.lingers()
    lane.take()
    request = lane.begin()
    lane.add(given())
    assert lane.lingers()
    lane.end(request)
    assert not lane.lingers()


async def test_a_request_that_hangs_is_waited_for_once() -> None:
    lane = shared(4)
    lane.begin()
    lane.add(given())
    assert lane.lingers()
    lane.take()
    lane.end(lane.begin())  # the next one, which is answered
    lane.add(given())
    assert not lane.lingers()


@pytest.mark.parametrize("full", [{"count": 100}, {"size_bytes": 1 << 16}])
async def test_a_full_request_waits_for_nothing(full: dict[str, int]) -> None:
    lane = shared(4)
    lane.begin()
    lane.add(given(**full))
    assert not lane.lingers()
    lane.take()
    lane.add(given())
    assert lane.lingers()  # what left counts no more


async def test_a_request_takes_a_thousand_messages_at_most_and_leaves_out_those_of_cancelled_callers() -> None:
    lane = shared(2)
    gone, first, second = given(600), given(600), given(600)
    for each in (gone, first, second):
        lane.add(each)
    gone.answer.cancel()
    assert [lane.take(), lane.take()] == [[first], [second]]
    assert lane.is_idle


async def test_requests_go_round_all_partitions() -> None:
    lane = shared(5)
    places = Counter[int]()
    for _ in range(50):
        places[(request := lane.begin()).partition] += 1
        lane.end(request)
    assert places == dict.fromkeys(range(5), 10)


async def test_a_partition_that_does_not_answer_gets_no_more_and_the_others_share_its_turns() -> None:
    lane = shared(5)
    places = Counter[int]()
    for _ in range(101):
        places[(request := lane.begin()).partition] += 1
        if request.partition != 2:
            lane.end(request)
    assert places == {0: 25, 1: 25, 2: 1, 3: 25, 4: 25}


async def test_when_every_partition_is_busy_the_least_busy_one_is_next_and_there_is_a_limit() -> None:
    lane = shared(3)
    requests = [lane.begin() for _ in range(24)]
    assert Counter(request.partition for request in requests) == {0: 8, 1: 8, 2: 8}
    assert not lane.has_room()
    lane.end(next(request for request in requests if request.partition == 1))
    assert (lane.has_room(), lane.begin().partition) == (True, 1)


async def test_a_heap_that_has_more_partitions_now_uses_them() -> None:
    lane = shared(2)
    assert {lane.begin().partition for _ in range(2)} == {0, 1}
    lane.partitions = 4
    assert {lane.begin().partition for _ in range(2)} == {2, 3}


async def test_a_request_has_a_mebibyte_at_most_or_what_was_given_together() -> None:
    lane = Lane(0)
    sizes = [400_000, 600_000, 100_000, 2_000_000, 1]
    for size in sizes:
        lane.add(given(size_bytes=size))
    assert [[each.size_bytes for each in lane.take()] for _ in range(4)] == [
        [400_000, 600_000],
        [100_000],
        [2_000_000],
        [1],
    ]


def test_many_are_cut_by_their_number_and_bytes() -> None:
    assert list(cut([])) == []
    assert list(cut([5] * 2_500)) == [(0, 1_000), (1_000, 2_000), (2_000, 2_500)]
    assert list(cut([600_000, 400_000, 400_000, 3_000_000, 1])) == [(0, 2), (2, 3), (3, 4), (4, 5)]


def test_headers_count() -> None:
    assert message_bytes(NewMessage(payload=b"12345")) == 5
    assert message_bytes(NewMessage(payload=b"12345", headers=(("name", b"value"), ("none", None)))) == 5 + 17 + 12
