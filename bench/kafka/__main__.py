"""`python -m bench.kafka`: all targets, interleaved, on this machine. See docs/kafka-bench.md."""

import argparse
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from bench.figures import table
from bench.kafka import report
from bench.kafka.cases import CASES, LATENCY, SYSTEMS, System
from bench.kafka.programs import NoCompilerError, compiled
from bench.kafka.results import BenchResults
from bench.kafka.rounds import Rounds, RunPlan
from bench.kafka.targets import Target
from holdfast.vocabulary.errors import UnavailableError

SYSTEM_NAMES = tuple(each.name for each in SYSTEMS)
CASE_NAMES = (*(each.name for each in CASES), LATENCY)


def run(systems: list[str], cases: list[str], plan: RunPlan, directory: Path | None) -> BenchResults:
    """Start what can be had, and let them take turns."""
    console, found = Console(stderr=True, log_path=False), BenchResults()
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=directory) as made,
        ExitStack() as serving,
        console.status("starting") as status,
    ):
        running: dict[str, tuple[System, Target]] = {}
        for system in SYSTEMS:
            if system.name in systems:
                status.update(f"{system.name} starts")
                try:
                    running[system.name] = (system, serving.enter_context(system.serving(Path(made) / system.name)))
                except UnavailableError as error:
                    found.missing[system.name] = str(error)
                    console.log(f"{system.name} is not measured: {error}")
        turns = Rounds(running, found, plan, directory=Path(made), say=status.update)
        chosen = [each for each in CASES if each.name in cases]
        for case in chosen[:1]:
            turns.warm_up(case)
        for case in chosen:
            turns.throughput(case)
            console.log(f"{case.name} is done")
        if LATENCY in cases:
            turns.latency()
    for failure in found.failures:
        console.log(f"[red]failed[/red] {failure}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.kafka", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round: to see that it works, not to compare")
    parser.add_argument(
        "--only", nargs="+", default=[], choices=(*SYSTEM_NAMES, *CASE_NAMES), metavar="NAME",
        help=f"only these systems ({', '.join(SYSTEM_NAMES)}) and these cases ({', '.join(CASE_NAMES)})",
    )  # fmt: skip
    parser.add_argument("--seconds", type=float, help="how long each turn produces (3; quick 1)")
    parser.add_argument("--rounds", type=int, help="how many rounds (5; quick 1)")
    parser.add_argument("--patience", type=float, default=0.0, help="seconds each turn waits for other programs (0)")
    parser.add_argument("--dir", type=Path, help="a directory on the disk to measure, with 20 GiB to spare")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    seconds = args.seconds or (1.0 if args.quick else 3.0)
    plan = RunPlan(
        seconds, args.rounds or (1 if args.quick else 5), latency_seconds=2 * seconds, patience_s=args.patience
    )
    systems = [each for each in SYSTEM_NAMES if each in args.only] or list(SYSTEM_NAMES)
    cases = [each for each in CASE_NAMES if each in args.only] or list(CASE_NAMES)

    client = "librdkafka, from C"
    try:
        compiled("load")
    except NoCompilerError as error:
        client = f"confluent-kafka, from Python: the client is measured, not the server ({error})"
    found = run(systems, cases, plan, args.dir)
    made = report.figures(found)
    noise = f"others used {found.others_cores():.2f} of {os.cpu_count()} cores"
    if args.json:
        told = {"client": client, "noise": noise, "plan": asdict(plan), **found.as_json()}
        json.dump({**told, "figures": [asdict(each) for each in made]}, sys.stdout, indent=1)
        sys.stdout.write("\n")
        return 1 if found.failures else 0
    console = Console() if sys.stdout.isatty() else Console(width=160)
    title = f"Kafka gateway: {client}; medians of {plan.rounds} rounds of {plan.seconds:g} s; {noise}"
    console.print(report.values_table(found, title))
    if made:
        console.print(table(made, "Holdfast against each"))
        console.print(report.verdict(made))
    for name, why in found.missing.items():
        console.print(f"not measured: {name}: {why}")
    for failure in found.failures:
        console.print(f"failed: {failure}")
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
