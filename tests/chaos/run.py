"""A chaos run: a cluster, clients at work, faults; then everything is healed, read to the end, and judged."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.chaos.checker import Verdict, check
from tests.chaos.cluster import ChaosCluster
from tests.chaos.fault_runner import FaultRunner
from tests.chaos.faults import TOPIC, applicable
from tests.chaos.history import HISTORY_FILE, Recorder, load
from tests.chaos.levels import LEVELS, create
from tests.chaos.observer import Observer
from tests.chaos.producers import ChaosProducer
from tests.chaos.readers import ChaosMember, ChaosReader
from tests.chaos.schedule import Pace, Planned, schedule
from tests.support.waiting import until

BURST_PER_S: Final = 4_000
NEVER: Final = 1 << 62  # the end of a partition that nobody leads
TOPIC_CONFIG: Final = {"retention.ms": "-1", "segment.ms": "500"}  # so that something is always being published


WITHOUT_LEARNERS: Final = ("--set", "replica.catch_up_bytes_per_s=0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run does. `faults`: of these kinds only; `planted`: a bug in every agent.

    `learners`: whoever becomes a replica gets the log first; without, it counts at once.
    """

    seconds: float = 60
    seed: int = 1
    store: str = "sqlite"
    level: str = "local"
    objects: str = "moto"
    ttl_ms: int = 2_000
    partitions: int = 3
    records_per_s: int = 100  # of each producer
    idempotent: int = 2
    plain: int = 1
    members: int = 2
    faults: tuple[str, ...] = ()
    gap_s: tuple[float, float] = (1.0, 4.0)
    lasting_s: tuple[float, float] = (0.5, 4.0)
    planted: str = ""
    learners: bool = True
    heal_s: float = 120  # how long everybody may take to come to an end once all is healed

    def schedule(self) -> list[Planned]:
        """The faults, from the seed."""
        possible = applicable(LEVELS[self.level], store=self.store, objects=self.objects, learners=self.learners)
        kinds = [kind for kind in possible if not self.faults or kind in self.faults]
        pace = Pace(seconds=self.seconds, ttl_s=self.ttl_ms / 1000, gap_s=self.gap_s, lasting_s=self.lasting_s)
        return schedule(self.seed, kinds, pace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of it. Everything from `lost` on must be nothing."""

    plan: Plan
    faults: dict[str, int] = field(default_factory=dict)
    seconds: float = 0
    acknowledged: int = 0
    unknown: int = 0
    repeated: int = 0
    read: int = 0
    epochs: int = 0
    without_ack_ms: dict[int, int] = field(default_factory=dict)
    lost: int = 0
    duplicates: int = 0
    reorderings: int = 0
    other_violations: int = 0
    violations: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not self.violations and not self.failures and self.acknowledged > 0

    def as_json(self) -> dict[str, Any]:
        """For people and other programs."""
        return {**asdict(self), "clean": self.clean}


def run(directory: Path, plan: Plan, *, told: Callable[[str], None] = lambda _: None) -> Report:
    """Run the plan; the history stays in the directory, which must be new: a cluster's objects may be gone with its last run."""
    directory.mkdir(parents=True)
    failures: list[str] = []
    with (
        Recorder.open(directory / HISTORY_FILE) as record,
        ChaosCluster.running(
            directory / "cluster",
            store=plan.store,
            objects=plan.objects,
            ttl_ms=plan.ttl_ms,
            options=() if plan.learners else WITHOUT_LEARNERS,
            planted=plan.planted,
        ) as cluster,
    ):
        create(cluster.bootstrap, TOPIC, plan.partitions, LEVELS[plan.level], **TOPIC_CONFIG)
        cluster.topics, cluster.copies_needed = (TOPIC,), LEVELS[plan.level].copies_needed
        clients = Clients(cluster, plan, record)
        cluster.burst = clients.burst
        with clients.working():
            nemesis = FaultRunner(cluster, plan.schedule(), record=record, told=told)
            nemesis.run()
            told("healing")
            failures += nemesis.failures
            try:
                cluster.heal()
            except AssertionError as ended:  # an agent that does not start any more; the others may know enough
                failures.append(f"healing: {str(ended)[-500:]}")
            failures += clients.finish(told)
        seconds = record.now_ms() / 1000
    report = judged(plan, check(load(directory / HISTORY_FILE)), seconds, failures)
    (directory / "report.json").write_text(json.dumps(report.as_json(), indent=2))
    return report


class Clients:
    """Everybody who uses the cluster."""

    def __init__(self, cluster: ChaosCluster, plan: Plan, record: Recorder) -> None:
        self._cluster, self._plan, self._record = cluster, plan, record
        self._bursts = count()
        bootstrap = cluster.bootstrap
        kinds = [*["idempotent"] * plan.idempotent, *["plain"] * plan.plain]
        self.producers = [
            ChaosProducer(
                f"{kind}-{number}",
                kind,
                bootstrap,
                TOPIC,
                partitions=plan.partitions,
                per_s=plan.records_per_s,
                record=record,
            )
            for number, kind in enumerate(kinds)
        ]
        self.readers = [
            self._reader(name, zone) for name, zone in (("reader", ""), ("reader-a", "a"), ("reader-b", "b"))
        ]
        self.members = [
            ChaosMember(f"member-{number}", "chaos-group", bootstrap, TOPIC, record=record)
            for number in range(plan.members)
        ]

    def _reader(self, name: str, zone: str = "") -> ChaosReader:
        return ChaosReader(
            name, self._cluster.bootstrap, TOPIC, partitions=self._plan.partitions, zone=zone, record=self._record
        )

    @contextmanager
    def burst(self) -> Iterator[None]:
        """A plain producer that sends a lot during the body, and asks for no outcome after it."""
        producer = ChaosProducer(
            f"burst-{next(self._bursts)}",
            "plain",
            self._cluster.bootstrap,
            TOPIC,
            partitions=self._plan.partitions,
            per_s=BURST_PER_S,
            record=self._record,
        )
        producer.start()
        try:
            yield
        finally:
            producer.end()
            producer.flushed(0)

    def working(self) -> ExitStack:
        """At work for the body."""
        stack = ExitStack()
        observer = Observer([agent.clients.port for agent in self._cluster.agents], TOPIC, record=self._record)
        ending = threading.Event()

        async def observe() -> None:
            observing = asyncio.ensure_future(observer.run())
            await asyncio.to_thread(ending.wait)
            observing.cancel()
            await asyncio.gather(observing, return_exceptions=True)

        thread = threading.Thread(target=asyncio.run, args=(observe(),), daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(ending.set)
        clients: list[ChaosReader | ChaosMember | ChaosProducer] = [*self.readers, *self.members, *self.producers]
        for client in clients:
            client.start()
            stack.callback(client.end)
        return stack

    def finish(self, told: Callable[[str], None]) -> list[str]:
        """Producers end, and everybody reads what there is; what did not come to an end."""
        failures = []
        for producer in self.producers:
            producer.end()
        told("waiting for outcomes")
        for producer in self.producers:
            if not producer.flushed(self._plan.heal_s):
                failures.append(f"{producer.name}: {producer.outstanding} records without an outcome. {producer.fatal}")
        ends = self._ends(failures)
        told(f"reading up to {sum(end for end in ends.values() if end < NEVER)}")
        self._until_read(self.readers, ends, failures)
        self._until_group_read(ends, failures)
        told("killing all agents: what they had in memory alone is gone")
        try:
            self._cluster.restart_all()
        except AssertionError as ended:
            failures.append(f"the last start: {str(ended)[-500:]}")
        last = self._reader("last")  # from the beginning, of what disks and object storage have
        last.start()
        self.readers.append(last)
        self._until_read([last], ends, failures)
        last.end()
        return failures

    def _until_read(self, readers: Sequence[ChaosReader], ends: dict[int, int], failures: list[str]) -> None:
        for reader in readers:
            reader.finish(ends)
        try:
            until(lambda: not any(reader.unfinished for reader in readers), within_s=self._plan.heal_s)
        except AssertionError:
            failures += [f"{each.name}: unfinished {sorted(each.unfinished)}" for each in readers if each.unfinished]

    def _ends(self, failures: list[str]) -> dict[int, int]:
        client = Consumer({"bootstrap.servers": self._cluster.bootstrap, "group.id": "ends", "log_level": 0})
        found: dict[int, int] = {}

        def known() -> bool:
            for number in set(range(self._plan.partitions)) - found.keys():
                try:
                    found[number] = client.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=5)[1]
                except KafkaException:
                    return False
            return True

        try:
            until(known, what="every partition has a leader that names its end", within_s=self._plan.heal_s)
        except AssertionError as missing:
            failures.append(str(missing))
        finally:
            client.close()
        return {number: found.get(number, NEVER) for number in range(self._plan.partitions)}

    def _until_group_read(self, ends: dict[int, int], failures: list[str]) -> None:
        if not self.members:
            return
        try:
            until(
                lambda: all(self._group_at(number) >= end for number, end in ends.items()),
                within_s=self._plan.heal_s,
                pause_s=0.1,
            )
        except AssertionError:
            failures.append("the group did not reach the end")

    def _group_at(self, partition: int) -> int:
        return max(member.positions.get(partition, 0) for member in self.members)


def judged(plan: Plan, verdict: Verdict, seconds: float, failures: Sequence[str]) -> Report:
    """The report of a history."""
    lost = verdict.count("lost", "unfinished")
    duplicates, reorderings = verdict.count("duplicate"), verdict.count("reordered", "offset went back")
    return Report(
        plan=plan,
        faults=verdict.faults,
        seconds=round(seconds, 1),
        acknowledged=verdict.acknowledged,
        unknown=verdict.unknown,
        repeated=verdict.repeated,
        read=verdict.read,
        epochs=verdict.epochs,
        without_ack_ms=verdict.without_ack_ms,
        lost=lost,
        duplicates=duplicates,
        reorderings=reorderings,
        other_violations=len(verdict.violations) - lost - duplicates - reorderings,
        violations=[str(each) for each in verdict.violations[:50]],
        failures=list(failures),
    )
