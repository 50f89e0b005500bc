"""Failed tests get a second try on a starved machine alone."""

from pathlib import Path

import pytest
from tests import short_form
from tests.short_form import AGAIN_MAX, STARVED, ProcessorTimes, tried_again

QUIET = ProcessorTimes(1_000, 0)


def test_the_share_that_was_taken_is_that_of_the_time_between() -> None:
    before = ProcessorTimes.parse("cpu  100 0 50 800 10 0 5 35 7 0")
    after = ProcessorTimes.parse("cpu  200 0 100 850 10 0 5 235 9 0")
    assert before == ProcessorTimes(1_000, 35)
    assert before.stolen_until(after) == 0.5
    assert before.stolen_until(before) == 0
    assert ProcessorTimes.parse("cpu 1 2 3 4").stolen == 0  # an old kernel


def test_ids_are_those_of_pytest_without_the_group_of_a_worker() -> None:
    grouped = ["tests/a.py::test_x@spark", "tests/a.py::test_x@spark", "tests/b.py::test_z[1]@redis"]
    failed = [*grouped, "tests/b.py::test_y[p@q]"]
    assert tried_again(1, failed, 0.5) == ["tests/a.py::test_x", "tests/b.py::test_y[p@q]", "tests/b.py::test_z[1]"]


@pytest.mark.parametrize(
    ("exit_code", "failed", "stolen"),
    [
        (1, 1, STARVED - 0.01),  # the machine had its processors
        (0, 0, 0.9),
        (2, 1, 0.9),  # interrupted
        (1, AGAIN_MAX + 1, 0.9),
    ],
)
def test_otherwise_there_is_none(exit_code: int, failed: int, stolen: float) -> None:
    assert tried_again(exit_code, [f"tests/a.py::test_{number}" for number in range(failed)], stolen) == []


TESTS = """
from pathlib import Path

def test_that_fails_at_first():
    seen = Path(__file__).with_name("seen")
    was = seen.exists()
    seen.touch()
    assert was

def test_that_passes():
    pass
"""


@pytest.mark.parametrize(("stolen", "expected"), [(0, 1), (400, 0)])
def test_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], stolen: int, expected: int
) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    times = iter([QUIET, ProcessorTimes(2_000, stolen)])
    monkeypatch.setattr(short_form, "_processor_times", lambda: next(times))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    assert short_form.main(["-q", "-p", "no:cacheprovider", str(tmp_path)]) == expected
    shown = capfd.readouterr().out
    assert f"took {stolen / 10:.0f}% of its processor time" in shown
    assert ("1 failed and are tried again" in shown) == (expected == 0)
