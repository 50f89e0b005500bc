"""`python -m tests.pipeline.kills --seconds 600 --seed 1`: kills and pauses as a command.

Prints its report as JSON; exits 1 if it is not clean. With `--planted` the suite itself is tried: every planted bug must be found.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from tests.pipeline.kills.cluster import running_cluster
from tests.pipeline.kills.plan import FAMILIES, FAST, STREAMING, Plan, drawn, everything, meets
from tests.pipeline.kills.run import run
from tests.pipeline.kills.trials import TRIALS, try_bug


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.pipeline.kills", description=__doc__)
    parser.add_argument("--seconds", type=float, default=Plan().seconds, help="0: every fault once")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", default=",".join(FAMILIES), help=f"of these families: {','.join(FAMILIES)}")
    parser.add_argument(
        "--engine", choices=(FAST, STREAMING), help="pipelines of this engine alone, and faults that they meet"
    )
    parser.add_argument("--only", default="", help="only faults (or bugs) whose text holds this, as in 'jvm kill'")
    parser.add_argument("--away", type=float, default=Plan().away_s, help="how long ClickHouse is down, in seconds")
    parser.add_argument("--folder", type=Path, help="keep data and logs there (default: a folder that is removed)")
    parser.add_argument("--planted", action="store_true", help="plant every bug, one after the other")
    args = parser.parse_args()
    families = tuple(args.faults.split(","))
    if unknown := set(families) - set(FAMILIES):
        parser.error(f"--faults: {', '.join(sorted(unknown))}; there are {', '.join(FAMILIES)}")
    engines = tuple(each for each in Plan().engines if args.engine in (None, each))
    plan = replace(Plan(), seconds=args.seconds, seed=args.seed, away_s=args.away, engines=engines)
    known = [fault for fault in everything(families) if args.only in str(fault) and meets(fault, engines)]
    if not known and not args.planted:
        parser.error(f"--only: no fault's text holds {args.only}")
    faults = (each for each in drawn(plan.seed, families) if each in known) if plan.seconds else iter(known)
    with tempfile.TemporaryDirectory(prefix="holdfast-kills-") as temporary:
        folder = (args.folder or Path(temporary)).absolute()
        if args.planted:
            return _try_bugs(plan, folder, args.only)
        report = run(plan, folder, faults)
    print(json.dumps({**asdict(report), "clean": report.clean}, indent=2))
    return 0 if report.clean else 1


def _try_bugs(plan: Plan, folder: Path, only: str) -> int:
    with running_cluster(replace(plan, planted=True), folder) as cluster:
        reports = []
        for bug, engine in (each for each in TRIALS if only in " ".join(each)):
            reports.append(try_bug(cluster, bug, engine))
            print(reports[-1], file=sys.stderr)
    print(json.dumps([each.as_json() for each in reports], indent=2))
    return 0 if all(each.caught for each in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
