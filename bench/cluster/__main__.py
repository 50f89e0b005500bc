"""`python -m bench.cluster`: several agents on this host, beside one, and beside Apache Kafka with three brokers."""

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from rich.console import Console

from bench.cluster import many_partitions, object_level, throughput
from bench.figures import Figure, table
from bench.machine import MachineUse

PARTS: Final = ("agents", "levels", "object", "reads", "partitions")


def measure(
    part: str, directory: Path, *, seconds: float, rounds: int, partitions: int, say: Callable[[str], None]
) -> Iterator[Figure]:
    """The figures of one part."""
    match part:
        case "agents":
            yield from throughput.agents(directory, seconds=seconds, rounds=rounds, say=say)
        case "levels":
            yield from throughput.levels(directory, seconds=seconds, rounds=rounds, say=say)
        case "object":
            yield from object_level.measure(directory, seconds=seconds, rounds=rounds, say=say)
        case "reads":
            yield from throughput.reads(directory, seconds=seconds, rounds=rounds, say=say)
        case "partitions":
            yield from many_partitions.measure("sqlite", partitions, say=say)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round: to see that it works, not to compare")
    parser.add_argument(
        "--only", nargs="+", default=PARTS, choices=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}"
    )
    parser.add_argument("--seconds", type=float, help="how long each turn lasts (5; quick 1)")
    parser.add_argument("--rounds", type=int, help="how many rounds (5; quick 1)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # not before what was started has ended
    seconds, rounds = args.seconds or (1.0 if args.quick else 5.0), args.rounds or (1 if args.quick else 5)
    console, figures, use = Console(stderr=True, log_path=False), list[Figure](), MachineUse()
    for part in args.only:
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as made, console.status(part) as status:

            def say(doing: str, part: str = part) -> None:
                status.update(f"{part}: {doing}")

            for figure in measure(
                part,
                Path(made),
                seconds=seconds,
                rounds=rounds,
                partitions=1_000 if args.quick else 10_000,
                say=say,
            ):
                figures.append(figure)
                console.log(f"{figure.part}: {figure.what}: {figure.ours:,.2f} {figure.unit} {figure.note}")
    if args.json:
        sys.stdout.writelines(f"{figure.json()}\n" for figure in figures)
    else:
        Console().print(table(figures, "Several agents on one host"))
        print(use)
    return 0


if __name__ == "__main__":
    sys.exit(main())
