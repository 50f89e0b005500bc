"""A heap on three agents under faults: what was enqueued is handed out until it is done. The short form, and the long one."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.chaos.heaps.planted_bugs import GROWTHS, HEAPS_SHOWN_BY
from tests.chaos.heaps.run import HeapPlan, HeapReport, run
from tests.chaos.levels import LEVELS
from tests.chaos.stores import STORES

SECONDS = float(os.environ.get("HOLDFAST_CHAOS_SECONDS", "60"))  # noqa: TID251 (how long is told per run)
SEEDS_MAX = 4
SHORT = HeapPlan(
    seconds=6,
    seed=1,
    objects="folder",
    faults=("kill", "freeze-past-ttl", "cut-clients"),
    gap_s=(0.2, 0.5),
    lasting_s=(0.3, 0.8),
    producers=2,
    poppers=1,
    late=1,
    growths=2,
)


def checked(directory: Path, plan: HeapPlan) -> HeapReport:
    report = run(directory / "run", plan)
    assert report.clean, json.dumps(report.as_json(), indent=2)
    return report


@pytest.mark.timeout(300)
def test_nothing_is_lost_or_leased_twice_under_a_handful_of_faults(tmp_path: Path) -> None:
    report = checked(tmp_path, SHORT)
    assert set(report.faults) == set(SHORT.faults)
    assert report.worst_rank == 1


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", HEAPS_SHOWN_BY)
def test_a_planted_bug_is_caught(tmp_path: Path, bug: str) -> None:
    """Within a few seeds: a fault may come when nothing is under way that it could spoil."""
    shown = HEAPS_SHOWN_BY[bug]
    plan = replace(HeapPlan(), seconds=20, planted=bug, heal_s=15, gap_s=SHORT.gap_s, level=shown.level)
    plan = replace(plan, faults=shown.faults, lasting_s=shown.lasting_s, ttl_ms=shown.ttl_ms)
    plan = replace(plan, growths=GROWTHS.get(bug, 0))
    for seed in range(1, SEEDS_MAX + 1):
        if run(tmp_path / str(seed), replace(plan, seed=seed)).violations:
            return
    pytest.fail(f"{bug} was not caught in {SEEDS_MAX} seeds")


@pytest.mark.long
@pytest.mark.timeout(SECONDS * 4 + 600)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("store", STORES)
def test_nothing_is_lost_or_leased_twice_under_every_fault(tmp_path: Path, store: str, level: str) -> None:
    checked(tmp_path, replace(HeapPlan(), seconds=SECONDS, store=store, level=level))
