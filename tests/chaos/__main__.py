"""`python -m tests.chaos --seconds 60 --store postgres --level object --seed 7`: a chaos run by command.

`--heaps`: on a heap instead of a log. Prints what it does and its report as JSON; exits 1 if the report is not clean. The
history, the report and the agents' logs stay in `--folder`. Levels and stores may be several, separated by commas: each pair is a
run.
"""

import argparse
import itertools
import json
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from tests.chaos.cluster import OBJECT_SERVERS
from tests.chaos.exports import write_elle, write_porcupine
from tests.chaos.faults import FAULTS
from tests.chaos.heaps.planted_bugs import HEAP_BUGS
from tests.chaos.heaps.run import HeapPlan, HeapReport
from tests.chaos.heaps.run import run as run_heaps
from tests.chaos.history import HISTORY_FILE, load
from tests.chaos.levels import LEVELS, UnsupportedLevelError
from tests.chaos.planted_bugs import BUGS
from tests.chaos.run import Plan, Report, run
from tests.chaos.stores import STORES


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--heaps", action="store_true", help="a heap, its producers and its consumers")
    parser.add_argument("--bound", default="1", metavar="K", help="rank bounds of heaps (default: 1): each is a run")
    parser.add_argument("--growths", type=int, default=0, metavar="N", help="partitions that a heap gets meanwhile")
    parser.add_argument("--seconds", type=float, default=60, help="of faults, per run (default: 60)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", default="sqlite", help=f"of {', '.join(STORES)}, or all (default: sqlite)")
    parser.add_argument("--level", default="local", help=f"of {', '.join(LEVELS)}, or all (default: local)")
    parser.add_argument("--objects", choices=(*OBJECT_SERVERS, "folder"), default="moto")
    parser.add_argument("--ttl", type=int, default=2_000, metavar="MS", help="lease TTL of the agents (default: 2000)")
    parser.add_argument("--faults", default="", help=f"only these, of {', '.join(FAULTS)}")
    parser.add_argument(
        "--planted", choices=(*BUGS, *HEAP_BUGS), default="", help="plant a bug: the run must not be clean"
    )
    parser.add_argument(
        "--without-learners",
        action="store_true",
        help="who becomes a replica counts at once: without, one with a full disk is none, and nothing can diverge",
    )
    parser.add_argument("--folder", type=Path, help="keep everything there (default: a folder that is removed)")
    parser.add_argument("--export", action="store_true", help="write the history for Elle and Porcupine, too")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # not before what was started has ended
    stores = _chosen(parser, "store", args.store, list(STORES))
    levels = _chosen(parser, "level", args.level, list(LEVELS))
    faults = tuple(_chosen(parser, "faults", args.faults, list(FAULTS))) if args.faults else ()
    bounds = [int(each) for each in args.bound.split(",")] if args.heaps else [0]
    console, reports = Console(stderr=True), list[Report | HeapReport]()
    with tempfile.TemporaryDirectory(prefix="holdfast-chaos-") as temporary:
        for store, level, bound in itertools.product(stores, levels, bounds):
            title = f"{store} {level}" + (f" K={bound}" if bound else "")
            folder = (args.folder or Path(temporary)) / f"{title.replace(' ', '-').replace('=', '')}-{args.seed}"
            if folder.exists():
                parser.error(f"invalid --folder: {folder} is there already")
            chosen: dict[str, Any] = {
                "seconds": args.seconds,
                "seed": args.seed,
                "store": store,
                "level": level,
                "objects": args.objects,
                "ttl_ms": args.ttl,
                "faults": faults,
                "planted": args.planted,
                "heal_s": 20 if args.planted else 120,  # a bug may keep it from ever coming to an end
            }
            with console.status(f"{title}: starting") as status:

                def told(text: str, title: str = title) -> None:
                    status.update(f"{title}: {text}")
                    console.log(f"{title}: {text}")

                try:
                    report: Report | HeapReport
                    if args.heaps:
                        report = run_heaps(folder, HeapPlan(bound=bound, growths=args.growths, **chosen), told=told)
                    else:
                        report = run(folder, Plan(learners=not args.without_learners, **chosen), told=told)
                except UnsupportedLevelError as refused:
                    console.log(f"{title}: skipped: {refused}")
                    continue
            reports.append(report)
            console.log(f"{title}: {'clean' if report.clean else 'NOT CLEAN'}, {report.acknowledged} acknowledged")
            if args.export and not args.heaps:
                history = load(folder / HISTORY_FILE)
                write_elle(history, folder / "elle.edn")
                write_porcupine(history, folder / "porcupine.json")
    print(json.dumps([report.as_json() for report in reports], indent=2))
    return 0 if all(report.clean for report in reports) else 1


def _chosen(parser: argparse.ArgumentParser, name: str, told: str, known: list[str]) -> list[str]:
    if told == "all":
        return known
    chosen = told.split(",")
    if unknown := [each for each in chosen if each not in known]:
        parser.error(f"invalid --{name} {unknown[0]!r}: must be one of {', '.join(known)}, or all")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
