"""The suite: a pipeline at work in a cluster of real processes, one fault after the other, and a verdict after each.

What it proves is in `Report`: every acknowledged record is one row or one dead letter, once, with the values it was written with.
"""

import contextlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.pipeline.kills.cluster import TOPIC, KillCluster, await_ready, running_cluster
from tests.pipeline.kills.faults import Faults
from tests.pipeline.kills.plan import Fault, Plan
from tests.pipeline.kills.scenarios import play
from tests.pipeline.kills.verdict import Tables, Verdict, expected
from tests.pipeline.kills.writer import Writer
from tests.support.waiting import until

from holdfast.vocabulary.clock import RealClock

DRAIN_TIMEOUT_S = 240.0
SCENARIOS = ("table", "drift")
CLOCK = RealClock()


@dataclass(slots=True, kw_only=True)
class Report:
    """The result. `duplicates`, `losses` and `wrong` must be 0."""

    seconds: float = 0.0
    seed: int = 0
    faults: int = 0
    faults_by_kind: dict[str, int] = field(default_factory=dict)
    zombies_woken: int = 0
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
    """A running cluster with its main pipeline."""

    def __init__(self, cluster: KillCluster, path: str, writer: Writer, tables: Tables) -> None:
        self.cluster, self.path, self.writer, self.tables = cluster, path, writer, tables
        self.report = Report(seed=cluster.plan.seed)
        self._faults = Faults(cluster, path, writer, seed=cluster.plan.seed)

    def suffer(self, fault: Fault) -> None:
        """A fault under load; once all records have arrived, count, sum and distinct offsets must be exact."""
        self.report.faults += 1
        kind = f"{fault.target} {fault.action}"
        self.report.faults_by_kind[kind] = self.report.faults_by_kind.get(kind, 0) + 1
        began_ms = CLOCK.boot_ms()
        if fault.target in SCENARIOS:
            self._add(fault, play(self.cluster, fault))
        else:
            self.writer.resume()
            self._faults.inject(fault)
            began_ms = CLOCK.boot_ms()
            self.writer.await_more(self.cluster.plan.records_per_s // 2, timeout_s=DRAIN_TIMEOUT_S)
            self.writer.pause()
            self._await_exact(fault)
        took_s = (CLOCK.boot_ms() - began_ms) / 1_000
        if took_s > self.report.slowest_recovery_s:
            self.report.slowest_recovery_s, self.report.slowest_fault = round(took_s, 1), str(fault)
        print(f"{fault}: exact again after {took_s:.1f} s, {len(self.writer.acknowledged)} records", file=sys.stderr)

    def _await_exact(self, fault: Fault) -> None:
        goal = expected(self.writer.acknowledged)

        def exact() -> bool:
            found = self.tables.totals()
            assert all(each.rows == each.distinct for each in found)  # duplicates do not go away: do not wait
            return found == goal

        try:
            until(exact, within_s=DRAIN_TIMEOUT_S)
        except AssertionError:
            details = f"{self.tables.judged(self.writer.acknowledged)}; {self.cluster.status(self.path)}\n{self.cluster.log()}"
            raise AssertionError(f"after {fault}: {details}") from None

    def _add(self, fault: Fault, verdict: Verdict) -> None:
        self.report.add(verdict)
        if not verdict.clean:
            self.report.unclean.append(f"{fault}: {verdict}")

    def finish(self) -> Report:
        """Row by row, at the end."""
        self._add(Fault("main", "pipeline"), self.tables.judged(self.writer.acknowledged))
        self.report.zombies_woken = self._faults.zombies
        return self.report


@contextmanager
def running_suite(plan: Plan, folder: Path) -> Iterator[Suite]:
    """A cluster, its main pipeline at work, and a writer that does not write yet."""
    with running_cluster(plan, folder) as cluster:
        topic = cluster.broker.create_topic("orders", plan.partitions, TOPIC)
        table = topic.replace("-", "_")
        path = cluster.make_pipeline(topic, table, replicas=plan.replicas)
        writer = Writer(
            cluster.broker.bootstrap,
            topic,
            per_s=plan.records_per_s,
            poisoned_share=plan.poisoned_share,
            seed=plan.seed,
        )
        with writer.writing():
            await_ready(cluster, path)
            yield Suite(cluster, path, writer, Tables(cluster.clickhouse, table))


def run(plan: Plan, folder: Path, faults: Iterable[Fault]) -> Report:
    """These faults, one after the other, until they or the time are over."""
    with running_suite(plan, folder) as suite:
        began_ms = CLOCK.boot_ms()
        with contextlib.suppress(KeyboardInterrupt):
            for fault in faults:
                suite.suffer(fault)
                if plan.seconds and CLOCK.boot_ms() - began_ms >= plan.seconds * 1_000:
                    break
        report = suite.finish()
        report.seconds = round((CLOCK.boot_ms() - began_ms) / 1_000, 1)
    return report
