"""Schedules follow from their seed, and ask of a level no more than it promises."""

from itertools import pairwise

import pytest
from tests.chaos.faults import FAULTS, applicable
from tests.chaos.levels import LEVELS
from tests.chaos.schedule import ALONE, EVERYWHERE, PAST_TTL, Pace, schedule

PACE = Pace(seconds=300, ttl_s=2)


def test_a_seed_gives_one_schedule() -> None:
    assert schedule(7, list(FAULTS), PACE) == schedule(7, list(FAULTS), PACE) != schedule(8, list(FAULTS), PACE)


@pytest.mark.parametrize("seed", range(20))
def test_every_kind_comes_before_any_comes_again_and_all_end_in_time(seed: int) -> None:
    planned = schedule(seed, list(FAULTS), PACE)
    assert {each.fault for each in planned[: len(FAULTS)]} == set(FAULTS)
    assert max(each.until_s for each in planned) <= PACE.seconds
    for each in planned:
        least = PACE.lasting_s[0] + (PACE.ttl_s if each.fault in PAST_TTL else 0)
        assert each.until_s - each.at_s >= least - 0.01


@pytest.mark.parametrize("seed", range(20))
def test_faults_overlap_at_other_agents_only_and_some_never(seed: int) -> None:
    planned = sorted(schedule(seed, list(FAULTS), PACE), key=lambda each: each.at_s)
    for one, other in pairwise(planned):
        if other.at_s < one.until_s:
            assert one.agent != other.agent
            assert not {one.fault, other.fault} & (ALONE | EVERYWHERE)


def test_some_faults_do_overlap() -> None:
    planned = schedule(1, list(FAULTS), PACE)
    assert any(other.at_s < one.until_s for one, other in pairwise(planned))


def test_a_level_is_spared_what_it_does_not_survive() -> None:
    assert "lose-disk" not in applicable(LEVELS["local"], store="postgres", objects="moto")
    assert set(applicable(LEVELS["object"], store="etcd", objects="moto")) == set(FAULTS) - {"cut-member", "diverge"}
    assert set(applicable(LEVELS["object"], store="embedded", objects="moto")) == set(FAULTS) - {"join", "diverge"}
    assert set(applicable(LEVELS["quorum"], store="etcd", objects="moto")) == set(FAULTS) - {"cut-member", "diverge"}
    for store, left_out in (("etcd", "cut-member"), ("embedded", "join")):
        assert set(applicable(LEVELS["quorum"], store=store, objects="moto", learners=False)) == set(FAULTS) - {
            left_out
        }
    file_only = set(FAULTS) - set(applicable(LEVELS["quorum"], store="sqlite", objects="folder"))
    assert file_only == {
        *("cut-store", "cut-store-answers", "cut-member"),
        *("cut-objects", "cut-objects-answers", "slow-down", "diverge"),
    }
