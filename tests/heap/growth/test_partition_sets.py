"""Where an enqueue is looked for, and what a spine that knows of fewer partitions may do: nothing of it needs a process."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.heap.errors import PartitionsGrownError
from holdfast.heap.growth.look_up import AskedHomes, highest_numbers
from holdfast.heap.growth.partition_sets import PartitionSets, check_home, earlier_homes, home_of, sets_of
from holdfast.heap.model import NewMessage
from holdfast.heap.partition_state import HeapState
from holdfast.heap.records import Enqueue, PartitionCount, ProducerSequence, Reserve
from holdfast.heap.routing import MessageRouter, partition_of_key
from holdfast.heap.spine.leader_end import LeaderEnd
from holdfast.heap.spine.messages import Advert, Refused, SpineHello
from holdfast.log.topics import GROWTHS_MAX, HEAP, Topic, earlier_partitions, with_partitions
from holdfast.vocabulary.errors import InvalidError

DAY_MS = 86_400_000


def message(key: str | None = None, **more: object) -> NewMessage:
    return NewMessage(payload=b"", partition_key=key, producer=ProducerSequence("p", 0, 1), **more)  # type: ignore[arg-type]


def heap(partitions: int) -> Topic:
    return Topic(id="0" * 32, name="jobs", partitions=partitions, created_at_ms=0, kind=HEAP, heap={"mode": "min"})


@given(st.text(max_size=10), st.lists(st.integers(1, 6), min_size=1, max_size=6))
def test_every_earlier_home_of_a_key_is_asked_by_the_partition_it_belongs_to_now(key: str, steps: list[int]) -> None:
    topic = heap(1)
    for at, step in enumerate(steps):
        topic = with_partitions(topic, topic.partitions + step, now_ms=at)
    sets = sets_of(topic)
    here = partition_of_key(key, sets.partitions)
    before = {partition_of_key(key, count) for count, _ in sets.earlier} - {here}
    assert set(earlier_homes(message(key), here, sets, window_ms=DAY_MS, now_ms=10)) == before
    assert MessageRouter().partition(message(key), sets.partitions) == home_of(message(key), sets.partitions) == here
    assert earlier_homes(message(key), here, sets, window_ms=DAY_MS, now_ms=2 * DAY_MS + len(steps)) == ()


def test_a_message_that_is_pinned_or_moved_or_has_no_number_is_looked_for_nowhere_else() -> None:
    assert home_of(message("a", pinned=True), 9) is None
    assert home_of(NewMessage(payload=b"", partition_key="a"), 9) is None
    assert home_of(NewMessage(payload=b"", producer=ProducerSequence("~move/x/1", 0, 1)), 9) is None
    assert home_of(message(), 9) is not None


def test_a_heap_remembers_its_first_size_for_ever_and_others_for_two_months() -> None:
    topic = heap(1)
    for count in range(2, GROWTHS_MAX + 2):
        topic = with_partitions(topic, count, now_ms=1_000)
    with pytest.raises(InvalidError, match="at most 64"):
        with_partitions(topic, GROWTHS_MAX + 2, now_ms=2_000)
    later = with_partitions(topic, GROWTHS_MAX + 2, now_ms=1_000 + 62 * DAY_MS)
    assert earlier_partitions(later) == ((1, 1_000), (GROWTHS_MAX + 1, 1_000 + 62 * DAY_MS))
    assert sets_of(later) == PartitionSets(GROWTHS_MAX + 2, earlier_partitions(later))
    assert sets_of(later).created_with == 1


def test_a_partition_that_knows_of_the_growth_takes_what_belongs_to_it_and_what_it_knows_alone() -> None:
    key = next(key for key in map(str, range(100)) if partition_of_key(key, 2) == 0 != partition_of_key(key, 5))
    state, options = HeapState("min"), {"window_ms": 1_000, "now_ms": 500}
    check_home(state, "jobs", 0, message(key), **options)
    state.apply(0, 100, PartitionCount(5))
    with pytest.raises(PartitionsGrownError):
        check_home(state, "jobs", 0, message(key), **options)
    check_home(state, "jobs", 0, message(key, pinned=True), **options)
    state.apply(1, 100, Enqueue(0, b"", producer=ProducerSequence("p", 0, 1)))
    check_home(state, "jobs", 0, message(key), **options)
    with pytest.raises(PartitionsGrownError):  # its window is over: it would be new here
        check_home(state, "jobs", 0, message(key), window_ms=1_000, now_ms=1_100)


def test_what_must_be_asked_for_is_up_to_the_highest_number_that_is_known_or_reserved() -> None:
    state, key = HeapState("min"), ProducerSequence("p", 0, 1)
    assert highest_numbers(state, [key]) == [("p", 0, -1)]
    state.apply(0, 100, Enqueue(0, b"", producer=key))
    state.apply(1, 100, Reserve("b", Enqueue(0, b"", producer=ProducerSequence("p", 0, 7))))
    asked = AskedHomes()
    assert asked.must_ask(0, key)
    asked.answered(0, highest_numbers(state, [key]))
    found = [asked.must_ask(0, ProducerSequence("p", 0, number)) for number in (1, 7, 8)]
    assert found == [True, True, False]
    assert asked.must_ask(1, ProducerSequence("p", 0, 8))
    assert asked.must_ask(0, ProducerSequence("p", 1, 8))


def test_a_leader_whose_log_knows_of_more_partitions_refuses_a_spine_that_does_not() -> None:
    end = LeaderEnd(0, 1, spine_epoch=3, unknown_to_spines=True, partitions=6)
    for known in (0, 2, 5):  # 0: of a release that does not tell
        hello = SpineHello(spine_epoch=9, round=1, budget=0, fan_out=1, settled=0, partitions=known)
        assert isinstance(end.refuses(hello), Refused)
    assert end.refuses(SpineHello(spine_epoch=4, round=1, budget=0, fan_out=1, settled=0, partitions=6)) is None


def test_a_new_partition_acknowledges_nothing_before_a_spine_has_said_hello() -> None:
    end = LeaderEnd(4, 1, spine_epoch=0, unknown_to_spines=False)
    assert end.ready(5) == 1
    assert end.needs_hello
    end.adopt(SpineHello(spine_epoch=1, round=1, budget=0, fan_out=1, settled=0, partitions=5))
    assert isinstance(end.advert(lambda count: ([5], True), 1), Advert)
