"""What may be sent when: credit per stream and per partition, order, bounded memory, lag."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agent.peers.frames import MESSAGE_BYTES, MessageClass
from holdfast.agent.peers.send_queue import STREAM, Credit, Outgoing, SendQueue
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import SeededRandom

OVERHEAD = MESSAGE_BYTES + 1  # keys below have one byte
CREDIT = Credit(stream_bytes=100, partition_bytes=40, control_bytes=50, frame_bytes_max=1_000)


def message(key: str, size: int, kind: MessageClass = MessageClass.DATA) -> Outgoing:
    """A message that costs `size` bytes of credit."""
    return Outgoing(key.encode(), kind, [bytes(size - OVERHEAD)], lambda _: None)


def queue(lag_ms: int = 1_000) -> SendQueue:
    return SendQueue(CREDIT, lag_ms=lag_ms)


def taken(sent: list[Outgoing]) -> str:
    return "".join(each.key.decode() for each in sent)


def test_partitions_take_turns_and_each_keeps_its_order() -> None:
    waiting = queue()
    offered = [message(key, 10) for key in "aaabb"]
    assert all(map(waiting.offer, offered))
    sent = waiting.take(0)
    assert taken(sent) == "ababa"
    assert [each for each in sent if each.key == b"a"] == offered[:3]


def test_a_partition_without_credit_holds_up_itself_alone() -> None:
    waiting = queue()
    for _ in range(2):
        waiting.offer(message("a", 20))
    first = waiting.take(0)
    assert taken(first) == "aa", "as much as one partition may have unanswered"
    for key in "aab":
        assert waiting.offer(message(key, 20))
    assert taken(waiting.take(0)) == "b"
    waiting.answered(first[0])
    assert taken(waiting.take(0)) == "a"
    assert waiting.credit_waits == 2, "once for each of the two that waited"


def test_control_messages_need_no_credit_of_the_others_and_overtake_them() -> None:
    waiting = queue()
    for key in "abc":
        waiting.offer(message(key, 40))
    assert taken(waiting.take(0)) == "ab", "the stream's credit ends here"
    waiting.offer(message("z", 20, MessageClass.CONTROL))
    assert taken(waiting.take(0)) == "z"


def test_control_messages_are_bounded_too() -> None:
    waiting = queue()
    assert [waiting.offer(message("z", 20, MessageClass.CONTROL)) for _ in range(6)] == [True] * 5 + [False]
    assert len(waiting.take(0)) == 2
    assert not waiting.take(0), "40 of 50 bytes are unanswered"


def test_one_message_larger_than_the_credit_is_sent_when_nothing_else_is_unanswered() -> None:
    waiting = queue()
    waiting.offer(message("a", 500))
    (large,) = waiting.take(0)
    assert waiting.unanswered_bytes == 500
    waiting.offer(message("b", 10))
    assert not waiting.take(0)
    waiting.answered(large)
    assert taken(waiting.take(0)) == "b"


def test_a_message_larger_than_a_frame_is_an_error() -> None:
    with pytest.raises(InvalidError, match="invalid message size 1001: must be at most 1000"):
        queue().offer(message("a", 1_001))


def test_a_frame_is_no_larger_than_its_limit() -> None:
    waiting = SendQueue(
        Credit(stream_bytes=100, partition_bytes=100, control_bytes=50, frame_bytes_max=25), lag_ms=1_000
    )
    for _ in range(4):
        waiting.offer(message("a", 10))
    assert [taken(waiting.take(0)) for _ in range(3)] == ["aa", "aa", ""]


def test_what_does_not_fit_in_memory_is_refused() -> None:
    waiting = queue()
    assert [waiting.offer(message("a", 20)) for _ in range(5)] == [True] * 4 + [False], (
        "one partition, twice its credit"
    )
    assert [waiting.offer(message(key, 40)) for key in "bcde"] == [True, True, True, False], "the stream"
    assert waiting.queued_bytes == 200


def test_a_partition_out_of_credit_for_too_long_is_lagging_until_all_is_answered() -> None:
    waiting = queue(lag_ms=1_000)
    unanswered: list[Outgoing] = []
    for _ in range(2):
        waiting.offer(message("a", 40))
        unanswered = waiting.take(5) or unanswered
    waiting.offer(message("b", 10))
    assert waiting.drop_lagging(1_004) == ([], [])
    late, dropped = waiting.drop_lagging(1_005)
    assert (late, taken(dropped)) == ([b"a"], "a")
    assert (waiting.is_lagging(b"a"), waiting.is_lagging(b"b")) == (True, False)
    assert not waiting.offer(message("a", 10)), "not queued while it lags"
    assert waiting.drop_lagging(9_999) == ([], []), "reported once"
    assert taken(waiting.take(9_999)) == "b"
    assert [waiting.answered(each) for each in unanswered] == [[b"a"]], "it may be sent to again"
    assert waiting.offer(message("a", 10))


def test_a_stream_out_of_credit_for_too_long_lags_as_a_whole() -> None:
    waiting = queue(lag_ms=1_000)
    for key in "abcd":
        waiting.offer(message(key, 40))
        if key == "b":
            sent = waiting.take(0)
    assert not waiting.take(0)
    late, dropped = waiting.drop_lagging(1_000)
    assert (late, taken(dropped)) == ([STREAM], "cd")
    assert waiting.queued_bytes == 0
    assert not waiting.offer(message("e", 10))
    assert waiting.answered(sent[0]) == []
    assert waiting.answered(sent[1]) == [STREAM]
    assert waiting.offer(message("e", 10))


def test_a_partition_that_is_answered_now_and_then_is_slow_and_not_lagging() -> None:
    waiting = queue(lag_ms=1_000)
    for at_ms in range(0, 10_000, 900):
        waiting.offer(message("a", 40))
        for each in waiting.take(at_ms):
            waiting.answered(each)
        assert waiting.drop_lagging(at_ms) == ([], [])


def test_the_end_of_a_connection_returns_everything_that_was_never_sent() -> None:
    waiting = queue()
    for key in "aab":
        waiting.offer(message(key, 20))
    waiting.offer(message("z", 20, MessageClass.CONTROL))
    assert sorted(taken(waiting.clear())) == ["a", "a", "b", "z"]
    assert waiting.queued_bytes == 0
    assert not waiting.sendable


@given(st.integers(0, 10_000))
def test_whatever_happens_credit_memory_and_order_hold(seed: int) -> None:
    """Random offers, frames, answers and time: bounds are kept, nothing is sent twice, what is left over is empty."""
    random, waiting, now_ms = SeededRandom(seed).random, queue(lag_ms=50), 0
    unanswered: list[Outgoing] = []
    accepted: dict[bytes, list[Outgoing]] = {}
    for _ in range(60):
        now_ms += random.randrange(20)
        step = random.randrange(4)
        if step == 0:
            kind = random.choice([MessageClass.DATA] * 4 + [MessageClass.CONTROL])
            made = message(random.choice("abcd"), random.randrange(OVERHEAD, 60), kind)
            if waiting.offer(made) and kind is MessageClass.DATA:
                accepted.setdefault(made.key, []).append(made)
        elif step == 1:
            for each in waiting.take(now_ms):
                unanswered.append(each)
                if each.kind is MessageClass.DATA:
                    assert accepted[each.key].pop(0) is each, "in the order of its partition, once"
        elif step == 2 and unanswered:
            waiting.answered(unanswered.pop(random.randrange(len(unanswered))))
        else:
            for each in waiting.drop_lagging(now_ms)[1]:
                accepted[each.key].remove(each)
        _check_bounds(waiting, unanswered)
    for each in unanswered:
        waiting.answered(each)
    while sent := waiting.take(now_ms):
        for each in sent:
            waiting.answered(each)
    assert (waiting.unanswered_bytes, waiting.queued_bytes, waiting._partitions) == (0, 0, {})


def _check_bounds(waiting: SendQueue, unanswered: list[Outgoing]) -> None:
    data = [each for each in unanswered if each.kind is MessageClass.DATA]
    assert waiting.unanswered_bytes == sum(each.size for each in unanswered)
    for key in {each.key for each in data}:
        of_key = [each.size for each in data if each.key == key]
        assert sum(of_key) <= CREDIT.partition_bytes or len(of_key) == 1
    assert sum(each.size for each in data) <= CREDIT.stream_bytes
    held = waiting.queued_bytes + waiting.unanswered_bytes
    assert held <= 2 * (CREDIT.stream_bytes + CREDIT.control_bytes) + 60, "one that was taken when nothing waited"
