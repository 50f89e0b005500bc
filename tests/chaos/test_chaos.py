"""Three agents under faults: what was acknowledged is read once, in order, by everybody. The short form, and the long one."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.chaos.levels import LEVELS
from tests.chaos.planted_bugs import SHOWN_BY
from tests.chaos.run import Plan, Report, run
from tests.chaos.stores import STORES

SECONDS = float(os.environ.get("HOLDFAST_CHAOS_SECONDS", "60"))  # noqa: TID251 (how long is told per run)
SEEDS_MAX = 4
SHORT = Plan(
    seconds=6,
    seed=1,
    level="object",
    faults=("kill", "freeze-past-ttl", "slow-down", "cut-clients", "lose-disk"),
    gap_s=(0.2, 0.5),
    lasting_s=(0.3, 0.8),
    records_per_s=50,
)


def checked(directory: Path, plan: Plan) -> Report:
    report = run(directory / "run", plan)
    print(json.dumps(report.as_json(), indent=2))
    assert report.clean, json.dumps(report.as_json(), indent=2)
    return report


def test_nothing_is_lost_or_doubled_under_a_handful_of_faults(tmp_path: Path) -> None:
    report = checked(tmp_path, SHORT)
    assert set(report.faults) == set(SHORT.faults)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", SHOWN_BY)
def test_a_planted_bug_is_caught(tmp_path: Path, bug: str) -> None:
    """Within a few seeds: a fault may come when nothing is under way that it could spoil."""
    shown = SHOWN_BY[bug]
    asked = replace(SHORT, level=shown.level, faults=shown.faults, lasting_s=shown.lasting_s, ttl_ms=shown.ttl_ms)
    asked = replace(asked, learners=shown.learners)
    plan = replace(asked, seconds=20, planted=bug, plain=0, heal_s=15)
    for seed in range(1, SEEDS_MAX + 1):
        report = run(tmp_path / str(seed), replace(plan, seed=seed))
        if report.violations:
            return
    pytest.fail(f"{bug} was not caught in {SEEDS_MAX} seeds")


@pytest.mark.long
@pytest.mark.timeout(SECONDS * 4 + 600)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("store", STORES)
def test_nothing_is_lost_or_doubled_under_every_fault(tmp_path: Path, store: str, level: str) -> None:
    checked(tmp_path, replace(Plan(), seconds=SECONDS, store=store, level=level))
