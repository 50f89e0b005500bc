"""What clusters take and give: targets by turns, round after round, so that a noisy machine disturbs all alike."""

import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.chaos.levels import UnsupportedLevelError

from bench.cluster.servers import ZONES, Cluster, apache_brokers, holdfast_agents, topic_of
from bench.figures import Figure
from holdfast.vocabulary.errors import UnavailableError

GIB: Final = 1 << 30
PARTITIONS: Final = 12
RECORD_BYTES: Final = 1024
Say = Callable[[str], None]


@dataclass
class Turns:
    """Rates and costs of each target, round by round."""

    mb_s: dict[str, list[float]] = field(default_factory=dict)
    cpu_s_per_gib: dict[str, list[float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def ratio(self, name: str, to: str) -> float | None:
        """The median of each round's ratio."""
        pairs = zip(self.mb_s.get(name, ()), self.mb_s.get(to, ()), strict=False)
        ratios = [mine / other for mine, other in pairs if other]
        return statistics.median(ratios) if ratios else None

    def median(self, name: str) -> float:
        return statistics.median(self.mb_s[name])


def produce_by_turns(targets: dict[str, Cluster], *, seconds: float, rounds: int, say: Say) -> Turns:
    """Each target produces in each round; the first round warms and does not count."""
    found = Turns()
    for round_ in range(rounds + 1):
        for name, target in list(targets.items()):
            say(f"{name}, round {round_}")
            try:
                topic = target.create(PARTITIONS)
            except UnsupportedLevelError as refused:
                found.missing[name] = str(refused)
                del targets[name]
                continue
            cpu_s = target.cpu_s()
            done = target.produce(topic, PARTITIONS, RECORD_BYTES, seconds)
            cost = (target.cpu_s() - cpu_s) / (done["total_bytes"] / GIB)
            target.drop(topic)
            if round_:
                found.mb_s.setdefault(name, []).append(done["bytes"] / done["seconds"] / 1e6)
                found.cpu_s_per_gib.setdefault(name, []).append(cost)
    return found


def agents(directory: Path, *, seconds: float, rounds: int, say: Say) -> Iterator[Figure]:
    """1, 2 and 3 agents, level local, against one."""
    with ExitStack() as running:
        targets = {}
        for count in (1, 2, 3):
            say(f"{count} agents start")
            cluster, _ = running.enter_context(holdfast_agents(directory / str(count), count))
            targets["1 agent" if count == 1 else f"{count} agents"] = cluster
        found = produce_by_turns(targets, seconds=seconds, rounds=rounds, say=say)
    yield from _figures("agents, local", found, reference="1 agent")


def levels(directory: Path, *, seconds: float, rounds: int, say: Say) -> Iterator[Figure]:
    """Three agents, quorum and local, against three brokers of Apache Kafka with three copies."""
    with ExitStack() as running:
        say("three agents start")
        cluster, _ = running.enter_context(holdfast_agents(directory / "holdfast", 3))
        targets = {level: Cluster(cluster.bootstrap, cluster.pids, topic_of(level)) for level in ("local", "quorum")}
        missing = ""
        try:
            say("three brokers of Apache Kafka start")
            targets["Apache Kafka, RF 3"] = running.enter_context(apache_brokers(directory / "kafka"))
        except UnavailableError as error:
            missing = str(error)
        found = produce_by_turns(targets, seconds=seconds, rounds=rounds, say=say)
    if missing:
        found.missing["Apache Kafka, RF 3"] = missing
    yield from _figures("three of each, acks=all", found, reference="Apache Kafka, RF 3", aims={"quorum": 1.0})


def _figures(part: str, found: Turns, *, reference: str, aims: dict[str, float] | None = None) -> Iterator[Figure]:
    for name in found.mb_s:
        ratio = None if name == reference else found.ratio(name, reference)
        aim = (aims or {}).get(name)
        yield Figure(
            part,
            f"produce, {PARTITIONS} partitions, 1 KiB: {name}",
            "MB/s",
            found.median(name),
            found.median(reference) if ratio is not None else None,
            ratio,
            "" if aim is None else f"ratio ≥ {aim}",
            None if aim is None or ratio is None else ratio >= aim,
            f"{statistics.median(found.cpu_s_per_gib[name]):.1f} s of servers' processor time per GiB",
        )
    for name, reason in found.missing.items():
        yield Figure(part, f"not measured: {name}", "", 0, note=reason)


def reads(directory: Path, *, seconds: float, rounds: int, say: Say) -> Iterator[Figure]:
    """What is published, read from replicas in the consumer's zone, against reading it from leaders."""
    part = "reads of published records, quorum"
    with holdfast_agents(directory, 3, level="quorum") as (cluster, _):
        try:
            topic = cluster.create(PARTITIONS)
        except UnsupportedLevelError as refused:
            yield Figure(part, "not measured", "", 0, note=str(refused))
            return
        say("producing")
        records = int(cluster.produce(topic, PARTITIONS, RECORD_BYTES, seconds)["total_records"])
        leader, replica = list[float](), list[float]()
        for round_ in range(rounds + 1):
            say(f"round {round_}")
            for rack, into in (("", leader), (ZONES[0], replica)):
                rate = cluster.consume_from(rack, topic, PARTITIONS, records, seconds)
                if round_:
                    into.append(rate)
        ratio = statistics.median(mine / other for mine, other in zip(replica, leader, strict=True))
        yield Figure(
            part, "consumer of one zone against one of none", "MB/s", statistics.median(replica),
            statistics.median(leader), ratio,
        )  # fmt: skip
