"""The oracle in its short form: the figures that `python -m tests.heap.oracle` prints, from fewer configurations."""

import pytest
from tests.heap.oracle.report import measure, report

from holdfast.sim.heap.history import FaultsEnded, HeapEvent, MessageCounted, MessageGone, MessagesGranted, PopDelivered
from holdfast.sim.heap.rank_oracle import rank_pops


@pytest.mark.slow
def test_no_pop_exceeds_its_bound_and_a_bound_of_1_is_perfect_order_across_failovers() -> None:
    result = report([*map(measure, range(100, 120)), *(measure(seed, k=1) for seed in range(20))])
    assert result.violations == 0
    assert result.worst_rank <= result.worst_rank_k
    assert (result.exact_worst, result.exact_configurations >= 20) == (1, True)
    assert result.faults > 100
    assert result.pops > 1_000


@pytest.mark.parametrize("mutant", ["refill-off", "budget-off", "epochs-off", "reservations-uncounted"])
def test_a_rule_that_is_switched_off_is_noticed(mutant: str) -> None:
    assert any(measure(seed, planted=mutant).violation for seed in range(40))


@pytest.mark.slow
def test_no_pop_exceeds_its_bound_with_fairness_keys_and_their_limits() -> None:
    chosen = [
        *(measure(seed, fairness=True) for seed in range(20)),
        *(measure(seed, k=1, fairness=True) for seed in range(10)),
    ]
    result = report(chosen)
    assert result.violations == 0
    assert (result.exact_worst, result.exact_configurations >= 10) == (1, True)
    assert result.pops > 1_000


@pytest.mark.parametrize("mutant", ["openings-uncounted", "key-limits-off", "refill-off", "budget-off"])
def test_a_rule_of_fairness_that_is_switched_off_is_noticed(mutant: str) -> None:
    assert any(measure(seed, planted=mutant, fairness=True).violation for seed in range(40))


def granted(*ranks: int, bound: int, sequence: int = 1) -> MessagesGranted:
    return MessagesGranted(0, 0, 1, ranks, ranks, 1, sequence, bound, (0,))


def counted(*ranks: int) -> list[HeapEvent]:
    return [MessageCounted(0, 0, rank, rank) for rank in ranks]


def test_the_rank_of_a_pop_is_its_place_among_what_is_ready() -> None:
    history: list[HeapEvent] = [
        *counted(1, 2, 3, 4),
        MessageGone(0, 0, 2),
        granted(3, bound=2),
        PopDelivered(0, 0, 1, 1),
    ]
    assert [pop.rank for pop in rank_pops(history, 2).pops] == [2]


def test_a_pop_beyond_its_bound_or_a_bound_beyond_the_topics_is_a_violation() -> None:
    history: list[HeapEvent] = [*counted(1, 2, 3), granted(3, bound=2), PopDelivered(0, 0, 1, 1)]
    assert [each.rule for each in rank_pops(history, 1).violations] == ["rank-bound", "topic-bound"]


def test_a_grant_that_nobody_got_is_not_measured() -> None:
    assert rank_pops([*counted(1, 2, 3), granted(3, bound=1)], 1).pops == []


def test_messages_that_are_never_handed_out_are_a_violation() -> None:
    assert [each.rule for each in rank_pops([FaultsEnded(0, 4)], 1).violations] == ["goes-on"]
