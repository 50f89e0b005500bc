"""Results as files, one per suite: a run of one suite renews its own, and the page is made of all of them.

They are part of the tree, so that what a change does to foreign suites is seen in its diff.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from conformance.model import Case, Outcome, SuiteResult

FOLDER: Final = Path(__file__).parent / "results"


def save(result: SuiteResult, folder: Path = FOLDER) -> None:
    """Replace the suite's file."""
    (folder / f"{result.suite}.json").write_text(json.dumps(as_json(result), indent=1, ensure_ascii=False) + "\n")


def load(suite: str, folder: Path = FOLDER) -> SuiteResult | None:
    """The suite's last result, if there is one."""
    path = folder / f"{suite}.json"
    return from_json(json.loads(path.read_text())) if path.exists() else None


def as_json(result: SuiteResult) -> dict[str, Any]:
    """Passed cases by name alone; the others with why. In the order of their names: a diff shows what changed."""
    about = {
        "suite": result.suite,
        "version": result.version,
        "holdfast": result.holdfast,
        "date": result.date,
        "seconds": result.seconds,
    }
    if result.not_run:
        return {**about, "not_run": result.not_run}
    return {
        **about,
        "passed": sorted(case.name for case in result.cases if case.outcome is Outcome.PASSED),
        "failed": _details(case for case in result.cases if case.outcome is Outcome.FAILED),
        "skipped": _details(case for case in result.cases if case.outcome is Outcome.SKIPPED),
    }


def from_json(kept: dict[str, Any]) -> SuiteResult:
    """What `as_json` wrote."""
    cases = [Case(name, Outcome.PASSED) for name in kept.get("passed", ())]
    cases += [Case(name, Outcome.FAILED, why) for name, why in kept.get("failed", {}).items()]
    cases += [Case(name, Outcome.SKIPPED, why) for name, why in kept.get("skipped", {}).items()]
    return SuiteResult(
        suite=kept["suite"],
        version=kept["version"],
        holdfast=kept["holdfast"],
        date=kept["date"],
        seconds=kept["seconds"],
        cases=tuple(cases),
        not_run=kept.get("not_run", ""),
    )


def _details(cases: Iterable[Case]) -> dict[str, str]:
    return {case.name: case.detail for case in sorted(cases, key=lambda case: case.name)}
