"""Requests made of our own OpenAPI document, by schemathesis: `python -m tests.fuzz.rest --calls 20000`.

Two real servers: one without security, where everybody may do everything, and one with it, to whose routes an administrator's key
and nobody's are sent. Nothing may be answered with an internal error, or with what the document does not say. What ends the
credentials that a run needs is tried by itself, at last.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from tests.support.secured_server import LOGINS, SecuredServer
from tests.support.server_process import started
from tests.support.waiting import until

CHECKS = (
    *("not_a_server_error", "status_code_conformance", "content_type_conformance"),
    *("response_headers_conformance", "response_schema_conformance"),
)
ENDS_THE_KEY = "DELETE /api/v1/keys/{prefix}"
LASTS = "GET /api/v1/topics/{topic}/tail"  # server-sent events
REQUEST_S = 60.0
ADMINISTRATOR = "root"
CALLS_PER_EXAMPLE = 400  # callers × operations, and a little more


@dataclass(frozen=True, slots=True)
class RestFindings:
    """What a run has seen. `calls`: requests that were sent; `failures`: what schemathesis prints of each."""

    caller: str
    calls: int
    failures: int
    report: str

    def __str__(self) -> str:
        found = f"{self.caller}: {self.calls} calls, {self.failures} failures"
        return f"{found}\n{self.report}" if self.failures else found


def sent(
    url: str, folder: Path, *options: str, caller: str, key: str = "", examples: int, coverage: bool, seed: int
) -> RestFindings:
    """Requests to every operation: `examples` random ones each, and with `coverage` one for each constraint of the document."""
    report = folder / f"{caller.replace(' ', '-')}.json"
    argv = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json"),
        *("--checks", ",".join(CHECKS), "--phases", "coverage,fuzzing" if coverage else "fuzzing"),
        *("--max-examples", str(examples), "--seed", str(seed), "--continue-on-failure", "--no-shrink", "--no-color"),
        *("--suppress-health-check", "all", "--request-timeout", str(REQUEST_S), "--warnings", "off"),
        *("--generation-database", "none", "--report", "json", "--report-json-path", str(report)),
        *("--exclude-name", LASTS, *options),
        *(("--header", f"Authorization: Bearer {key}") if key else ()),
    ]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    if not report.exists():
        return RestFindings(caller, 0, 1, done.stdout + done.stderr)
    said = json.loads(report.read_text())
    if done.returncode and not said["test_cases"]["with_failures"]:
        return RestFindings(caller, 0, 1, done.stdout + done.stderr)
    return RestFindings(caller, said["test_cases"]["generated"], said["test_cases"]["with_failures"], done.stdout)


@contextmanager
def secured_server(folder: Path) -> Iterator[tuple[SecuredServer, str]]:
    """A server with security, and the key of its administrator."""
    quiet = ("--audit", "off", "--super-users", f"User:{ADMINISTRATOR}")
    secured = SecuredServer(folder / "secured", *LOGINS, *quiet)
    with started(secured):
        _, key = secured.create_key(ADMINISTRATOR)
        with secured.with_key(key) as client:
            until(lambda: client.get("/api/v1/topics").status_code == httpx.codes.OK)
        yield secured, key


def run(folder: Path, *, examples: int, seed: int) -> Sequence[RestFindings]:
    """Every caller against its server: random requests, and one for each constraint of the document."""
    unsecured = SecuredServer(folder / "open", "--roles", "api,agent")
    with started(unsecured), secured_server(folder) as (secured, key):
        everything: dict[str, Any] = {"examples": examples, "coverage": True, "seed": seed}
        return [
            sent(unsecured.http, folder, caller="no security", **everything),
            sent(secured.http, folder, caller="nobody", **everything),
            sent(secured.http, folder, "--exclude-name", ENDS_THE_KEY, caller="administrator", key=key, **everything),
            sent(secured.http, folder, "--include-name", ENDS_THE_KEY, caller="revocation", key=key, **everything),
        ]


def main() -> int:
    """0 if nothing was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.rest", description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000, metavar="N", help="about how many (default: 10000)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="which (default: 1)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-fuzz-") as folder:
        found = run(Path(folder), examples=max(1, args.calls // CALLS_PER_EXAMPLE), seed=args.seed)
    for each in found:
        print(each)
    print(f"rest: {sum(each.calls for each in found)} calls, {sum(each.failures for each in found)} failures")
    return 1 if any(each.failures for each in found) else 0


if __name__ == "__main__":
    sys.exit(main())
