"""`python -m bench.observability`: Kafka produce with metrics and traces against without, in one run, turn by turn.

Four servers run at once: without metrics (histograms that observe nothing, no scrapes), with metrics that are scraped every five
seconds, and with traces besides, of 1 % of the requests and of all. Ratios are of each turn to the turn of the first in the same
round; the median counts. Records a second are what a client sees; records for a second of the server's processor time depend less
on what else the machine does. `--quick` is a smoke run; `--partitions 0` leaves out the scrape of many partitions.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from rich.console import Console

from bench.figures import Figure, table
from bench.kafka.processes import cpu_seconds
from bench.kafka.targets import KafkaTarget
from bench.observability.scrape import scrape_figures
from bench.observability.servers import METRICS, OFF, TRACES, servers

RATIO_MIN: Final = 0.95
CASES: Final = {
    "batches of 100-byte records": (100, ()),
    "single-record requests": (100, ("linger.ms=0", "batch.num.messages=1", "queue.buffering.max.messages=2000")),
}
Rates = dict[str, list[float]]


def turn(target: KafkaTarget, size: int, settings: Sequence[str], seconds: float) -> tuple[float, float]:
    """Records a second, and for a second of the server's processor time."""
    topic = target.create(1)
    cpu_s = cpu_seconds(target.pid)
    done = target.produce(topic, 1, size, seconds, *settings)
    used_s = cpu_seconds(target.pid) - cpu_s
    target.drop(topic)
    return done["records"] / done["seconds"], done["total_records"] / max(used_s, 0.01)


def compare(name: str, rates: dict[str, Rates]) -> list[Figure]:
    """A figure for each kind of rate and server."""
    found = []
    for unit, by_server in rates.items():
        reference = by_server[OFF.name]
        for server, ours in by_server.items():
            if server == OFF.name:
                continue
            ratio = median(one / other for one, other in zip(ours, reference, strict=True))
            # The client's rate is noise on a busy machine, and traces of all requests are nobody's default.
            aimed = unit.endswith("core") and server in (METRICS.name, TRACES.name)
            found.append(
                Figure(
                    f"{name}, {unit}",
                    server,
                    unit,
                    median(ours),
                    median(reference),
                    ratio,
                    f"ratio ≥ {RATIO_MIN}" if aimed else "",
                    ratio >= RATIO_MIN if aimed else None,
                )
            )
    return found


def run(seconds: float, rounds: int, say: Callable[[str], None]) -> list[Figure]:
    """Every figure of produce."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as directory, servers(Path(directory)) as targets:
        for name, (size, settings) in CASES.items():
            rates: dict[str, Rates] = {"records/s": {}, "records/s and core": {}}
            for round_ in range(rounds + 1):
                order = list(targets.items())
                for server, target in order if round_ % 2 else reversed(order):
                    found = turn(target, size, settings, seconds)
                    if round_:  # the first one warms up
                        for by_server, value in zip(rates.values(), found, strict=True):
                            by_server.setdefault(server, []).append(value)
                say(f"{name}: round {round_} of {rounds}")
            figures += compare(name, rates)
    return figures


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="of one turn")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--partitions", type=int, default=10_000, help="of the scrape; 0: none")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    seconds, rounds = (0.5, 1) if args.quick else (args.seconds, args.rounds)
    partitions = min(args.partitions, 200) if args.quick else args.partitions
    figures = run(seconds, rounds, lambda line: print(line, file=sys.stderr))
    figures += scrape_figures(partitions) if partitions else []
    if args.json:
        for each in figures:
            print(each.json())
    else:
        Console(width=120).print(table(figures, "metrics and traces"))
    return int(any(each.met is False for each in figures))


if __name__ == "__main__":
    sys.exit(main())
