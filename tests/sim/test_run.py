"""The command: exit codes, transcripts, kept seeds, JSON."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.support.waiting import until

from holdfast.sim.run import main
from holdfast.sim.run_summary import merge_summaries, run_seeds
from holdfast.sim.seeds import SavedSeed, read_seeds, save_seeds
from holdfast.sim.variant import CORRECT
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.errors import InvalidError


def test_seeds_that_keep_the_rules_exit_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "5", "--from", "3"]) == 0
    assert "5 seeds, 0 failed" in capsys.readouterr().out


@pytest.mark.slow
def test_failing_seeds_are_shown_kept_and_exit_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep = tmp_path / "seeds.txt"
    assert main(["--seeds", "30", "--planted", "effect-unfenced", "--keep", str(keep)]) == 1
    text = capsys.readouterr().out
    kept = read_seeds(keep)
    assert kept
    assert {each.rule for each in kept} == {"no-old-effect"}
    for each in kept:
        assert f"seed {each.seed} broke no-old-effect" in text
    assert "! " in text  # the transcript marks the event
    main(["--seeds", "30", "--planted", "effect-unfenced", "--keep", str(keep), "--json"])
    assert read_seeds(keep) == kept  # none is kept twice


def test_one_seed_can_be_traced_from_beginning_to_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "7", "--trace"]) == 0
    text = capsys.readouterr().out
    assert "acts on r0" in text
    assert "all have left" in text


@pytest.mark.slow
def test_json_holds_what_the_text_says(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--seeds", "30", "--planted", "effect-unfenced", "--json"])
    told = msgspec.json.decode(capsys.readouterr().out)
    assert told["summary"]["seeds"] == 30
    first = told["summary"]["failures"][0]
    assert first["rule"] == "no-old-effect"
    assert any("no-old-effect" in line for line in told["transcripts"][str(first["seed"])])


@pytest.mark.slow
def test_a_keep_file_that_cannot_be_written_is_said_not_raised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing" / "seeds.txt"
    assert main(["--seeds", "30", "--planted", "effect-unfenced", "--keep", str(missing)]) == 1
    assert "not kept" in capsys.readouterr().out


def test_means_are_per_seed() -> None:
    summary = run_seeds(range(4), variant=CORRECT, clock=FakeClock())
    assert (summary.seeds, summary.failures) == (4, [])
    assert summary.means["acquisitions"] > 1


def test_the_summaries_of_parts_are_that_of_the_whole() -> None:
    whole = run_seeds(range(6), variant=CORRECT, clock=FakeClock())
    parts = [run_seeds(seeds, variant=CORRECT, clock=FakeClock()) for seeds in (range(2), range(2, 6))]
    merged = merge_summaries(*parts)
    assert (merged.seeds, merged.events, merged.failures) == (6, whole.events, [])
    assert merged.means["acquisitions"] == pytest.approx(whole.means["acquisitions"], abs=0.02)


@pytest.mark.slow
def test_seeds_are_spread_over_processes_and_reported_as_they_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, keep = tmp_path / "report.json", str(tmp_path / "seeds.txt")
    args = ["--seeds", "30", "--planted", "effect-unfenced", "--keep", keep, "--json"]
    assert main([*args, "--processes", "2", "--report", str(report)]) == 1
    told = msgspec.json.decode(capsys.readouterr().out)["summary"]
    assert main(args) == 1
    alone = msgspec.json.decode(capsys.readouterr().out)["summary"]
    assert (told["seeds"], told["events"], told["failures"]) == (30, alone["events"], alone["failures"])
    assert msgspec.json.decode(report.read_bytes())["events"] == told["events"]


@pytest.mark.slow
def test_a_killed_run_leaves_no_worker_behind() -> None:
    command = [sys.executable, "-m", "holdfast.sim", "--seeds", "100000", "--processes", "2", "--json"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as run:
        try:
            workers = until(lambda: _workers_of(run.pid), what="workers")
        finally:
            run.kill()
    until(lambda: not any(_alive(worker) for worker in workers), what="the end of every worker")


def _workers_of(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    spawned = [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
    return spawned if len(spawned) == 2 else []


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_line_that_is_no_seed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "seeds.txt"
    assert save_seeds(path, [SavedSeed("correct", 4, "acting-alone")]) == 1
    for line in ("correct", "correct x", "nonsense 4"):
        path.write_text(f"correct 4  # acting-alone\n\n# a comment\n{line}\n")
        with pytest.raises(InvalidError):
            read_seeds(path)


def test_a_mutant_of_another_world_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--world", "cluster", "--planted", "effect-unfenced"]) == 2
    assert "one of correct, publish-unfenced" in capsys.readouterr().out


@pytest.mark.slow
def test_a_cluster_is_run_by_the_same_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--world", "cluster", "--seeds", "1", "--json"]) == 0
    told = msgspec.json.decode(capsys.readouterr().out)
    assert (told["summary"]["world"], told["summary"]["failures"]) == ("cluster", [])
    assert told["summary"]["means"]["batches acknowledged"] > 1
