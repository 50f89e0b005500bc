"""`python -m bench.failover`: how long a partition is without acknowledgements, as its client sees it, when its leader goes away.

    python -m bench.failover --store sqlite,postgres,etcd --level local,object,quorum --ttl 2000,30000

Three agents, six partitions, one idempotent librdkafka producer with 25 records a second to each partition. For every event the
longest time between two acknowledgements is taken, of the partitions its agent led and of all others, until it is started again.
At the level `local-clean` nothing is sent before the event, until all is published. An agent that nobody could
replace is started again after its TTL and a few seconds: `came back` says so; `early` says that peers have ended its session.
Nothing is averaged: run it again. `--folder` keeps the agents' logs.
"""

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Final

import msgspec
from confluent_kafka import KafkaException
from rich.console import Console
from rich.table import Table
from tests.chaos.cluster import ChaosAgent, ChaosCluster
from tests.chaos.faults import cut_peers, cut_store
from tests.chaos.history import Recorder, Type
from tests.chaos.levels import LEVELS, Level, UnsupportedLevelError, create
from tests.chaos.producers import ChaosProducer
from tests.chaos.stores import STORES
from tests.support.server_process import admin, leaders
from tests.support.waiting import until

from bench.machine import MachineUse
from holdfast.kernel.keys import PLANNER, holder_key
from holdfast.kernel.lease import read_holder
from holdfast.log.keys import state_key, topic_key
from holdfast.log.metadata import PartitionRecord
from holdfast.log.topics import read_topic
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

TOPIC: Final = "failover"
PARTITIONS: Final = 6
PER_S: Final = 25 * PARTITIONS
AWAY_S: Final = 6.0  # beyond the TTL: then an agent comes back
QUIET_S: Final = 1.0
WIDTH: Final = 150
CLEAN: Final = "local-clean"
MEASURED_LEVELS: Final = {
    **LEVELS,
    CLEAN: Level(name=CLEAN, config={"segment.ms": "500"}, survives_lost_disk=False),
}
ENDED_EARLY: Final = "before its TTL"  # in an agent's log
EVENTS: Final = ("kill", "kill-planner", "freeze", "stop", "cut")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """One measurement. `led_ms`: of the partitions the agent led, while it was away; `back_ms`: of all, when it came back."""

    store: str
    level: str
    ttl_ms: int
    event: str
    led_ms: int = 0
    others_ms: int = 0
    back_ms: int = 0
    came_back: bool = False
    early: bool = False


class Acknowledgements(Recorder):
    """When which partition was acknowledged. In memory: to read the history again would hold up the client that is measured."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._invoked_ms: dict[str, int] = {}
        self._answers: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        self._newest_ms = dict.fromkeys(range(PARTITIONS), -1)  # when what was acknowledged was sent, at the latest

    def __call__(self, process: str, status: Type, f: str, **value: Any) -> None:
        super().__call__(process, status, f, **value)
        if f == "send" and status == "invoke":
            self._invoked_ms[value["value"]] = self.now_ms()
        elif f == "send":
            invoked_ms = self._invoked_ms.pop(value["value"])
            if status == "ok":
                number = value["partition"]
                self._answers[number].append(self.now_ms())
                self._newest_ms[number] = max(self._newest_ms[number], invoked_ms)

    def times(self) -> dict[int, list[int]]:
        """Per partition, in order."""
        return {number: list(times) for number, times in self._answers.items()}

    def resumed(self, partitions: set[int], since_ms: int) -> bool:
        """Whether each of them was acknowledged something that was sent after that moment: not what was under way."""
        return all(self._newest_ms[number] > since_ms for number in partitions)


def longest_gap_ms(times: Sequence[int], since_ms: int, until_ms: int) -> int:
    """The longest time between two acknowledgements that lies, in part, between these moments."""
    before = [at for at in times if at <= since_ms][-1:]
    moments = [*(before or [since_ms]), *(at for at in times if since_ms < at <= until_ms), until_ms]
    return max(b - a for a, b in pairwise(moments))


def planner(cluster: ChaosCluster) -> str:
    """The agent that plans."""

    async def read() -> str:
        async with open_store(cluster.store.direct_url, clock=RealClock(), random=SystemRandom()) as store:
            entry = await store.get(holder_key(PLANNER))
            return "" if entry is None else read_holder(entry).holder

    return until(lambda: asyncio.run(read()), what="somebody plans")


def is_clean(cluster: ChaosCluster) -> bool:
    """Whether everything is published and nothing reserved."""

    async def read() -> bool:
        async with open_store(cluster.store.direct_url, clock=RealClock(), random=SystemRandom()) as store:
            topic = await store.get(topic_key(TOPIC))
            assert topic is not None
            found = [await store.get(state_key(read_topic(topic).id, number)) for number in range(PARTITIONS)]
            return all(
                each is not None and msgspec.json.decode(each.value, type=PartitionRecord).clean for each in found
            )

    return asyncio.run(read())


def measure(
    store: str, level: str, ttl_ms: int, events: Sequence[str], directory: Path, *, told: Callable[[str], None]
) -> Iterator[Failover]:
    """Every event, one after the other, on one cluster. `UnsupportedLevelError`: the server has no such level."""
    idle = ("--set", "agent.idle_ms=1000") if level == CLEAN else ()
    directory.mkdir(parents=True)
    with (
        ChaosCluster.running(
            directory / "cluster", store=store, objects="folder", ttl_ms=ttl_ms, brisk=False, options=idle
        ) as cluster,
        Acknowledgements.open(directory / "history.jsonl") as acknowledged,
    ):
        create(cluster.bootstrap, TOPIC, PARTITIONS, MEASURED_LEVELS[level])
        until(lambda: len(set(leaders(cluster.bootstrap, TOPIC).values()) - {-1}) == 3, what="each agent leads some")
        producer = ChaosProducer(
            "producer", "idempotent", cluster.bootstrap, TOPIC, partitions=PARTITIONS, per_s=PER_S, record=acknowledged
        )
        producer.start()
        try:
            for event in events:
                told(f"{event}: waiting until all is quiet")
                _until_quiet(cluster, acknowledged)
                time.sleep(ttl_ms / 1000 + QUIET_S)  # a planner ends nothing early in its first TTL
                if level == CLEAN:
                    producer.pause()
                    until(lambda: is_clean(cluster), within_s=120, pause_s=0.2, what="all is published")
                yield _measured(
                    Failover(store=store, level=level, ttl_ms=ttl_ms, event=event),
                    cluster,
                    acknowledged,
                    producer,
                    told,
                )
        finally:
            producer.end()
            producer.flushed(30)


def _measured(
    made: Failover,
    cluster: ChaosCluster,
    acknowledged: Acknowledgements,
    producer: ChaosProducer,
    told: Callable[[str], None],
) -> Failover:
    planning, ends = planner(cluster), _early_ends(cluster)
    victim = next(each for each in cluster.agents if (each.name == planning) == (made.event == "kill-planner"))
    led = {number for number, node in leaders(cluster.bootstrap, TOPIC).items() if node == victim.node}
    told(f"{made.event} {victim.name}, which leads {len(led)}")
    began_ms = acknowledged.now_ms()
    with _happening(made.event, cluster, victim):
        producer.resume()
        came_back = not _replaced(cluster, victim, acknowledged, led, within_s=made.ttl_ms / 1000 + AWAY_S)
        early, away_ms = _early_ends(cluster) > ends, acknowledged.now_ms()
    _until_quiet(cluster, acknowledged)
    times, ended_ms = acknowledged.times(), acknowledged.now_ms()
    if made.level == CLEAN:  # nothing was sent for a while before
        times = {number: [began_ms, *(at for at in each if at > began_ms)] for number, each in times.items()}
    until_ms = ended_ms if came_back else away_ms
    gaps = {number: longest_gap_ms(times[number], began_ms, until_ms) for number in times}
    return replace(
        made,
        led_ms=max((gaps[number] for number in led), default=0),
        others_ms=max((gap for number, gap in gaps.items() if number not in led), default=0),
        back_ms=max(longest_gap_ms(times[number], until_ms, ended_ms) for number in times),
        came_back=came_back,
        early=early,
    )


@contextmanager
def _happening(event: str, cluster: ChaosCluster, victim: ChaosAgent) -> Iterator[None]:
    """The agent is away for the body."""
    match event:
        case "kill" | "kill-planner":
            victim.kill()
            yield
            victim.start()
        case "stop":
            victim.stop()
            yield
            victim.start()
        case "freeze":
            victim.process.freeze()
            try:
                yield
            finally:
                victim.process.thaw()
        case "cut":  # from peers and the store, not from its clients
            with cut_store(cluster, victim), cut_peers(cluster, victim):
                yield


def _replaced(
    cluster: ChaosCluster,
    victim: ChaosAgent,
    acknowledged: Acknowledgements,
    led: set[int],
    *,
    within_s: float,
) -> bool:
    """Whether others lead what it led, and acknowledge it: one that is cut off may go on for a while by itself."""
    client = admin(",".join(each.bootstrap for each in cluster.agents if each is not victim))
    away = {-1, victim.node}

    def replaced() -> bool:
        try:
            known = client.list_topics(TOPIC, timeout=2).topics[TOPIC].partitions
        except KafkaException:
            return False
        return all(known[number].leader not in away for number in led)

    clock = RealClock()
    deadline_ms = clock.boot_ms() + within_s * 1000
    try:
        until(replaced, within_s=within_s, pause_s=0.1)
        since_ms, left_s = acknowledged.now_ms(), max(1.0, (deadline_ms - clock.boot_ms()) / 1000)
        until(lambda: acknowledged.resumed(led, since_ms), within_s=left_s, pause_s=0.2)
    except AssertionError:
        return False
    return True


def _early_ends(cluster: ChaosCluster) -> int:
    """How many sessions agents that run have ended before their TTL."""
    return sum(each.process.log.count(ENDED_EARLY) for each in cluster.agents)


def _until_quiet(cluster: ChaosCluster, acknowledged: Acknowledgements) -> None:
    cluster.heal()
    everything = set(range(PARTITIONS))
    since_ms = acknowledged.now_ms()
    until(lambda: acknowledged.resumed(everything, since_ms), within_s=120, pause_s=0.2)


def shown(found: Sequence[Failover]) -> Table:
    """A line for each store, level and TTL."""
    made = Table(title="longest time without an acknowledgement, s: of partitions the agent led (of the others)")
    for name in ("store", "level", "TTL", *EVENTS):
        made.add_column(name, justify="right")
    cells = {(each.store, each.level, each.ttl_ms, each.event): each for each in found}
    for store, level, ttl_ms in dict.fromkeys((each.store, each.level, each.ttl_ms) for each in found):
        row = [cells.get((store, level, ttl_ms, event)) for event in EVENTS]
        made.add_row(store, level, f"{ttl_ms / 1000:g} s", *("" if each is None else _cell(each) for each in row))
    return made


def _cell(each: Failover) -> str:
    how = " came back" if each.came_back else " early" if each.early else ""
    return f"{each.led_ms / 1000:.2f}{how} ({each.others_ms / 1000:.2f})"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.failover", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", default="sqlite", help=f"of {', '.join(STORES)}, separated by commas (sqlite)")
    known = ", ".join(MEASURED_LEVELS)
    parser.add_argument("--level", default=",".join(MEASURED_LEVELS), help=f"of {known} (all)")
    parser.add_argument("--ttl", default="2000,30000", metavar="MS", help="lease TTLs (2000,30000)")
    parser.add_argument("--event", default=",".join(EVENTS), help=f"of {', '.join(EVENTS)} (all)")
    parser.add_argument("--folder", type=Path, help="keeps histories and the agents' logs here")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # not before what was started has ended
    events = _chosen(parser, "event", args.event, EVENTS)
    stores, levels = _chosen(parser, "store", args.store, STORES), _chosen(parser, "level", args.level, MEASURED_LEVELS)
    try:
        ttls_ms = [int(each) for each in args.ttl.split(",")]
    except ValueError:
        parser.error(f"invalid --ttl {args.ttl!r}: must be milliseconds, separated by commas")
    console, found, use = Console(stderr=True, log_path=False), list[Failover](), MachineUse()
    with tempfile.TemporaryDirectory(prefix="holdfast-failover-") as made:
        for store, level, ttl_ms in product(stores, levels, ttls_ms):
            title = f"{store}, {level}, TTL {ttl_ms} ms"
            # A file has no connection that could be cut.
            possible = [event for event in events if event != "cut" or store != "sqlite"]
            with console.status(f"{title}: starting") as status:

                def told(text: str, title: str = title) -> None:
                    status.update(f"{title}: {text}")

                folder = (args.folder or Path(made)) / f"{store}-{level}-{ttl_ms}"
                try:
                    for each in measure(store, level, ttl_ms, possible, folder, told=told):
                        found.append(each)
                        console.log(f"{title}: {each.event} {_cell(each)}")
                except UnsupportedLevelError as refused:
                    console.log(f"{title}: not measured: {refused}")
    if args.json:
        print(json.dumps([asdict(each) for each in found], indent=2))
    else:
        Console(width=WIDTH).print(shown(found))
        print(use)
    return 0


def _chosen(parser: argparse.ArgumentParser, name: str, told: str, known: Collection[str]) -> list[str]:
    chosen = told.split(",")
    if unknown := [each for each in chosen if each not in known]:
        parser.error(f"invalid --{name} {unknown[0]!r}: must be of {', '.join(known)}")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
