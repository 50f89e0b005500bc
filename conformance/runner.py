"""Runs suites one after another, each against a server of its own, and shows how far they are."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from tests.support.broker import HoldfastServer

import holdfast
from conformance.model import DETAIL_CHARS_MAX, Case, Outcome, Suite, SuiteResult
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import UnavailableError

_STYLE = {Outcome.PASSED: "green", Outcome.FAILED: "red", Outcome.SKIPPED: "yellow"}


class RunningBroker:
    """`holdfast serve`, as a suite sees it."""

    def __init__(self, server: HoldfastServer) -> None:
        self._server = server

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._server.port}"

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()


class ServedWorkplace:
    """A directory for one run, a server, and more servers where they are asked for."""

    def __init__(self, scratch: Path, log: Path, options: Sequence[str], serving: ExitStack) -> None:
        self.scratch, self.log = scratch, log
        self._serving = serving
        self._broker = self._serve("server", options)

    @property
    def broker(self) -> RunningBroker:
        return self._broker

    def second_broker(self, *options: str) -> RunningBroker:
        return self._serve("second-server", options)

    def _serve(self, name: str, options: Sequence[str]) -> RunningBroker:
        directory = self.scratch / name
        directory.mkdir()
        self._serving.callback(self._keep_log, directory)
        return RunningBroker(self._serving.enter_context(HoldfastServer(directory, *options).running()))

    def _keep_log(self, directory: Path) -> None:
        kept = directory / "holdfast.log"
        if kept.exists():
            shutil.copyfile(kept, self.log.with_name(f"{self.log.stem}-{directory.name}.log"))


@contextmanager
def workplace(suite: Suite, log: Path) -> Iterator[ServedWorkplace]:
    """A new server and an empty directory for the body."""
    with tempfile.TemporaryDirectory(prefix=f"conformance-{suite.name}-") as made, ExitStack() as serving:
        yield ServedWorkplace(Path(made), log, suite.server_options, serving)


def run_suite(suite: Suite, cache: Path, console: Console) -> SuiteResult:
    """Prepare and run one suite. What is missing on this machine is a result like any other."""
    place, clock = cache / suite.name, RealClock()
    place.mkdir(parents=True, exist_ok=True)
    date = datetime.fromtimestamp(clock.now_ms() / 1000, UTC).strftime("%Y-%m-%d")
    log = cache / "logs" / f"{suite.name}.log"
    log.parent.mkdir(exist_ok=True)
    log.write_text("")
    with console.status(f"{suite.title}: preparing") as status:
        try:
            version = suite.prepare(place)
        except UnavailableError as missing:
            console.log(f"{suite.title} is not run: {escape(str(missing))}")
            return SuiteResult(suite=suite.name, date=date, holdfast=version_and_commit(), not_run=str(missing))
        console.log(f"{suite.title} {version} is prepared; its log: {log}")
        began_ms, cases = clock.boot_ms(), []
        with workplace(suite, log) as at:
            status.update(f"{suite.title}: running")
            places = (str(at.scratch), str(cache), str(Path(__file__).parents[1]))
            for case in suite.run(place, at):
                cases.append(_shortened(case, places))
                why = f" {case.detail.strip().splitlines()[0][:200]}" if case.detail.strip() else ""
                shown = f"[{_STYLE[case.outcome]}]{case.outcome}[/] {escape(case.name)}"
                console.log(shown + (escape(why) if case.outcome is not Outcome.PASSED else ""))
                status.update(f"{suite.title}: {len(cases)} cases, the last was {escape(case.name)}")
    return SuiteResult(
        suite=suite.name, version=version, holdfast=version_and_commit(), date=date,
        seconds=round((clock.boot_ms() - began_ms) / 1000), cases=tuple(cases),
    )  # fmt: skip


def version_and_commit() -> str:
    """Holdfast's version and, in a checkout, the commit that last changed `src`; `+` where files differ from it."""
    told = f"Holdfast {holdfast.__version__}"
    git = ["git", "-C", str(Path(__file__).parent)]
    last = [*git, "log", "-1", "--abbrev=10", "--format=%h", "--", "../src"]
    found = subprocess.run(last, capture_output=True, text=True)
    if found.returncode != 0 or not found.stdout:
        return told
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "../src"], capture_output=True).returncode
    return f"{told}, {found.stdout.strip()}{'+' if changed else ''}"


def _shortened(case: Case, places: Sequence[str]) -> Case:
    """What is worth keeping of why: its beginning, and nothing of where it ran."""
    detail = " ".join(case.detail.split())
    for place in places:
        detail = detail.replace(place, "…")
    return Case(case.name, case.outcome, detail[:DETAIL_CHARS_MAX])
