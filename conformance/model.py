"""What a conformance run is made of: cases with their outcomes, the suite they belong to, and what ran where."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

DETAIL_CHARS_MAX: Final = 600  # of why a case failed, in results and page; the whole of it is in the log


class Outcome(StrEnum):
    """What became of a case. A case that its own suite skips is no statement about Holdfast."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Case:
    """One test of a suite, with why it failed or was skipped."""

    name: str
    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteResult:
    """One run of one suite. `not_run` is the reason why there are no cases."""

    suite: str
    version: str = ""
    holdfast: str = ""
    date: str = ""
    seconds: int = 0
    cases: Sequence[Case] = field(default_factory=tuple)
    not_run: str = ""

    def count(self, outcome: Outcome) -> int:
        return sum(case.outcome is outcome for case in self.cases)


class Broker(Protocol):
    """A running Holdfast server that a suite talks to and may crash."""

    @property
    def bootstrap(self) -> str: ...
    def kill(self) -> None: ...
    def start(self) -> None: ...


class Workplace(Protocol):
    """Where a suite runs: a server, room for files, programs with their output in the suite's log."""

    scratch: Path  # of this run, removed after it
    log: Path  # what the suite's programs print, kept after the run

    @property
    def broker(self) -> Broker: ...

    def second_broker(self, *options: str) -> Broker:
        """Another cluster, for programs that connect two, or with other flags of `holdfast serve`."""
        ...


class Suite(Protocol):
    """One foreign suite or program. `prepare` downloads and builds; `run` only tests, and yields each case as it ends."""

    name: str  # for --suite, and of the files of its expectations and results
    title: str
    about: str  # a sentence or two for the page: where it comes from, and what of it is run
    server_options: Sequence[str]  # flags of `holdfast serve`
    lists_cases: bool  # whether the page names what passed: scenarios of ours do, thousands of foreign tests do not

    def prepare(self, cache: Path) -> str:
        """Fetch and build into `cache`, where not there yet; returns the version. UnavailableError says what is missing."""
        ...

    def run(self, cache: Path, at: Workplace) -> Iterator[Case]: ...
