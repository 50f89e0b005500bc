"""`python -m bench.latency`: single-record requests with an fsync before each answer. See docs/latency.md."""

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from bench.figures import table
from bench.kafka.programs import NoCompilerError, compiled
from bench.latency import report
from bench.latency.load import SOURCES
from bench.latency.peers import PEERS
from bench.latency.runs import OTHERS_CORES, PARTS, REQUESTS, LatencyResults, RunPlan, Runs

PEER_NAMES = tuple(each.name for each in PEERS)
OF_REQUESTS_ONLY = ("valkey", "nats")  # unless they are asked for


def run(parts: list[str], peers: list[str], plan: RunPlan, directory: Path | None) -> LatencyResults:
    """Every part, one after the other. Without a choice of peers, each part has those it is compared with."""
    console, found = Console(stderr=True, log_path=False), LatencyResults()
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=directory) as made,
        console.status("starting") as status,
    ):
        for part in parts:
            left_out = () if peers or part == REQUESTS else OF_REQUESTS_ONLY
            chosen = [each for each in PEERS if each.name in (peers or PEER_NAMES) and each.name not in left_out]
            runs = Runs(chosen, found, plan, directory=Path(made), say=status.update)
            if part == REQUESTS:
                runs.requests()
            else:
                runs.latency(part)
            console.log(f"{part} is done")
    found.settle_unavailable()
    return found


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.latency", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="5 s each, 1,000/s only: to see that it works")
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument(
        "--peers", nargs="+", default=[], choices=PEER_NAMES, metavar="PEER", help=", ".join(PEER_NAMES)
    )
    parser.add_argument(
        "--rates", nargs="+", type=int, help="requests a second of the open loop (1000 10000; quick 1000)"
    )
    parser.add_argument("--seconds", type=float, help="how long each open loop is measured (60; quick 5)")
    parser.add_argument("--warm-up", type=float, help="seconds of the same load before it (10; quick 2)")
    parser.add_argument("--request-seconds", type=float, help="how long each closed loop is measured (1.5; quick 1)")
    parser.add_argument("--rounds", type=int, help="rounds (open loops 1, closed loops 9; quick 1)")
    parser.add_argument("--partitions", type=int, default=1, help="partitions of the topic (1)")
    parser.add_argument("--realtime", action="store_true", help="the open loop's client goes before all others (root)")
    parser.add_argument("--patience", type=float, default=0.0, help="seconds each run waits for other programs (0)")
    parser.add_argument("--dir", type=Path, help="a directory on the disk to measure, with 5 GiB to spare")
    parser.add_argument("--json", action="store_true")
    return parser


def plan_of(args: argparse.Namespace) -> RunPlan:
    default = RunPlan()
    if args.quick:
        default = RunPlan(rates=(1_000,), seconds=5.0, warm_up_s=2.0, request_seconds=1.0, request_rounds=1)
    return RunPlan(
        rates=tuple(args.rates or default.rates),
        seconds=args.seconds or default.seconds,
        warm_up_s=default.warm_up_s if args.warm_up is None else args.warm_up,
        request_seconds=args.request_seconds or default.request_seconds,
        rounds=args.rounds or default.rounds,
        request_rounds=args.rounds or default.request_rounds,
        partitions=args.partitions,
        realtime=args.realtime,
        patience_s=args.patience,
    )


def print_report(found: LatencyResults, plan: RunPlan) -> None:
    console = Console() if sys.stdout.isatty() else Console(width=210)
    for each in report.latency_tables(found, plan.rates):
        console.print(each)
    if (requests := report.requests_table(found)) is not None:
        console.print(requests)
    if made := report.figures(found, plan.rates):
        console.print(table(made, "Holdfast against each, in this run"))
    if any(key[1] == OTHERS_CORES for key in found.values):
        console.print(f"others used {found.others_cores():.2f} of {os.cpu_count()} cores")
    for name, why in found.missing.items():
        console.print(f"not measured: {name}: {why}")
    for failure in found.failures:
        console.print(f"failed: {failure}")


def main() -> int:
    args = arguments().parse_args()
    plan = plan_of(args)
    try:
        compiled("requests", SOURCES)
    except NoCompilerError as error:
        sys.exit(f"the load generator cannot be compiled: {error}")
    found = run([part for part in PARTS if part in args.only], args.peers, plan, args.dir)
    if args.json:
        told = {"plan": asdict(plan), "others_cores": found.others_cores(), **found.as_json()}
        told["seconds_p99_us"] = found.seconds_p99_us
        told["figures"] = [asdict(each) for each in report.figures(found, plan.rates)]
        json.dump(told, sys.stdout, indent=1)
        sys.stdout.write("\n")
    else:
        print_report(found, plan)
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
