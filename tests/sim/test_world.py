"""Whole worlds: the code that ships keeps every rule, planted bugs do not, and a seed decides everything."""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import holdfast
from holdfast.kernel.lease import Held, Lease
from holdfast.kernel.session import HeldSession
from holdfast.sim.history import TraceNote
from holdfast.sim.mutants import MUTANTS
from holdfast.sim.seeds import SavedSeed, read_seeds
from holdfast.sim.variant import Variant
from holdfast.sim.world import run_seed
from holdfast.sim.worlds import LEASES
from holdfast.vocabulary.clock import Clock

CATCHES = {
    "effect-unfenced": {"no-old-effect"},
    "expiry-by-predicate": {"gone-is-gone"},
    "expiry-by-own-clock": {"acting-alone", "acting-held"},
    "renewal-after-expiry": {"dead-is-dead"},
    "release-by-stale-owner": {"acting-alone", "acting-held"},
    "resolve-not-final": {"effect-once"},
    "deadline-stops-in-pause": {"acting-alone", "acting-held"},
}


def test_300_seeds_keep_every_rule() -> None:
    failed = {seed: run.violations for seed in range(300) if (run := run_seed(seed)).violations}
    assert failed == {}


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_20000_seeds_keep_every_rule() -> None:
    failed = {seed: run.violations for seed in range(20_000) if (run := run_seed(seed)).violations}
    assert failed == {}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_caught_within_200_seeds_by_the_rule_it_breaks(name: str) -> None:
    broken: set[str] = set()
    for seed in range(200):
        broken |= {violation.rule for violation in run_seed(seed, variant=MUTANTS[name]).violations}
        if broken & CATCHES[name]:
            return
    pytest.fail(f"only {broken or 'nothing'} was noticed")


KEPT = read_seeds(Path(__file__).with_name("seeds.txt"))


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: f"{kept.variant}-{kept.seed}")
def test_a_kept_seed_plays_again(kept: SavedSeed) -> None:
    broken = {violation.rule for violation in LEASES.run(kept.seed, variant=LEASES.variant(kept.variant)).violations}
    if kept.variant == "correct":
        assert broken == set()
    else:
        assert kept.rule in broken


@pytest.mark.parametrize("seed", range(20))
def test_the_same_seed_gives_the_same_history(seed: int) -> None:
    assert run_seed(seed).events == run_seed(seed).events


@pytest.mark.parametrize("seed", range(20))
def test_tracing_adds_notes_and_changes_nothing(seed: int) -> None:
    traced = run_seed(seed, tracing=True)
    assert any(isinstance(event, TraceNote) for event in traced.events)
    assert [event for event in traced.events if not isinstance(event, TraceNote)] == run_seed(seed).events


def test_the_same_seed_gives_the_same_history_in_another_process() -> None:
    def transcript(hash_seed: str) -> bytes:
        command = [sys.executable, "-m", "holdfast.sim", "--seed", "11", "--trace"]
        environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(holdfast.__file__).parents[1])}
        ran = subprocess.run(command, env=environment, capture_output=True, check=True)
        assert b"acts on" in ran.stdout
        return ran.stdout.rsplit(b"per seed:")[0]

    assert transcript("1") == transcript("2")


def test_worlds_are_eventful() -> None:
    runs = [run_seed(seed) for seed in range(50)]
    for what in (
        "pauses",
        "deaths",
        "cuts",
        "requests lost",
        "answers lost",
        "late commits refused",
        "effects refused",
    ):
        assert sum(run.counts.get(what, 0) for run in runs) > 0, what


@asynccontextmanager
async def hold_spinning(
    store: object, resource: str, *, holder: str, session: HeldSession, clock: Clock, random: object
) -> AsyncIterator[Lease | Held]:
    while True:
        await clock.sleep_ms(0)
    yield


@asynccontextmanager
async def hold_failing(
    store: object, resource: str, *, holder: str, session: HeldSession, clock: Clock, random: object
) -> AsyncIterator[Lease | Held]:
    raise KeyError(resource)
    yield


@pytest.mark.parametrize("hold", [hold_spinning, hold_failing])
def test_code_that_spins_or_breaks_is_a_failing_seed_not_a_hanging_one(hold: object) -> None:
    variant = Variant(name="broken", hold=hold)  # type: ignore[arg-type]
    assert "no-surprise" in {violation.rule for violation in run_seed(1, variant=variant).violations}
