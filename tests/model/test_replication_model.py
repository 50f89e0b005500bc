"""The model of quorum replication: the protocol breaks no invariant, and breaking any of its rules does."""

import pytest
from tests.model.planted_bugs import PLANTED_BUGS, with_bug
from tests.model.runs import EVERYTHING, SMALL_RUNS
from tests.model.schedules import read_schedules
from tests.model.search import explore, replay, walk

WALKS = 40
SCHEDULES = read_schedules()


@pytest.mark.slow
@pytest.mark.parametrize("run", SMALL_RUNS)
def test_no_schedule_of_a_small_world_breaks_an_invariant(run: str) -> None:
    seen = explore(SMALL_RUNS[run], states_max=100_000)
    assert not seen.violation, seen.schedule
    assert seen.complete
    assert seen.states > 1_000


@pytest.mark.slow
def test_no_random_schedule_of_a_larger_world_breaks_an_invariant() -> None:
    for seed in range(WALKS):
        seen = walk(EVERYTHING, seed=seed, length=45)
        assert not seen.violation, seen.schedule


@pytest.mark.parametrize("bug", PLANTED_BUGS)
def test_every_planted_bug_is_caught(bug: str) -> None:
    assert replay(SCHEDULES[bug], with_bug(bug)) is not None
    assert replay(SCHEDULES[bug], with_bug(bug)._replace(bug="")) is None, "and it was the bug that did it"


@pytest.mark.slow
def test_a_search_finds_a_planted_bug_by_itself() -> None:
    bug = "local opened elsewhere without its WAL"
    seen = explore(with_bug(bug), states_max=100_000)
    assert seen.violation.startswith("I1")
    assert replay(seen.schedule, with_bug(bug)) == seen.violation
