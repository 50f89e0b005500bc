"""`python -m tests.scenarios --store etcd,postgres`: Walrus's scenarios on three real servers, by command.

Prints what it does and the outcomes as JSON; exits 1 unless nothing was lost and nothing was out of order. `--rounds` repeats them
on new nodes.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from tests.scenarios.nodes import STORES, ScenarioCluster
from tests.scenarios.scenarios import SCENARIOS, applicable


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios", description=__doc__)
    parser.add_argument("--store", default="etcd", help=f"of {', '.join(STORES)} (default: etcd, a member per node)")
    parser.add_argument("--scenario", default="", help=f"only these, of {', '.join(SCENARIOS)}")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keep everything there (default: a folder that is removed)")
    args = parser.parse_args()
    only = [each for each in args.scenario.split(",") if each]
    stores = args.store.split(",")
    for name, value, known in (("store", stores, STORES), ("scenario", only, SCENARIOS)):
        if unknown := [each for each in value if each not in known]:
            parser.error(f"invalid --{name} {unknown[0]!r}: must be one of {', '.join(known)}")
    console, outcomes, clean = Console(stderr=True), [], True
    with tempfile.TemporaryDirectory(prefix="holdfast-scenarios-") as temporary:
        for turn in range(args.rounds):
            for store in stores:
                folder = (args.folder or Path(temporary)) / f"{store}-{turn}"
                folder.mkdir(parents=True)
                with ScenarioCluster.running(folder, store) as cluster:
                    for name in applicable(store, cluster.store.kills):
                        if not only or name in only:
                            outcome = SCENARIOS[name](cluster)
                            console.log(f"{store}: {outcome}")
                            outcomes.append({"store": store, **asdict(outcome)})
                            clean &= outcome.clean
    print(json.dumps(outcomes, indent=2))
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
