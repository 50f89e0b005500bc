"""`python -m tests.clients.soak --seconds 600`: the soak as a command. Prints its report as JSON; exits 1 if it is not clean."""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from tests.clients.soak.plan import SHORT, Plan
from tests.clients.soak.run import soak
from tests.support.broker import serving


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=Plan().seconds)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keep data and files there (default: a folder that is removed)")
    args = parser.parse_args()
    plan = replace(SHORT if args.seconds < 60 else Plan(), seconds=args.seconds, seed=args.seed)
    with tempfile.TemporaryDirectory(prefix="holdfast-soak-") as temporary:
        folder = args.folder or Path(temporary)
        work = folder / "work"
        work.mkdir(parents=True)
        with serving(folder / "server") as broker:
            report = soak(broker, work, plan)
    print(json.dumps({**asdict(report), "clean": report.clean}, indent=2))
    return 0 if report.clean else 1


if __name__ == "__main__":
    sys.exit(main())
