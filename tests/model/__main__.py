"""`python -m tests.model explore` and `python -m tests.model bugs`: the long form of the model's tests."""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice

from tests.model.planted_bugs import PLANTED_BUGS, with_bug
from tests.model.runs import EVERYTHING, RUNS
from tests.model.schedules import read_schedules, write_schedules
from tests.model.search import Explored, explore, walk
from tests.model.state import Limits

_WALK_STEPS = 45
_KEPT = 3  # violations of a bug, of which the shortest is shown


def _explore(states_max: int, run: tuple[str, Limits]) -> tuple[str, Explored]:
    return run[0], explore(run[1], states_max=states_max)


def _search(walks: int, bug: str) -> tuple[str, Explored | None]:
    """The shortest of the schedules that random walks find."""
    found = (walk(with_bug(bug), seed=seed, length=_WALK_STEPS) for seed in range(walks))
    violating = islice((each for each in found if each.violation), _KEPT)
    return bug, min(violating, key=lambda each: len(each.schedule), default=None)


def _walk_right(seed: int) -> Explored:
    return walk(EVERYTHING, seed=seed, length=_WALK_STEPS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    exploring = commands.add_parser("explore", help="explore the protocol: every state within bounds")
    exploring.add_argument("--states-max", type=int, default=2_000_000, help="of each run")
    exploring.add_argument("--run", choices=sorted(RUNS), action="append", help="only this one")
    walking = commands.add_parser("walk", help="random schedules of the protocol with everything on")
    walking.add_argument("--walks", type=int, default=10_000)
    searching = commands.add_parser("bugs", help="search for every planted bug by random walks")
    searching.add_argument("--walks", type=int, default=5_000, help="for each")
    searching.add_argument("--write", action="store_true", help="keep schedules that are shorter than the known ones")
    told = parser.parse_args()
    with ProcessPoolExecutor() as processes:
        if told.command == "explore":
            runs = [(name, limits) for name, limits in RUNS.items() if not told.run or name in told.run]
            violations = 0
            for name, seen in processes.map(partial(_explore, told.states_max), runs):
                how = "all" if seen.complete else "cut off"
                print(
                    f"{name}: {seen.states:,} states, {seen.transitions:,} transitions, {how} {seen.violation}",
                    flush=True,
                )
                violations += bool(seen.violation)
            return int(violations > 0)
        if told.command == "walk":
            walked = list(processes.map(_walk_right, range(told.walks), chunksize=50))
            bad = [each for each in walked if each.violation]
            print(f"{len(walked):,} walks, {sum(each.states for each in walked):,} steps, {len(bad)} violations")
            return int(bool(bad))
        schedules, missed = read_schedules(), list[str]()
        for bug, shortest in processes.map(partial(_search, told.walks), PLANTED_BUGS):
            known = schedules.get(bug, ())
            if shortest is not None and (not known or len(shortest.schedule) < len(known)):
                schedules[bug] = shortest.schedule
            if shortest is None:
                missed.append(bug)
            steps = "not found" if shortest is None else f"{len(shortest.schedule)} steps: {shortest.violation}"
            print(f"{bug}: {steps}", flush=True)
            if told.write:
                write_schedules({each: schedules[each] for each in PLANTED_BUGS if each in schedules})
        print(
            f"{len(PLANTED_BUGS) - len(missed)} of {len(PLANTED_BUGS)} found by walks; known schedules: {len(schedules)}"
        )
        return 0


if __name__ == "__main__":
    sys.exit(main())
