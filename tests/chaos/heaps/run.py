"""A chaos run on a heap: a cluster, producers, consumers and operators at work, faults; then all is healed, emptied and judged."""

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random  # noqa: TID251 (seeded, for each client)
from typing import Any, Final

from tests.chaos.cluster import ChaosCluster
from tests.chaos.fault_runner import FaultRunner
from tests.chaos.faults import TOPIC
from tests.chaos.heaps.calls import Backlog, Calls
from tests.chaos.heaps.checker import DOUBLE_LEASES, DUPLICATES, LOST, RANKS, Evidence, Verdict, check
from tests.chaos.heaps.consumers import LateConsumer, PoppingConsumer, StreamingConsumer
from tests.chaos.heaps.ledger import read_ledger
from tests.chaos.heaps.logs import LOG_FILE, load_logs, read_logs, replayed_counters
from tests.chaos.heaps.operations import operations
from tests.chaos.heaps.operators import HeapGrower, HeapOperator
from tests.chaos.heaps.producers import HeapProducer
from tests.chaos.history import HISTORY_FILE, Recorder, load
from tests.chaos.levels import LEVELS
from tests.chaos.run import Plan

from holdfast import heaps
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import HoldfastError

DEAD_LETTERS: Final = f"{TOPIC}.dlq"
OPTIONS: Final = (
    *("--set", "heaps.snapshot_interval_ms=1500", "--set", "heaps.snapshot_records_min=50"),
    *("--set", "heaps.reopen_ms=200", "--set", "heaps.move_retry_ms=200"),
)
# Everything stays in the log, for the checker; failures are tried again soon and often.
CONFIG: Final = {"retention_ms": -1, "max_retries": 30, "backoff_base_ms": 50, "backoff_cap_ms": 1_000}
COUNTERS: Final = ("enqueued", "granted", "acked", "nacked", "expired", "released", "moved", "cancelled")
LEFT: Final = ("ready", "delayed", "inflight", "moving")
BACKLOG_MAX: Final = 300
LAST_HOURS: Final = 2  # what a clock that was an hour ahead has scheduled is due by then
DRAINED_TOGETHER: Final = 200
DRAIN_VISIBILITY_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeapPlan(Plan):
    """What a run does. `bound`: of the heap; `per_s`: messages of each producer; `growths`: partitions that it gets meanwhile."""

    bound: int = 1
    per_s: float = 8
    producers: int = 3
    poppers: int = 2
    streams: int = 1
    late: int = 2
    operators: int = 1
    growths: int = 0

    def counts(self) -> dict[str, int]:
        """How many partitions there are at the end, by topic."""
        return {TOPIC: self.partitions + self.growths, DEAD_LETTERS: self.partitions}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeapReport:
    """What came of it. Everything from `lost` on must be nothing."""

    plan: HeapPlan
    faults: dict[str, int] = field(default_factory=dict)
    seconds: float = 0
    fault_seconds: float = 0
    enqueued: int = 0
    unknown: int = 0
    known_again: int = 0
    delivered: int = 0
    acknowledged: int = 0
    refused: int = 0
    expired: int = 0
    dead_letters: int = 0
    cancelled: int = 0
    pops_ranked: int = 0
    worst_rank: int = 0
    spines: int = 0
    epochs: int = 0
    lost: int = 0
    double_leases: int = 0
    duplicates: int = 0
    rank_violations: int = 0
    other_violations: int = 0
    violations: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not self.violations and not self.failures and self.acknowledged > 0

    def as_json(self) -> dict[str, Any]:
        """For people and other programs."""
        return {**asdict(self), "clean": self.clean}


def run(directory: Path, plan: HeapPlan, *, told: Callable[[str], None] = lambda _: None) -> HeapReport:
    """Run the plan; history and logs stay in the directory, which must be new."""
    directory.mkdir(parents=True)
    failures: list[str] = []
    with (
        Recorder.open(directory / HISTORY_FILE) as record,
        ChaosCluster.running(
            directory / "cluster",
            store=plan.store,
            objects=plan.objects,
            ttl_ms=plan.ttl_ms,
            planted=plan.planted,
            options=OPTIONS,
        ) as cluster,
    ):
        cluster.topics, cluster.copies_needed = (TOPIC, DEAD_LETTERS), LEVELS[plan.level].copies_needed
        clients = HeapClients(cluster.bootstrap, plan, record)
        clients.start()
        began_ms = record.now_ms()
        nemesis = FaultRunner(cluster, plan.schedule(), record=record, told=told)
        nemesis.run()
        fault_seconds = (record.now_ms() - began_ms) / 1000
        told("healing")
        failures += nemesis.failures
        try:
            cluster.heal()
            if any(each.fault == "clock-jump" for each in plan.schedule()):
                _begin_later(cluster)
        except AssertionError as ended:
            failures.append(f"healing: {str(ended)[-500:]}")
        told("emptying the heap")
        failures += clients.finish(plan.heal_s)
        try:
            read_logs(cluster.bootstrap, plan.counts(), directory / LOG_FILE, within_s=plan.heal_s)
        except AssertionError as unread:
            failures.append(str(unread))
        seconds = record.now_ms() / 1000
    report = judged(directory, plan, seconds=seconds, fault_seconds=fault_seconds, failures=failures)
    (directory / "report.json").write_text(json.dumps(report.as_json(), indent=2))
    return report


def _begin_later(cluster: ChaosCluster) -> None:
    """Leases and delays that were granted an hour ahead are over: every agent begins again, with a later clock."""
    for agent in cluster.agents:
        agent.stop()
        agent.faults.clock_offset_ms(LAST_HOURS * 3_600_000)
        agent.start()


class HeapClients:
    """Everybody who uses the heap, on an event loop of its own thread."""

    def __init__(self, bootstrap: str, plan: HeapPlan, record: Recorder) -> None:
        self._bootstrap, self._plan, self._record = bootstrap, plan, record
        self._backlog, self._clock = Backlog(), RealClock()
        self._topic_ids: dict[str, str] = {}
        self._ready, self._ending, self._drain_s = threading.Event(), threading.Event(), 0.0
        self._failures: list[str] = []
        self._thread = threading.Thread(target=self._run, name="heap-clients", daemon=True)

    def start(self) -> None:
        """Create the heap, and begin to work."""
        self._thread.start()
        self._ready.wait()

    def finish(self, drain_s: float) -> list[str]:
        """Nobody enqueues any more; everything that is left is handed out. What went wrong."""
        self._drain_s = drain_s
        self._ending.set()
        self._thread.join()
        return self._failures

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as failure:
            self._failures.append(f"clients: {failure!r}")
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._tick()
        async with heaps.connect(self._bootstrap, name="run", timeout=20) as client:
            await self._create(client)
            self._ready.set()
            results = await asyncio.gather(
                *(each.run(self._ending.is_set) for each in self._everybody()), return_exceptions=True
            )
            self._failures += [f"a client ended: {each!r}" for each in results if each is not None]
            await self._drain(client)
        self._tick()

    def _tick(self) -> None:
        self._record("run", "ok", "clock", wall_ms=self._clock.now_ms())

    async def _create(self, client: heaps.HeapClient) -> None:
        level = LEVELS[self._plan.level]
        log: dict[str, object] = {"durability": level.name, "roll_ms": 500}
        if level.replication_factor > 0:
            log |= {"replication_factor": level.replication_factor, "min_insync_replicas": level.copies_needed}
        config = {**CONFIG, "top_k_bound": self._plan.bound}
        made = await client.create(TOPIC, partitions=self._plan.partitions, config=config, log=log)
        letters = await client.describe(DEAD_LETTERS)
        self._topic_ids = {TOPIC: made.topic_id, DEAD_LETTERS: letters.topic_id}

    def _calls(self, name: str) -> Calls:
        return Calls(name, self._record, self._topic_ids, self._backlog)

    def _everybody(
        self,
    ) -> "list[HeapProducer | PoppingConsumer | StreamingConsumer | LateConsumer | HeapOperator | HeapGrower]":
        plan, bootstrap = self._plan, self._bootstrap

        def named(kind: str, count: int) -> list[tuple[Calls, str, str, Random]]:
            names = [f"{kind}-{number}" for number in range(count)]
            return [(self._calls(name), bootstrap, TOPIC, Random(f"{plan.seed}/{name}")) for name in names]

        producers = [
            HeapProducer(*each, per_s=plan.per_s, backlog_max=BACKLOG_MAX, sure=number > 0)
            for number, each in enumerate(named("producer", plan.producers))
        ]
        return [
            *producers,
            *(PoppingConsumer(*each) for each in named("popper", plan.poppers)),
            *(StreamingConsumer(*each) for each in named("stream", plan.streams)),
            *(LateConsumer(*each) for each in named("late", plan.late)),
            *(HeapOperator(*each) for each in named("operator", plan.operators)),
            HeapGrower(bootstrap, TOPIC, range(plan.partitions + 1, plan.counts()[TOPIC] + 1), plan.seconds),
        ]

    async def _drain(self, client: heaps.HeapClient) -> None:
        calls = {topic: self._calls(f"drain-{topic}") for topic in (TOPIC, DEAD_LETTERS)}
        deadline_ms = self._clock.boot_ms() + self._drain_s * 1000
        left: object = "nobody counts"
        while self._clock.boot_ms() < deadline_ms:
            for topic, each in calls.items():
                await self._take(client, topic, each)
            try:
                counted = {topic: await client.stats(topic) for topic in calls}
            except HoldfastError as error:
                left = repr(error)
                continue
            left = {topic: [[getattr(each, name) for name in LEFT] for each in counted[topic]] for topic in calls}
            if not any(getattr(each, name) for found in counted.values() for each in found for name in LEFT):
                for topic, found in counted.items():
                    for part in found:
                        counters = {name: getattr(part, name) for name in COUNTERS}
                        told = {"topic": topic, "partition": part.partition, "counters": counters}
                        self._record("run", "ok", "stats", **told)
                self._record("run", "ok", "drained")
                return
        self._failures.append(f"the heap is not empty after {self._drain_s} s: {LEFT} {left}")

    async def _take(self, client: heaps.HeapClient, topic: str, calls: Calls) -> None:
        popped = client.pop(topic, max_messages=DRAINED_TOGETHER, visibility=DRAIN_VISIBILITY_S, wait=0.5)
        messages = await calls.pop(popped)
        await asyncio.gather(*(calls.settle("ack", each, each.ack(), exact=False) for each in messages))


def judged(
    directory: Path, plan: HeapPlan, *, seconds: float = 0, fault_seconds: float = 0, failures: Sequence[str] = ()
) -> HeapReport:
    """The report of what a run has left in its directory."""
    logs = load_logs(directory / LOG_FILE)
    for topic, count in plan.counts().items():
        for number in range(count):
            logs.setdefault((topic, number), [])
    evidence = Evidence(
        topic=TOPIC,
        k=plan.bound,
        ops=operations(load(directory / HISTORY_FILE)),
        ledgers={which: read_ledger(*which, records) for which, records in logs.items()},
        replayed={which: replayed_counters(records) for which, records in logs.items()},
    )
    return _report(plan, check(evidence), seconds, fault_seconds, failures)


def _report(
    plan: HeapPlan, verdict: Verdict, seconds: float, fault_seconds: float, failures: Sequence[str]
) -> HeapReport:
    lost, double, duplicates, ranks = (verdict.count(*rules) for rules in (LOST, DOUBLE_LEASES, DUPLICATES, RANKS))
    figures = {name: value for name, value in asdict(verdict).items() if name != "violations"}
    return HeapReport(
        plan=plan,
        seconds=round(seconds, 1),
        fault_seconds=round(fault_seconds, 1),
        lost=lost,
        double_leases=double,
        duplicates=duplicates,
        rank_violations=ranks,
        other_violations=len(verdict.violations) - lost - double - duplicates - ranks,
        violations=[str(each) for each in verdict.violations[:50]],
        failures=list(failures),
        **figures,
    )
