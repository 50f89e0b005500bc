"""A world for each test, and what all of them came to, said at the end of a run that was asked for this folder."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.log_crash.world import CrashWorld

TALLY = "crash suite"


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CrashWorld]:
    made = CrashWorld(tmp_path)
    yield made
    made.end()
    request.node.user_properties.append((TALLY, dict(made.tally)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    total: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "teardown":
                total.update({name: count for tally, counts in report.user_properties if tally == TALLY
                              for name, count in counts.items()})  # fmt: skip
    if total:
        counts = ", ".join(f"{total[name]} {name}" for name in CrashWorld.COUNTS)
        terminalreporter.write_line(f"{TALLY}: {counts}")
