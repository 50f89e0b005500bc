"""docs/conformance.md is made of the kept results, and shows each failure with its reason."""

from pathlib import Path

import pytest
from conformance.model import Case, Outcome, SuiteResult
from conformance.suites import SUITES
from conformance.suites.franz_go import FranzGo
from conformance.suites.librdkafka import Librdkafka

from conformance import expectations, page, results

RESULT = SuiteResult(
    suite="franz-go",
    version="v1",
    holdfast="Holdfast 0, abc",
    date="2026-01-01",
    seconds=3,
    cases=(
        Case("TestPing", Outcome.PASSED),
        Case("TestTxn", Outcome.FAILED, "no | coordinator"),
        Case("TestX", Outcome.FAILED, "why"),
        Case("TestScram", Outcome.SKIPPED, "not set"),
    ),
)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of results, and one entry of expectations."""
    (tmp_path / "franz-go.yaml").write_text("- reason: no transactions yet\n  cases: [TestTxn, TestPing]\n")
    monkeypatch.setattr(expectations.load, "__defaults__", (tmp_path,))
    monkeypatch.setattr(results.load, "__defaults__", (tmp_path,))
    return tmp_path


def test_the_page_is_what_the_results_say() -> None:
    assert page.PAGE.read_text() == page.render(SUITES), "run `python -m conformance --page`"


def test_a_kept_result_is_read_as_it_was(tmp_path: Path) -> None:
    results.save(RESULT, tmp_path)
    assert results.load("franz-go", tmp_path) == RESULT


def test_failures_are_shown_with_their_reason_and_unexpected_ones_with_what_they_said(kept: Path) -> None:
    results.save(RESULT, kept)
    rendered = page.render([FranzGo()])
    assert "| [franz-go](#franz-go) | v1 | 4 | 1 | 1 | 1 | 1 | 2026-01-01, Holdfast 0, abc |" in rendered
    assert "| no transactions yet | `TestTxn` |" in rendered
    assert "| `TestX` | why |" in rendered
    assert "| not set | `TestScram` |" in rendered
    assert "`TestPing` is expected to fail and passed" in rendered


def test_a_suite_that_cannot_run_here_is_listed_with_the_reason(kept: Path) -> None:
    results.save(SuiteResult(suite="franz-go", not_run="there is no program go"), kept)
    rendered = page.render([FranzGo(), Librdkafka()])
    assert "| franz-go | | | | | | | not run: there is no program go |" in rendered
    assert "| librdkafka | | | | | | | not run: has not been run yet |" in rendered
