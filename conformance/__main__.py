"""`python -m conformance`: foreign suites against Holdfast, and docs/conformance.md. See there."""

import argparse
import json
import os
import signal
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from conformance import expectations, page, results
from conformance.runner import run_suite
from conformance.suites import SUITES


def default_cache() -> Path:
    """Outside the tree: sources and builds of other people are not ours to keep."""
    kept = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(kept) / "holdfast" / "conformance"


def main() -> int:
    """Run what was chosen, renew the page; exit code 1 where something failed without a reason."""
    names = tuple(suite.name for suite in SUITES)
    parser = argparse.ArgumentParser(prog="python -m conformance", description=__doc__)
    parser.add_argument(
        "--suite", nargs="+", default=[], choices=names, metavar="NAME", help=f"only: {', '.join(names)}"
    )
    parser.add_argument("--list", action="store_true", help="list the suites, and run nothing")
    parser.add_argument("--page", action="store_true", help="write the page from the last results, and run nothing")
    parser.add_argument(
        "--cache", type=Path, default=default_cache(), help="where sources and builds are kept (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    args = parser.parse_args()
    console, failed, found = Console(stderr=True, log_path=False), False, []
    chosen = [suite for suite in SUITES if not args.suite or suite.name in args.suite]
    for suite in [] if args.page or args.list else chosen:
        result = run_suite(suite, args.cache, console)
        judged = expectations.judge(result, expectations.load(suite.name))
        results.save(result)
        page.PAGE.write_text(page.render(SUITES))
        found.append(result)
        failed = failed or bool(judged.unexpected)
        for case in judged.unexpected:
            told = escape(f"{suite.name}: {case.name}: {case.detail}")
            console.log(f"[red]failed without a reason[/red] {told}")
        for outdated in judged.outdated:
            console.log(f"[yellow]outdated expectation[/yellow] {suite.name}: {escape(outdated)}")
    if args.page:
        page.PAGE.write_text(page.render(SUITES))
    if args.list:
        for suite in SUITES:
            Console().print(f"{suite.name:14} {suite.title}", highlight=False)
    if args.json:
        json.dump([results.as_json(result) for result in found], sys.stdout, indent=1)
        sys.stdout.write("\n")
    return 1 if failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers and programs are ended
    sys.exit(main())
