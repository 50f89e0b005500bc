"""Suites that pytest runs: one process, and its JUnit report as cases."""

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from conformance.model import Case, Outcome
from conformance.programs import started


def run_pytest(
    args: Sequence[str],
    *,
    cwd: Path,
    scratch: Path,
    log: Path,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
) -> Iterator[Case]:
    """The cases of a run of `python -m pytest`; one failed case where there is no report."""
    report = scratch / "report.xml"
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    argv += [f"--junitxml={report}", f"--basetemp={scratch / 'pytest'}"]
    with started([*argv, *args], cwd=cwd, log=log, env=env) as process:
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            yield Case("all tests", Outcome.FAILED, f"not finished in {timeout_s:g} s")
            return
    yield from cases(report.read_text()) if report.exists() else [Case("all tests", Outcome.FAILED, "no report")]


def cases(report: str) -> Iterator[Case]:
    """The cases of a JUnit report."""
    for each in ElementTree.fromstring(report).iter("testcase"):
        name = f"{each.get('classname', '').rpartition('.')[2]}::{each.get('name')}"
        if (skipped := each.find("skipped")) is not None:
            yield Case(name, Outcome.SKIPPED, skipped.get("message") or "")
        elif (failed := each.find("failure")) is not None or (failed := each.find("error")) is not None:
            yield Case(name, Outcome.FAILED, failed.get("message") or "")
        else:
            yield Case(name, Outcome.PASSED)
