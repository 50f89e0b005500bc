"""`python -m tests.heap.oracle --configurations N`: random topics and faults, and the true rank of every pop."""

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from tests.heap.oracle.report import Measured, OracleReport, measure, report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.heap.oracle", description=__doc__)
    parser.add_argument("--configurations", type=int, default=1_000, metavar="N")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="SEED")
    parser.add_argument("--k", type=int, help="only topics with this bound")
    parser.add_argument("--planted", help="a mutant of holdfast.sim.heap, which must fail")
    parser.add_argument("--fairness", action="store_true", help="fairness keys, and limits of leases for each")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    args = parser.parse_args()
    console = Console(highlight=False)
    seeds = range(args.first, args.first + args.configurations)
    measured: list[Measured] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        Progress(*columns, console=Console(stderr=True), transient=True, disable=args.json) as progress,
        ProcessPoolExecutor() as processes,
    ):
        bar = progress.add_task("configurations", total=len(seeds))
        for each in processes.map(
            partial(measure, k=args.k, planted=args.planted, fairness=args.fairness), seeds, chunksize=8
        ):
            measured.append(each)
            progress.advance(bar)
    result = report(measured)
    if args.json:
        console.print_json(msgspec.json.encode(result).decode())
    else:
        _print(console, result)
    return 1 if result.violations else 0


def _print(console: Console, result: OracleReport) -> None:
    console.print(
        f"{result.configurations} configurations, {result.pops} pops, {result.violations} violations; worst rank"
        f" {result.worst_rank} of K {result.worst_rank_k}; {result.met_exactly} topics met their bound exactly",
        style="red" if result.violations else "green",
    )
    console.print(
        f"K=1: {result.exact_configurations} configurations, {result.exact_pops} pops, all of rank {result.exact_worst};"
        f" {result.faults} changes of leaders and spines, lost links and growths; {result.messages_per_pop} messages per pop"
    )
    for seed, text in result.failures[:10]:
        console.print(f"seed {seed}: {text}", style="red")


if __name__ == "__main__":
    raise SystemExit(main())
