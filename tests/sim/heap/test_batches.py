"""Batches: all or none, whoever dies, before and after every step."""

from itertools import product

import pytest

from holdfast.sim.heap.batch_variant import BATCH_MUTANTS, CORRECT_BATCHES
from holdfast.sim.heap.batches import BatchWorld, describe_batch_event, run_batch_seed

PARTITIONS = 3
STEPS_MAX = 40  # more than one batch takes


def batch_with_deaths(*deaths: tuple[int, int]) -> tuple[BatchWorld, int]:
    """One batch in three partitions, in the plainest order; leaders of a partition die after so many steps. How many it took."""
    world = BatchWorld(0, CORRECT_BATCHES, partitions=PARTITIONS)
    world.start(range(PARTITIONS))
    steps = 0
    while world.under_way and steps < STEPS_MAX:
        for _, partition in (death for death in deaths if death[0] == steps):
            world.change_leader(partition)
        world.take_step(0)
        steps += 1
    return world, steps


def test_a_batch_is_committed_everywhere_and_leaves_nothing_behind() -> None:
    world, steps = batch_with_deaths()
    assert world.finish() == []
    assert world.answers == {"b1": True}
    assert steps == 3 + 3 + 2 + 3 + 3, "prepare, promises, decision and its answer, resolve, answers"


def test_whoever_dies_at_whatever_step_the_batch_is_all_or_none() -> None:
    _, steps = batch_with_deaths()
    answers = set()
    for step, partition in product(range(steps), range(PARTITIONS)):
        world, _ = batch_with_deaths((step, partition))
        assert world.finish() == [], (step, partition)
        answers.add(world.answers.get("b1"))
    assert answers == {True, False, None}, "committed, aborted, and a coordinator that died before it answered"


@pytest.mark.long  # the short form has every single death, and seeds with many
def test_two_deaths_at_any_two_steps_are_no_worse() -> None:
    _, steps = batch_with_deaths()
    deaths = [*product(range(steps), range(PARTITIONS))]
    for first, second in product(deaths, deaths):
        world, _ = batch_with_deaths(first, (first[0] + second[0], second[1]))
        assert world.finish() == [], (first, second)


def test_seeds_keep_every_rule() -> None:
    for seed in range(50):
        assert run_batch_seed(seed).violations == []


@pytest.mark.parametrize("name", BATCH_MUTANTS)
def test_a_planted_bug_is_caught(name: str) -> None:
    runs = (run_batch_seed(seed, variant=BATCH_MUTANTS[name]) for seed in range(400))
    found = {violation.rule for violation in next(run for run in runs if run.violations).violations}
    assert found & {"all-or-none", "honest-answer"}


def test_a_seed_decides_everything_and_has_a_transcript() -> None:
    first, second = run_batch_seed(5), run_batch_seed(5)
    assert first.events == second.events
    assert all(describe_batch_event(event) for event in first.events)
