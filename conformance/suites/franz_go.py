"""franz-go's integration tests, as they are in its module: `kgo`, its client, against the address in `KGO_SEEDS`."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from conformance.model import Case, Outcome, Workplace
from conformance.programs import build, require, started

MODULE: Final = "github.com/twmb/franz-go"
VERSION: Final = "v1.22.2"
PACKAGE: Final = f"{MODULE}/pkg/kgo"
RECORDS: Final = 50_000  # through each chain of consumers and producers; the suite's own default is 500,000
TEST_TIMEOUT_S: Final = 300  # each test runs in a process of its own: one that hangs or panics harms no other
BUILD_TIMEOUT_S: Final = 1800

# The one function of its tests that knows where the broker is.
_ROOT: Final = "getSeedBrokers"
_FUNCTION: Final = re.compile(r"^func (?:\([^)]*\) )?(\w+)\(.*?^}", re.MULTILINE | re.DOTALL)


class FranzGo:
    """Cases are its tests without subtests, and subtests."""

    name = "franz-go"
    title = "franz-go"
    about = (
        f"The tests of `{PACKAGE}` that talk to a broker; those that exercise the client alone are left out. "
        f"`KGO_TEST_RF=1`, since there is one broker, and {RECORDS:,} records instead of 500,000 through each chain; "
        f"a test may take {TEST_TIMEOUT_S} s. Refused by ConsumerGroupHeartbeat, the client falls back to the classic protocol: "
        "cases named 848 that pass say nothing about the newer one."
    )
    server_options: Sequence[str] = ()
    lists_cases = False

    def prepare(self, cache: Path) -> str:
        go, log = require("go", used_for="to fetch and build franz-go"), cache / "build.log"
        if not (cache / f"kgo-{VERSION}.test").exists():
            (cache / "go.mod").write_text("module conformance\n\ngo 1.25\n")
            build([go, "get", f"{PACKAGE}@{VERSION}"], cwd=cache, log=log, timeout_s=BUILD_TIMEOUT_S)
            (cache / "use.go").write_text(f'package conformance\n\nimport _ "{PACKAGE}"\n')
            build([go, "test", "-c", "-o", "kgo.test", PACKAGE], cwd=cache, log=log, timeout_s=BUILD_TIMEOUT_S)
            listed = build([go, "list", "-f", "{{.Dir}}", PACKAGE], cwd=cache, log=log, timeout_s=BUILD_TIMEOUT_S)
            sources = [path.read_text() for path in sorted(Path(listed.strip()).glob("*_test.go"))]
            (cache / "tests.json").write_text(json.dumps(reaching(_ROOT, sources)))
            (cache / "kgo.test").rename(cache / f"kgo-{VERSION}.test")
        return VERSION

    def run(self, cache: Path, at: Workplace) -> Iterator[Case]:
        tests = json.loads((cache / "tests.json").read_text())
        go = require("go", used_for="to read the results")
        argv = [go, "tool", "test2json", "-t", str(cache / f"kgo-{VERSION}.test"), "-test.v=test2json"]
        argv += [f"-test.timeout={TEST_TIMEOUT_S}s"]
        settings = {
            "KGO_SEEDS": at.broker.bootstrap,
            "KGO_TEST_RF": "1",
            "KGO_TEST_RECORDS": str(RECORDS),
            "KGO_LOG_LEVEL": "none",
        }
        for test in tests:
            command = [*argv, f"-test.run=^{test}$"]
            with started(command, cwd=at.scratch, log=at.log, env=settings, piped=True) as process:
                assert process.stdout is not None
                yield from cases(_kept(process.stdout, at.log), [test])


def reaching(root: str, sources: Iterable[str]) -> list[str]:
    """The tests whose code leads to the function `root`, by name: exact enough for one package's test files."""
    mentions: dict[str, set[str]] = {}
    for source in sources:
        for match in _FUNCTION.finditer(source):
            mentions.setdefault(match[1], set()).update(re.findall(r"\b\w+\b", match[0]))
    found = {root}
    while grown := {name for name, words in mentions.items() if name not in found and words & found}:
        found |= grown
    return sorted(name for name in found if name.startswith("Test"))


def cases(lines: Iterable[str], tests: Sequence[str]) -> Iterator[Case]:
    """The cases in the output of test2json, and as failed what has no end: the process died or was too slow."""
    output: dict[str, list[str]] = {}
    parents: set[str] = set()
    ended: set[str] = set()
    for line in lines:
        event = json.loads(line) if line.startswith("{") else {}
        name, action = event.get("Test"), event.get("Action")
        if name is None:
            continue
        if action == "run" and "/" in name:
            parents.add(name.partition("/")[0])  # below that, a slash may be part of a name
        elif action == "output":
            output.setdefault(name, []).append(event["Output"])
        elif action in ("pass", "fail", "skip"):
            ended.add(name)
            if name not in parents:
                yield Case(name, _OUTCOMES[action], _told(action, output.get(name, ())))
            output.pop(name, None)
    for name in [*output, *tests]:
        if name not in ended and name not in parents:
            ended.add(name)
            yield Case(name, Outcome.FAILED, _why(output.get(name, ())) or f"no result within {TEST_TIMEOUT_S} s")


_OUTCOMES: Final = {"pass": Outcome.PASSED, "fail": Outcome.FAILED, "skip": Outcome.SKIPPED}


def _told(action: str, lines: Sequence[str]) -> str:
    """Nothing of what passed; the reason alone of what was skipped, the same for every test that gives it."""
    if action == "pass":
        return ""
    if action == "fail":
        return _why(lines)
    found = (re.search(r"\w+_test\.go:\d+: (.*)", line) for line in lines)
    return next((match[1].strip() for match in found if match), "")


def _why(lines: Iterable[str]) -> str:
    return " ".join(line.strip() for line in lines if not line.lstrip().startswith(("===", "---")))


def _kept(lines: Iterable[str], log: Path) -> Iterator[str]:
    with log.open("a") as kept:
        for line in lines:
            kept.write(line)
            yield line
