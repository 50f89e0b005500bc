"""A suite gets a real server of its own; what is missing is a result; a failure without a reason is the exit code."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from conformance.model import Case, Outcome, Workplace
from conformance.programs import require
from conformance.runner import run_suite
from conformance.scenarios import played
from rich.console import Console

from conformance import __main__ as command
from conformance import expectations, page, results, topics

QUIET = Console(quiet=True)


class Tiny:
    """A suite that needs nothing, and writes, crashes the server and reads."""

    name = "tiny"
    title = "Tiny"
    about = "A suite."
    server_options: Sequence[str] = ()
    lists_cases = True

    def prepare(self, cache: Path) -> str:
        return "1"

    def run(self, cache: Path, at: Workplace) -> Iterator[Case]:
        def records_survive_a_crash() -> None:
            topics.create_topic(at.broker.bootstrap, "tiny", 2)
            topics.send(at.broker.bootstrap, "tiny", [b"a", b"b"])
            at.broker.kill()
            at.broker.start()
            assert {each.value for each in topics.read_all(at.broker.bootstrap, "tiny")} == {b"a", b"b"}

        def a_server_is_nowhere() -> None:
            raise AssertionError(f"not in {at.scratch}")

        yield from played([records_survive_a_crash, a_server_is_nowhere])


class Failing(Tiny):
    """A suite with one case, which fails."""

    def run(self, cache: Path, at: Workplace) -> Iterator[Case]:
        yield Case("two is three", Outcome.FAILED, "it is not")


class Impossible(Tiny):
    """A suite whose tool nobody has."""

    def prepare(self, cache: Path) -> str:
        return require("no-such-program", used_for="to build it")


@pytest.mark.server
def test_a_suite_runs_against_a_server_of_its_own_that_it_may_crash(tmp_path: Path) -> None:
    result = run_suite(Tiny(), tmp_path, QUIET)
    assert result.version == "1"
    assert list(result.cases) == [
        Case("records survive a crash", Outcome.PASSED),
        Case("a server is nowhere", Outcome.FAILED, "AssertionError: not in …"),
    ]


def test_a_suite_whose_tool_is_missing_is_not_run_and_says_why(tmp_path: Path) -> None:
    result = run_suite(Impossible(), tmp_path, QUIET)
    assert "there is no program no-such-program, needed to build it" in result.not_run
    assert not result.cases


@pytest.mark.server
@pytest.mark.parametrize(("entries", "code"), [("", 1), ("- reason: it is two\n  cases: [two is three]\n", 0)])
def test_the_command_fails_where_a_failure_has_no_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: str, code: int
) -> None:
    (tmp_path / "tiny.yaml").write_text(entries)
    monkeypatch.setattr(expectations.load, "__defaults__", (tmp_path,))
    monkeypatch.setattr(results.load, "__defaults__", (tmp_path,))
    monkeypatch.setattr(results.save, "__defaults__", (tmp_path,))
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(command, "SUITES", (Failing(),))
    monkeypatch.setattr(sys, "argv", ["conformance", "--cache", str(tmp_path / "cache")])
    assert command.main() == code
    assert ("failed, because" in (tmp_path / "page.md").read_text()) is (code == 0)
