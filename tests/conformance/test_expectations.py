"""A failure without a reason is unexpected, and a reason for what passes is outdated."""

from pathlib import Path

import pytest
from conformance.expectations import Expectation, judge
from conformance.model import Case, Outcome, SuiteResult
from conformance.suites import SUITES

from conformance import expectations
from holdfast.vocabulary.errors import InvalidError

TRANSACTIONS = Expectation("no transactions", ("TestTxn*", "read[committed]"))


def run(**outcomes: str) -> SuiteResult:
    """A result with these cases; `__` stands for a slash."""
    cases = [Case(name.replace("__", "/"), Outcome(outcome)) for name, outcome in outcomes.items()]
    return SuiteResult(suite="any", cases=tuple(cases))


def test_a_failure_with_an_entry_is_expected_and_one_without_is_not() -> None:
    judged = judge(run(TestTxnEtl="failed", TestTxn__a="failed", TestPing="failed", TestPool="passed"), [TRANSACTIONS])
    assert [case.name for case in judged.expected[TRANSACTIONS]] == ["TestTxnEtl", "TestTxn/a"]
    assert [case.name for case in judged.unexpected] == ["TestPing"]


def test_an_entry_for_a_case_that_passes_is_outdated() -> None:
    judged = judge(run(TestTxnEtl="passed"), [Expectation("no transactions", ("TestTxn*",))])
    assert judged.outdated == ["`TestTxn*` is expected to fail and passed: TestTxnEtl"]


def test_an_entry_for_a_case_that_passes_sometimes_is_not_outdated() -> None:
    assert judge(run(TestTxnEtl="passed"), [Expectation("slow", ("TestTxnEtl",), sometimes=True)]).outdated == []


def test_an_entry_for_no_case_is_outdated() -> None:
    judged = judge(run(TestPing="passed"), [Expectation("renamed since", ("TestPong",))])
    assert judged.outdated == ["`TestPong` is expected to fail and matches no case"]


def test_a_suite_that_did_not_run_says_nothing_about_its_entries() -> None:
    assert judge(SuiteResult(suite="any", not_run="there is no go"), [TRANSACTIONS]).outdated == []


def test_brackets_in_a_pattern_are_just_brackets() -> None:
    assert TRANSACTIONS.covers("read[committed]")
    assert not TRANSACTIONS.covers("readc")


@pytest.mark.parametrize(
    "text",
    [
        "- cases: [a]",
        "- reason: ' '\n  cases: [a]",
        "- reason: none",
        "- a",
        "- reason: r\n  cases: [a]\n  until: later",
    ],
)
def test_an_entry_without_a_reason_or_cases_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "any.yaml").write_text(text)
    with pytest.raises(InvalidError, match=r"entry 1 of any\.yaml"):
        expectations.load("any", tmp_path)


def test_every_file_of_expectations_is_of_a_suite_and_can_be_read() -> None:
    names = {suite.name for suite in SUITES}
    for path in expectations.FOLDER.iterdir():
        assert path.stem in names
        assert expectations.load(path.stem)
