"""The Java client, its Admin and Kafka's command line tools: our own scenarios in tests/clients, as a suite of this page."""

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.support.apache_kafka import VERSION, kafka_classpath

from conformance.model import Case, Outcome, Workplace
from conformance.programs import require, started

ROOT: Final = Path(__file__).parents[2]
TIMEOUT_S: Final = 3600


class JavaClients:
    """`pytest tests/clients/test_java*.py`; it starts servers of its own, since it kills and freezes them."""

    name = "java-clients"
    title = "Java client and tools"
    about = (
        "`tests/clients/test_java*.py`: scenarios of our own around the Java producer, consumer and Admin, members that are killed "
        "and frozen, restarts of the server, and Kafka's command line tools."
    )
    server_options: Sequence[str] = ()
    lists_cases = False

    def prepare(self, cache: Path) -> str:
        require("javac", used_for="to compile the scenarios")
        kafka_classpath()
        return VERSION

    def run(self, cache: Path, at: Workplace) -> Iterator[Case]:
        report = at.scratch / "report.xml"
        tests = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "clients").glob("test_java*.py"))
        argv = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:randomly",
            "-m",
            "long or not long",
            f"--junitxml={report}",
        ]
        with started([*argv, *tests], cwd=ROOT, log=at.log) as process:
            try:
                process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                yield Case("all tests", Outcome.FAILED, f"not finished in {TIMEOUT_S} s")
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
