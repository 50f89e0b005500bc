"""The spine's protocol, step by step: budgets, adverts, pops, hellos."""

import pytest

from holdfast.heap.spine.leader_end import LeaderEnd
from holdfast.heap.spine.messages import (
    Advert,
    AdvertAck,
    Granted,
    Pop,
    Refill,
    SpineHello,
    decode_to_leader,
    decode_to_spine,
    encode,
)
from holdfast.heap.spine.rank_bound import RankBound
from holdfast.heap.spine.ready_budget import ReadyBudget
from holdfast.heap.spine.spine import Spine
from holdfast.vocabulary.errors import InvalidError


def advert(
    number: int = 1, *ranks: int, partition: int = 0, complete: bool = False, round_: int = 1, offset: int = 0
) -> Advert:
    return Advert(partition, 1, 1, round_, number, offset, ranks, complete)


def spine_of(*heads: tuple[int, ...], k: int = 1, in_flight: int | None = None, complete: bool = True) -> Spine:
    """A spine that knows a partition of each of these ranks."""
    spine = Spine(1, RankBound.split(k, len(heads), in_flight=in_flight), fan_out=8)
    for partition, ranks in enumerate(heads):
        hello = spine.hello(partition)
        assert spine.take_advert(advert(1, *ranks, partition=partition, complete=complete, round_=hello.round))
    return spine


def popped(spine: Spine, wanted: int) -> list[tuple[int, Pop]]:
    return [(partition, message) for partition, message in spine.plan(wanted) if isinstance(message, Pop)]


@pytest.mark.parametrize(
    ("k", "partitions", "in_flight", "budget", "left"),
    [
        (1, 20, 0, 0, 0),
        (100, 20, 0, 5, 4),
        (100, 20, None, 2, 61),
        (10, 1, 0, 0, 9),
        (20, 20, 0, 1, 0),
        (19, 20, 0, 0, 18),
    ],
)
def test_a_bound_is_split_into_a_budget_and_reservations(
    k: int, partitions: int, in_flight: int | None, budget: int, left: int
) -> None:
    bound = RankBound.split(k, partitions, in_flight=in_flight)
    assert (bound.budget, bound.in_flight) == (budget, left)
    assert bound.of(bound.in_flight) == k, "all of it is used"


def test_a_bound_that_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidError, match="invalid k 0"):
        RankBound.split(0, 2)
    with pytest.raises(InvalidError, match="invalid in_flight 5"):
        RankBound.split(3, 2, in_flight=5)


def test_events_beyond_the_budget_wait_for_an_advert_that_shows_them() -> None:
    budget = ReadyBudget(1)
    budget.sent(advert(1, 10, 20))
    assert budget.acknowledge(1) == []
    assert budget.ready(1, 30), "worse than the tail: it cannot be popped too late"
    assert budget.ready(2, 15)
    assert not budget.ready(3, 16)
    assert budget.must_advertise
    budget.sent(advert(2, 10, 15))
    assert not budget.must_advertise
    assert budget.acknowledge(2) == [3]


def test_an_event_counts_under_every_advert_that_the_spine_may_be_using() -> None:
    budget = ReadyBudget(0)
    budget.sent(advert(1, 1, 10))
    budget.acknowledge(1)
    budget.sent(advert(2, 20, 30))  # after pops: its tail is worse
    assert not budget.ready(1, 15), "free under the first, hidden under the second, which the spine may have"


def test_everything_is_told_before_the_first_advert_is_acknowledged_and_under_a_complete_one() -> None:
    budget = ReadyBudget(0)
    assert not budget.ready(1, 99)
    budget.sent(advert(1, 99, complete=True))
    assert budget.acknowledge(1) == [1]
    assert not budget.ready(2, 1_000), "nothing is known to lie before it"


def test_a_pop_is_limited_by_the_least_head_of_the_others() -> None:
    ((partition, pop),) = popped(spine_of((3, 4, 9), (5, 6)), 10)
    assert (partition, pop.count, pop.limit, pop.bound) == (0, 2, 5, 1)


def test_equal_heads_take_turns() -> None:
    spine = spine_of((5, 5), (5, 5))
    ((first, pop),) = popped(spine, 1)
    spine.take_granted(Granted(first, 1, 1, pop.sequence, 1, (5,)))
    ((second, _),) = popped(spine, 1)
    assert {first, second} == {0, 1}


def test_with_a_bound_of_1_one_pop_is_under_way_and_reservations_are_counted_otherwise() -> None:
    assert len(popped(spine_of((1, 4), (2, 5), (3, 6)), 6)) == 1
    (_, first), (_, second), (_, third) = popped(spine_of((1, 4), (2, 5), (3, 6), k=3, in_flight=2), 3)
    assert (first.bound, second.bound, third.bound) == (1, 2, 3)


def test_nothing_is_popped_past_the_end_of_an_incomplete_advert() -> None:
    spine = spine_of((1,), (2,), complete=False)
    ((partition, pop),) = popped(spine, 2)
    spine.take_granted(Granted(partition, 1, 1, pop.sequence, 1, (1,)))
    assert [type(message) for _, message in spine.plan(2)] == [Refill]


def test_nothing_is_popped_while_a_partition_is_unknown_and_its_late_grant_is_void() -> None:
    spine = spine_of((1,), (2,))
    ((partition, pop),) = popped(spine, 1)
    spine.lose(partition)
    assert spine.plan(5) == ()
    assert spine.unknown() == [partition]
    assert spine.take_granted(Granted(partition, 1, 1, pop.sequence, 1, (1,))) is None


def test_an_advert_is_acknowledged_when_no_pop_is_under_way_that_ignores_it() -> None:
    spine = spine_of((1, 2), (8,))
    spine.acks()
    ((_, pop),) = popped(spine, 2)
    better = advert(2, 0, 8, partition=1, complete=True, round_=2)
    assert spine.take_advert(better)
    assert spine.acks() == []
    spine.take_granted(Granted(0, 1, 1, pop.sequence, 1, (1, 2)))
    assert [(partition, ack.number) for partition, ack in spine.acks()] == [(1, 2)]


def test_a_new_spine_acknowledges_nothing_before_every_partition_obeys_it() -> None:
    spine = Spine(2, RankBound.split(1, 2), fan_out=8)
    hello = spine.hello(0)
    spine.take_advert(Advert(0, 1, 2, hello.round, 1, 0, (), True))
    assert spine.acks() == ()
    hello = spine.hello(1)
    spine.take_advert(Advert(1, 1, 2, hello.round, 1, 0, (), True))
    assert len(spine.acks()) == 2


def test_more_partitions_need_an_answer_of_every_leader_again() -> None:
    spine = spine_of((1,), (2,), k=9)
    spine.reconfigure(RankBound.split(9, 3))
    assert spine.unknown() == [0, 1, 2]
    assert (spine.plan(1), spine.is_established) == ((), False)


def leader(*, spine_epoch: int = 0, unknown_to_spines: bool = True) -> LeaderEnd:
    return LeaderEnd(0, 1, spine_epoch=spine_epoch, unknown_to_spines=unknown_to_spines)


def test_a_partition_that_no_spine_knows_acknowledges_freely_and_one_that_was_added_does_not() -> None:
    assert leader().ready(5) == 0
    assert leader(unknown_to_spines=False).ready(5) == 1
    assert leader(spine_epoch=3).ready(5) == 1, "the log knows of a spine, which may still have an old advert"


def test_a_leader_refuses_older_spines_older_rounds_and_pops_of_another_epoch_or_twice() -> None:
    end = leader(spine_epoch=4)
    assert end.refuses(SpineHello(3, 9, 0, 8, 0)) is not None
    end.adopt(SpineHello(5, 10, 0, 8, 0))
    assert end.refuses(SpineHello(5, 10, 0, 8, 0)) is not None
    assert end.begin(Pop(4, 1, 11, 1, None, 1, ())) is not None
    assert end.begin(Pop(5, 2, 11, 1, None, 1, ())) is not None
    assert end.begin(Pop(5, 1, 10, 1, None, 1, ())) is not None, "sent before the hello"
    assert end.begin(Pop(5, 1, 11, 1, None, 1, ())) is None
    assert end.begin(Pop(5, 1, 11, 1, None, 1, ())) is not None


def test_events_that_wait_outlive_a_change_of_spine() -> None:
    end = leader(spine_epoch=1)
    event = end.ready(5)
    end.adopt(SpineHello(2, 1, 0, 8, 0))
    told = end.advert(lambda count: ([5], True), 1)
    assert end.acknowledged(AdvertAck(2, 1, 1, told.number)) == [event]


def test_what_a_lost_spine_was_granted_is_to_be_released_and_what_it_delivered_is_not() -> None:
    for settled, void in ((1, True), (2, False)):
        end = leader()
        end.adopt(SpineHello(1, 1, 0, 8, 0))
        pop = Pop(1, 1, 2, 1, None, 1, ())
        assert end.begin(pop) is None
        end.granted(pop, [5], 1, lambda count: ([], True))
        assert end.adopt(SpineHello(1, 3, 0, 8, settled)) is void


def test_messages_survive_their_bytes() -> None:
    to_leader = (SpineHello(1, 2, 3, 4, 5), AdvertAck(1, 2, 3, 4), Refill(1, 2, 3, 4), Pop(1, 2, 3, 4, None, 6, (7, 8)))
    assert [decode_to_leader(encode(message)) for message in to_leader] == [*to_leader]
    granted = Granted(0, 1, 2, 3, 4, (5, 6), advert(1, 7, 1 << 63))
    assert decode_to_spine(encode(granted)) == granted
