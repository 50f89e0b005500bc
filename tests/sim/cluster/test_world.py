"""Whole clusters: the code that ships keeps every rule, planted bugs do not, and a seed decides everything."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import count, islice
from pathlib import Path

import pytest

import holdfast
from holdfast.sim.cluster import world
from holdfast.sim.cluster.mutants import CLUSTER_MUTANTS
from holdfast.sim.cluster.profile import ClusterProfile
from holdfast.sim.cluster.world import run_cluster_seed
from holdfast.sim.history import TraceNote
from holdfast.sim.seeds import SavedSeed, read_seeds
from holdfast.sim.worlds import CLUSTER
from holdfast.vocabulary.random import SeededRandom

SEEDS = 8  # of the short form: a few seconds
SEEDS_MAX = 80  # until everything has happened, or a planted bug is caught
QUICK_MUTANTS = ("offsets-reused", "producers-forgotten", "visible-before-durable")  # those that many seeds catch
QUORUM_MUTANTS = (
    "ack-before-majority",
    "serve-before-seal",
    "longest-tail",
    "epoch-end-of-former-leader",
)  # every third to fifteenth seed with three replicas
EVENTS = (  # what happens in the seeds of the short form
    "deaths",
    "power failures",
    "deaths at failpoints",
    "pauses",
    "object answers lost",
    "answers lost",
    "objects deleted",
)
CATCHES = {
    "publish-unfenced": {"published-by-leader", "record-grows"},
    "ack-before-fsync": {"nothing-lost", "sequence-known", "no-surprise"},
    "offsets-reused": {"one-record-per-offset", "nothing-lost", "sequence-known"},
    "sweeper-without-doom": {"listed-exists", "no-surprise"},
    "producers-forgotten": {"once-if-idempotent", "sequence-known"},
    "ack-before-majority": {"one-record-per-offset", "nothing-lost", "sequence-known"},
    "serve-before-seal": {"one-record-per-offset", "nothing-lost", "sequence-known"},
    "longest-tail": {"one-record-per-offset", "nothing-lost", "sequence-known"},
    "replica-out-of-range": {"no-surprise"},
    "epoch-end-of-former-leader": {"no-surprise"},
    "visible-before-durable": {"read-stays", "read-in-order", "nothing-lost", "sequence-known"},
}
KEPT = read_seeds(Path(__file__).with_name("seeds.txt"), CLUSTER)


@pytest.mark.slow
def test_a_few_seeds_keep_every_rule_and_are_eventful() -> None:
    missing = set(EVENTS)
    for seed in range(SEEDS_MAX):
        run = run_cluster_seed(seed)
        assert run.violations == []
        missing = {what for what in missing if not run.counts.get(what)}
        if seed + 1 >= SEEDS and not missing:
            break
    assert missing == set()


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(8))
def test_8000_seeds_keep_every_rule(part: int) -> None:
    seeds = range(1_000 * part, 1_000 * (part + 1))
    assert {seed: run.violations for seed in seeds if (run := run_cluster_seed(seed)).violations} == {}


@pytest.mark.slow
@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: f"{kept.variant}-{kept.seed}")
def test_a_seed_that_failed_once_plays_again(kept: SavedSeed) -> None:
    assert CLUSTER.run(kept.seed, variant=CLUSTER.variant(kept.variant)).violations == []


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in (*QUICK_MUTANTS, *QUORUM_MUTANTS) else pytest.mark.long)
        for name in CLUSTER_MUTANTS
    ],
)
@pytest.mark.timeout(7200)
def test_a_planted_bug_is_caught_by_a_rule_it_breaks(name: str) -> None:
    """Which seed does depends on every step of the code, so none is kept."""
    assert CATCHES.keys() == CLUSTER_MUTANTS.keys()
    broken: set[str] = set()
    for seed in seeds_for(name):
        broken |= {violation.rule for violation in run_cluster_seed(seed, variant=CLUSTER_MUTANTS[name]).violations}
        if broken & CATCHES[name]:
            return
    pytest.fail(f"only {broken or 'nothing'} was noticed")


def seeds_for(mutant: str) -> Iterable[int]:
    """Those in which it can show: without three replicas no schedule is aimed at takeovers."""
    if mutant not in QUORUM_MUTANTS:
        return range(SEEDS_MAX if mutant in QUICK_MUTANTS else 400)
    return islice((seed for seed in count() if ClusterProfile.draw(SeededRandom(seed)).replicas == 3), SEEDS_MAX)


@pytest.mark.slow
def test_a_schedule_is_aimed_at_takeovers_in_worlds_with_three_replicas() -> None:
    counts: Counter[str] = Counter()
    for seed in islice(seeds_for("longest-tail"), SEEDS_MAX):
        counts.update(run_cluster_seed(seed).counts)
        if counts["schedules"] and any(what.startswith("strikes at ") for what in counts):
            return
    pytest.fail(f"{counts}")


@pytest.mark.slow
def test_tracing_adds_notes_and_changes_nothing() -> None:
    traced = run_cluster_seed(3, tracing=True)
    assert any(isinstance(event, TraceNote) for event in traced.events)
    assert [event for event in traced.events if not isinstance(event, TraceNote)] == run_cluster_seed(3).events


@pytest.mark.slow
def test_the_same_seed_gives_the_same_history_in_another_process() -> None:
    def transcript(hash_seed: str) -> bytes:
        command = [sys.executable, "-m", "holdfast.sim", "--world", "cluster", "--seed", "2", "--trace"]
        environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(holdfast.__file__).parents[1])}
        ran = subprocess.run(command, env=environment, capture_output=True, check=True)
        assert b"acknowledged at" in ran.stdout
        return ran.stdout.rsplit(b"per seed:")[0]

    assert transcript("1") == transcript("2")


@pytest.mark.slow
def test_a_world_leaves_no_files_and_no_descriptors_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "MEMORY", tmp_path)

    def open_files() -> list[str]:
        names = (str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink())
        return [name for name in names if name.startswith(str(tmp_path))]

    for seed in range(3):
        run_cluster_seed(seed)
    assert open_files() == []
    assert not any(tmp_path.iterdir())
