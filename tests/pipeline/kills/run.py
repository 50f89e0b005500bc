"""The suite: a pipeline at work in a cluster of real processes, one fault after the other, and a verdict after each.

What it proves is in `Report`: every acknowledged record is one row or one dead letter, once, with the values it was written with.
"""

import contextlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.pipeline.kills.cluster import TOPIC, KillCluster, await_ready, running_cluster
from tests.pipeline.kills.faults import Faults
from tests.pipeline.kills.plan import FAST, Fault, Plan
from tests.pipeline.kills.recreated import await_blocked, recreate
from tests.pipeline.kills.scenarios import play
from tests.pipeline.kills.verdict import Verdict
from tests.pipeline.kills.watched import Watched, watch
from tests.pipeline.kills.writer import Writer

from holdfast.vocabulary.clock import RealClock

DRAIN_TIMEOUT_S = 240.0
SCENARIOS = ("table", "drift", "topic")
CLOCK = RealClock()


@dataclass(slots=True, kw_only=True)
class Report:
    """The result. `duplicates`, `losses` and `wrong` must be 0."""

    seconds: float = 0.0
    seed: int = 0
    faults: int = 0
    faults_by_kind: dict[str, int] = field(default_factory=dict)
    zombies_woken: int = 0
    fence_refusals: int = 0
    """Inserts that ClickHouse refused because of a fence, since it was last started."""
    pipelines: dict[str, dict[str, int]] = field(default_factory=dict)
    """The verdict of each of the main pipelines. All of them read the same topic; those of one engine share a table."""
    rows_in: int = 0
    rows_out: int = 0
    dlq_rows: int = 0
    duplicates: int = 0
    losses: int = 0
    wrong: int = 0
    slowest_recovery_s: float = 0.0
    slowest_fault: str = ""
    unclean: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        exact = self.rows_out + self.dlq_rows == self.rows_in > 0
        return exact and not (self.duplicates or self.losses or self.wrong or self.unclean)

    def add(self, verdict: Verdict) -> None:
        """Add the verdict of a table."""
        self.rows_in += verdict.records
        self.rows_out += verdict.rows
        self.dlq_rows += verdict.dead_letters
        self.duplicates += verdict.duplicates
        self.losses += verdict.lost
        self.wrong += verdict.wrong


class Suite:
    """A running cluster with its main pipelines, which read one topic."""

    def __init__(self, cluster: KillCluster, pipelines: list[Watched], writer: Writer) -> None:
        self.cluster, self.pipelines, self.writer = cluster, pipelines, writer
        self.report = Report(seed=cluster.plan.seed)
        self._faults = Faults(cluster, pipelines, writer, seed=cluster.plan.seed)

    def suffer(self, fault: Fault) -> None:
        """A fault under load; once all records have arrived, count, sum and distinct offsets must be exact."""
        self.report.faults += 1
        kind = f"{fault.target} {fault.action}"
        self.report.faults_by_kind[kind] = self.report.faults_by_kind.get(kind, 0) + 1
        began_ms = CLOCK.boot_ms()
        if fault.target in SCENARIOS:
            self._add(str(fault), play(self.cluster, fault))
        else:
            self.writer.resume()
            self._faults.inject(fault)
            began_ms = CLOCK.boot_ms()
            self._settle(fault)
        took_s = (CLOCK.boot_ms() - began_ms) / 1_000
        if took_s > self.report.slowest_recovery_s:
            self.report.slowest_recovery_s, self.report.slowest_fault = round(took_s, 1), str(fault)
        print(f"{fault}: exact again after {took_s:.1f} s, {len(self.writer.acknowledged)} records", file=sys.stderr)

    def _settle(self, fault: Fault) -> None:
        self.writer.resume()
        self.writer.await_more(self.cluster.plan.records_per_s // 2, timeout_s=DRAIN_TIMEOUT_S)
        self.writer.pause()
        for each in self.pipelines:
            try:
                each.await_exact(self.writer.acknowledged)
            except AssertionError as error:
                raise AssertionError(f"after {fault}: {error}") from None

    def recreate_topic(self) -> None:
        """The main topic, at last: every pipeline blocks, and has what it had."""
        writer, plan = self.writer, self.cluster.plan
        recreate(self.cluster, writer.topic, plan.partitions, len(writer.acknowledged))
        await_blocked(self.pipelines, writer.topic)

    def _add(self, name: str, verdict: Verdict) -> None:
        self.report.add(verdict)
        if not verdict.clean:
            self.report.unclean.append(f"{name}: {verdict}")

    def finish(self) -> Report:
        """Row by row, at the end."""
        self.writer.pause()
        for each in self.pipelines:
            verdict = each.judged(self.writer.acknowledged)
            self._add(each.name, verdict)
            self.report.pipelines[each.name] = asdict(verdict)
        self.report.zombies_woken = self._faults.zombies
        self.report.fence_refusals = self.cluster.fence_refusals()
        return self.report


@contextmanager
def running_suite(plan: Plan, folder: Path) -> Iterator[Suite]:
    """A cluster, its main pipelines at work, and a writer that does not write yet."""
    with running_cluster(plan, folder) as cluster:
        topic = cluster.broker.create_topic("orders", plan.partitions, TOPIC)
        pipelines = [watch(cluster, topic, _table(topic, engine), engine=engine) for engine in plan.engines]
        for each in pipelines:
            if each.engine == FAST and plan.replicas > 1:
                cluster.http.post(f"{each.path}/scale", {"replicas": plan.replicas})
        writer = Writer(
            cluster.broker.bootstrap,
            topic,
            per_s=plan.records_per_s,
            poisoned_share=plan.poisoned_share,
            seed=plan.seed,
        )
        with writer.writing():
            for each in pipelines:
                await_ready(cluster, each.path)
            yield Suite(cluster, pipelines, writer)


def _table(topic: str, engine: str) -> str:
    return topic.replace("-", "_") + ("" if engine == FAST else "_stream")


def run(plan: Plan, folder: Path, faults: Iterable[Fault]) -> Report:
    """These faults, one after the other, until they or the time are over."""
    with running_suite(plan, folder) as suite:
        began_ms = CLOCK.boot_ms()
        with contextlib.suppress(KeyboardInterrupt):
            for fault in faults:
                try:
                    suite.suffer(fault)
                except (AssertionError, TimeoutError) as error:  # what was found so far is reported all the same
                    suite.report.unclean.append(f"{fault}: {error}")
                    break
                if plan.seconds and CLOCK.boot_ms() - began_ms >= plan.seconds * 1_000:
                    break
        return _finished(suite, began_ms)


def run_short(plan: Plan, folder: Path, fault: Fault) -> Report:
    """This fault; then the topic is recreated, and nothing of the verdict may change."""
    with running_suite(plan, folder) as suite:
        began_ms = CLOCK.boot_ms()
        suite.suffer(fault)
        suite.recreate_topic()
        return _finished(suite, began_ms)


def _finished(suite: Suite, began_ms: int) -> Report:
    report = suite.finish()
    report.seconds = round((CLOCK.boot_ms() - began_ms) / 1_000, 1)
    return report
