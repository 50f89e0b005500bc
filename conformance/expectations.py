"""Failures that are expected, each with its reason: data in `expected/SUITE.yaml`, and the judgement of a run by it.

The one rule: no failure is silent. One without an entry makes the command fail; an entry for what passes, or for what is not
there any more, is reported, because it would hide the next failure.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from conformance.model import Case, Outcome, SuiteResult
from holdfast.vocabulary.errors import InvalidError

FOLDER: Final = Path(__file__).parent / "expected"
_KEYS: Final = {"reason", "cases", "sometimes"}


@dataclass(frozen=True, slots=True)
class Expectation:
    """Cases that fail for one reason. In a pattern `*` is any text. `sometimes`: they depend on time and may pass."""

    reason: str
    patterns: tuple[str, ...]
    sometimes: bool = False

    def covers(self, name: str) -> bool:
        return any(_matches(pattern, name) for pattern in self.patterns)


@dataclass(frozen=True, slots=True)
class Judgement:
    """A run against its expectations."""

    expected: Mapping[Expectation, Sequence[Case]]  # failures that have a reason
    unexpected: Sequence[Case]
    outdated: Sequence[str]  # what an entry says that is not so


def load(suite: str, folder: Path = FOLDER) -> list[Expectation]:
    """The entries of a suite; none where there is no file."""
    path = folder / f"{suite}.yaml"
    if not path.exists():
        return []
    entries = yaml.safe_load(path.read_text()) or []
    return [_entry(path, number, each) for number, each in enumerate(entries, 1)]


def judge(result: SuiteResult, expectations: Sequence[Expectation]) -> Judgement:
    """Which failures were expected, which were not, and which entries are outdated."""
    expected: dict[Expectation, list[Case]] = {}
    unexpected = []
    for case in result.cases:
        if case.outcome is Outcome.FAILED:
            entry = next((each for each in expectations if each.covers(case.name)), None)
            if entry is None:
                unexpected.append(case)
            else:
                expected.setdefault(entry, []).append(case)
    return Judgement(expected, unexpected, _outdated(result, expectations))


def _outdated(result: SuiteResult, expectations: Sequence[Expectation]) -> list[str]:
    if not result.cases:
        return []
    found = []
    for entry in expectations:
        for pattern in entry.patterns:
            outcomes = [(case.name, case.outcome) for case in result.cases if _matches(pattern, case.name)]
            if not outcomes:
                found.append(f"`{pattern}` is expected to fail and matches no case")
            passed = [name for name, outcome in outcomes if outcome is Outcome.PASSED]
            if passed and not entry.sometimes:
                found.append(f"`{pattern}` is expected to fail and passed: {', '.join(passed)}")
    return found


def _matches(pattern: str, name: str) -> bool:
    return re.fullmatch(".*".join(re.escape(part) for part in pattern.split("*")), name) is not None


def _entry(path: Path, number: int, entry: Any) -> Expectation:
    where = f"entry {number} of {path.name}"
    if not isinstance(entry, dict) or not entry.keys() <= _KEYS or not entry.get("cases"):
        raise InvalidError("expectation", where, f"a mapping with {', '.join(sorted(_KEYS))}")
    reason = str(entry.get("reason") or "").strip()
    if not reason:
        raise InvalidError("expectation", where, "given a reason")
    return Expectation(reason, tuple(map(str, entry["cases"])), bool(entry.get("sometimes", False)))
