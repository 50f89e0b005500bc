"""The real replica, leader and takeover through random schedules, and through those of the model: no invariant breaks.

Crashes with torn writes, a lost disk, full disks; messages that are delayed, repeated, reordered or lost; seals at any moment. And
planted bugs, each of which has to be caught: on a schedule in the steps of the model, or on a seed on which it showed.
"""

from itertools import chain

import pytest
from tests.model.planted_bugs import PLANTED_BUGS
from tests.model.schedules import read_schedules
from tests.support.replication.model_schedules import NOT_OURS, replay_schedule
from tests.support.replication.mutants import MUTANTS
from tests.support.replication.schedules import first_violation, run, shape_of

pytestmark = pytest.mark.slow

SCHEDULES = read_schedules()
SEEDS = 30
SEEDS_LONG = 20_000


@pytest.mark.slow
def test_no_random_schedule_breaks_an_invariant() -> None:
    outcomes = [run(seed) for seed in range(SEEDS)]
    assert [outcome for outcome in outcomes if outcome.violation] == []
    assert sum(outcome.acknowledged for outcome in outcomes) > SEEDS  # and they were about something
    assert max(outcome.opened for outcome in outcomes) >= 4


@pytest.mark.long
def test_no_random_schedule_of_many_breaks_an_invariant() -> None:
    assert first_violation(range(SEEDS, SEEDS_LONG)) is None


def test_a_seed_repeats_its_schedule() -> None:
    assert run(7) == run(7)
    assert run(7).steps != run(7 + len({shape_of(seed) for seed in range(99)})).steps


@pytest.mark.parametrize("bug", [bug for bug in SCHEDULES if bug not in NOT_OURS])
def test_no_schedule_of_the_model_breaks_an_invariant(bug: str) -> None:
    assert replay_schedule(SCHEDULES[bug], agents=PLANTED_BUGS[bug].agents) == ""


@pytest.mark.parametrize("name", MUTANTS)
def test_every_planted_bug_is_caught(name: str) -> None:
    mutant = MUTANTS[name]
    if mutant.schedule:
        assert replay_schedule(mutant.schedule, agents=4) == ""
        with mutant.planted():
            assert replay_schedule(mutant.schedule, agents=4, bugs=mutant.bugs)
        return
    with mutant.planted():  # should the code have changed so that its seed shows nothing any more, others are tried
        assert first_violation(chain([mutant.seed], range(2_000)), mutant.bugs) is not None
