"""`python -m bench.heap`: our heap through its SDK, beside other queues with priorities, each durable before it answers.

One process with 1 or 64 clients, messages of 256 bytes with 1,000 priorities, one by one or 100 to a call. A peer's clients have a
connection each; ours share the client of their process. All servers run all the time, and every case is measured of one after the
other, in rounds, so that whatever else the machine does slows down all of them; figures are medians. Ratios are ours to the peer.
`--cluster` measures latencies and processor time of 20 partitions with three replicas on three agent processes, `--waiting` a heap
with a backlog.
`--quick` is a smoke run.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

import uvloop
from rich.console import Console

from bench.cluster.servers import Cluster
from bench.figures import Figure, table
from bench.heap import beanstalkd, ours, postgres, rabbitmq, valkey
from bench.heap.backlog import backlog
from bench.heap.queue import OURS, Clients, Queue, QueueClient
from bench.heap.runs import Latencies, cycles, latencies, rates
from bench.machine import MachineUse
from holdfast.vocabulary.errors import UnavailableError

CASES: Final = ((1, 1), (1, 100), (64, 1), (64, 100))  # clients, messages of a call
RATE: Final = 1_000.0
AIM: Final = 40_000
QUEUES: Final = (
    Queue(OURS, "Holdfast, one partition", ours.serving),
    Queue("skip-locked", "PostgreSQL, SKIP LOCKED", postgres.serving),
    Queue("pgmq", "PostgreSQL, pgmq's statements", partial(postgres.serving, pgmq=True)),
    Queue("valkey", "Valkey, sorted set", valkey.serving),
    Queue("beanstalkd", "beanstalkd -f 0", beanstalkd.serving, batches=False),
    Queue("rabbitmq", "RabbitMQ, quorum queue", rabbitmq.serving),
)


async def measured(clients: Clients, number: int, batch: int, seconds: float) -> dict[str, float]:
    """The rates of one case of a queue."""
    rate = await rates(clients, number=number, batch=batch, seconds=seconds)
    label = f"{number} client{'s' if number > 1 else ''}, " + ("one by one" if batch == 1 else f"{batch} a call")
    return {f"{name.replace('_', ' + ')}, {label}": value for name, value in rate._asdict().items()}


async def _latencies(clients: Clients, seconds: float) -> Latencies:
    return await latencies(clients, number=64, rate=RATE, seconds=seconds)


async def compare(
    directory: Path,
    seconds: float,
    rounds: int,
    names: Sequence[str],
    cases: Sequence[tuple[int, int]],
    say: Callable[[str], None],
) -> list[Figure]:
    """Our figures, and those of each peer that can be started: medians of so many rounds."""
    seen: dict[str, dict[str, list[float]]] = {}
    async with AsyncExitStack() as servers:
        started: list[tuple[Queue, Clients]] = []
        for queue in QUEUES:
            if queue.name == OURS or queue.name in names:
                try:
                    started.append((queue, await servers.enter_async_context(queue.serving(directory / queue.name))))
                except UnavailableError as error:
                    say(f"{queue.title}: not measured: {error}")
        for case, _, (queue, clients) in product([*cases, None], range(rounds), started):
            values = seen.setdefault(queue.name, {})
            if case is None:
                latency = (await _latencies(clients, seconds))._asdict()
                figures_now = {name.replace("_", " "): value for name, value in latency.items()}
            elif case[1] == 1 or queue.batches:
                figures_now = await measured(clients, *case, seconds)
            else:
                continue
            for what, value in figures_now.items():
                values.setdefault(what, []).append(value)
    found = {name: {what: statistics.median(each) for what, each in values.items()} for name, values in seen.items()}
    mine, figures = found.pop(OURS), []
    for what, value in mine.items():
        rate = "p50" not in what and "p95" not in what and what != "behind"
        unit = "messages/s" if rate else "cycles" if what == "behind" else "ms"
        aimed = what == "cycle, 64 clients, 100 a call"
        aim = {"aim": f"≥ {AIM:,}", "met": value >= AIM} if aimed else {}
        figures.append(Figure(OURS, what, unit, value, **aim))  # type: ignore[arg-type]
        for queue in QUEUES:
            if what not in found.get(queue.name, ()) or what == "behind":
                continue
            theirs = found[queue.name][what]
            ratio = value / theirs if rate else theirs / value
            ahead = {"aim": "> 1", "met": ratio > 1} if rate and "64 clients" in what else {}
            figures.append(Figure(queue.name, what, unit, value, theirs, ratio, **ahead))  # type: ignore[arg-type]
    return sorted(figures, key=lambda figure: [queue.name for queue in QUEUES].index(figure.part))


async def replicated(
    directory: Path, seconds: float, rounds: int, *, partitions: int = 20, agents: int = 3
) -> list[Figure]:
    """Latencies and processor time of a heap with replicas on every agent: medians of so many rounds."""
    clusters, used_s = list[Cluster](), list[tuple[float, float]]()
    serving = ours.serving(directory, agents=agents, partitions=partitions, log=ours.QUORUM, on_started=clusters.append)
    async with serving as clients:

        @asynccontextmanager
        async def counted(number: int) -> AsyncIterator[Sequence[QueueClient]]:
            async with clients(number) as made:
                agents_s, client_s = clusters[0].cpu_s(), time.process_time()
                yield made
                used_s.append((clusters[0].cpu_s() - agents_s, time.process_time() - client_s))

        each = [await _latencies(counted, seconds) for _ in range(rounds)]
    agents_ms, client_ms = (statistics.median(row) * 1_000 / cycles(RATE, seconds) for row in zip(*used_s, strict=True))
    found = Latencies._make(map(statistics.median, zip(*each, strict=True)))
    part, note = f"{partitions} partitions, {agents} agents, quorum", f"{RATE:,.0f} cycles/s, {found.behind:.0f} behind"
    aims = {"enqueue_p95": 20.0, "pop_p95": 50.0}
    return [
        Figure(
            part,
            name.replace("_", " "),
            "ms",
            value,
            aim=f"< {aims[name]:.0f} ms" if name in aims else "",
            met=value < aims[name] if name in aims else None,
            note=note,
        )
        for name, value in found._asdict().items()
        if name != "behind"
    ] + [
        Figure(part, f"processor time of a cycle, {who}", "ms", value, note=note)
        for who, value in (("all agents", agents_ms), ("client", client_ms))
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.heap", description=__doc__)
    peers = [queue.name for queue in QUEUES if queue.name != OURS]
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="of each case")
    parser.add_argument("--peers", default=",".join(peers), help=f"which of {', '.join(peers)}; empty: none")
    parser.add_argument("--cluster", action="store_true", help="20 partitions with replicas on three agents")
    parser.add_argument(
        "--waiting", type=int, default=0, metavar="N", help="rates with N messages that wait, of those of an empty heap"
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    seconds = 0.1 if given.quick else given.seconds
    console = Console(stderr=given.json)
    rounds = 1 if given.quick else given.rounds
    use = MachineUse()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-heap-") as folder:
        for queue in QUEUES:
            Path(folder, queue.name).mkdir()
        if given.waiting:
            work = backlog(Path(folder, OURS), seconds, given.waiting)
        elif given.cluster:
            work = replicated(Path(folder, OURS), seconds, rounds, partitions=3 if given.quick else 20)
        else:
            work = compare(Path(folder), seconds, rounds, given.peers.split(","), CASES, console.print)
        figures = uvloop.run(work)
    console.print(str(use))
    if given.json:
        print("\n".join(figure.json() for figure in figures))
    else:
        console.print(table(figures, "Heaps"))
    return 0 if given.quick or all(figure.met is not False for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
