"""`python -m tests.short_form`: pytest; where other guests took the processors, what failed is tried again, alone.

A time-out of five seconds says nothing on a machine that runs for a quarter of the time: the kernel counts what others take as
`steal`. Only beyond `STARVED` is there a second try, of `AGAIN_MAX` tests at most, one after another; it names them. A machine that
had its processors has no second try.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

STARVED: Final = 0.15  # of the processor time
AGAIN_MAX: Final = 60
_STOLEN_COLUMN: Final = 7  # user, nice, system, idle, iowait, irq, softirq, steal
_COLUMNS: Final = 8  # what guests of this machine use is in `user` as well
_GROUP: Final = re.compile(r"@[^@\]]*$")  # what tests/conftest.py puts behind an id


class ProcessorTimes(NamedTuple):
    """Since the machine started, of all processors: ticks, and those that other guests took."""

    ticks: int
    stolen: int

    @classmethod
    def parse(cls, line: str) -> "ProcessorTimes":
        """The first line of /proc/stat."""
        columns = [int(each) for each in line.split()[1 : 1 + _COLUMNS]]
        return cls(sum(columns), columns[_STOLEN_COLUMN] if len(columns) > _STOLEN_COLUMN else 0)

    def stolen_until(self, later: "ProcessorTimes") -> float:
        """Which share of the time was taken."""
        return (later.stolen - self.stolen) / max(1, later.ticks - self.ticks)


def tried_again(exit_code: int, failed: Sequence[str], stolen: float) -> list[str]:
    """The tests that get a second try."""
    tests = sorted({_GROUP.sub("", each) for each in failed})
    starved = exit_code == 1 and stolen >= STARVED and len(tests) <= AGAIN_MAX
    return tests if starved else []


def main(argv: Sequence[str]) -> int:
    pytest = [sys.executable, "-m", "pytest"]
    with tempfile.TemporaryDirectory() as folder:
        failures = Path(folder) / "failed"
        failures.touch()
        before = _processor_times()
        listing = [
            "-p",
            "tests.support.failed_tests",
            f"--failed-tests={failures}",
        ]  # in one word: it is no path to tests
        exit_code = subprocess.run([*pytest, *listing, *argv], check=False).returncode
        stolen = before.stolen_until(_processor_times())
        tests = tried_again(exit_code, failures.read_text().splitlines(), stolen)
    print(f"Other guests of this machine took {stolen:.0%} of its processor time.")
    if tests:
        print(f"{len(tests)} failed and are tried again, alone:", *tests, sep="\n  ", flush=True)
        exit_code = subprocess.run([*pytest, "-p", "no:randomly", *tests], check=False).returncode
    return exit_code


def _processor_times() -> ProcessorTimes:
    try:
        with Path("/proc/stat").open() as counted:
            return ProcessorTimes.parse(counted.readline())
    except FileNotFoundError:  # not Linux: nothing is known to be taken
        return ProcessorTimes(0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
