"""Turns: the targets are measured one after the other, round after round, so that a noisy machine disturbs all alike.

All servers run all the time; those whose turn it is not are idle. A turn begins with a quiet disk (`sync`) and ends when its
server is quiet again, and what the server put off until then is counted as its cost.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.kafka.cases import LATENCY, LATENCY_PER_SECOND, LATENCY_SIZE, Case, System
from bench.kafka.disk import at_share, sync_latencies_us
from bench.kafka.processes import busy_seconds, cpu_seconds, is_running, wait_for_idle_machine, wait_until_quiet
from bench.kafka.results import DISK, BenchResults
from bench.kafka.targets import Done, Target

GIB: Final = 1 << 30
SHARES: Final = {"p50_us": 0.5, "p99_us": 0.99, "p999_us": 0.999}


@dataclass(frozen=True)
class RunPlan:
    """How much of it."""

    seconds: float
    rounds: int
    latency_seconds: float
    patience_s: float = 0.0  # how long a turn waits for other programs to be done


class Rounds:
    """All measurements over `running`; values go to `found` as they come, `say` is for who waits."""

    def __init__(
        self,
        running: Mapping[str, tuple[System, Target]],
        found: BenchResults,
        plan: RunPlan,
        *,
        directory: Path,
        say: Callable[[str], None],
    ) -> None:
        self._running, self._found, self._plan = dict(running), found, plan
        self._directory, self._say = directory, say

    def warm_up(self, case: Case) -> None:
        """A round that does not count: what is compiled or cached on first use is, after it."""
        self._round(case, BenchResults(), -1)

    def throughput(self, case: Case) -> None:
        for round_ in range(self._plan.rounds):
            self._round(case, self._found, round_)

    def latency(self) -> None:
        for round_ in range(self._plan.rounds):
            self._say(f"{LATENCY}, round {round_ + 1}: the disk")
            self._settle()
            took = sync_latencies_us(
                self._directory, size=LATENCY_SIZE, seconds=self._plan.latency_seconds, per_second=LATENCY_PER_SECOND
            )
            for metric, share in SHARES.items():
                self._found.add(LATENCY, metric, DISK, round_, at_share(took, share))
            for name, (_, target) in self._still_running():
                self._say(f"{LATENCY}, round {round_ + 1}: {name}")
                try:
                    self._latency_turn(name, target, round_)
                except Exception as error:  # as below
                    self._found.failures.append(f"{name}, {LATENCY}: {error!r}")

    def _round(self, case: Case, found: BenchResults, round_: int) -> None:
        for name, (system, target) in self._still_running():
            if system.partitions_max < case.partitions:
                continue
            self._say(f"{case.name}, round {round_ + 1}: {name}")
            try:
                self._turn(system, target, case, found, round_)
            except Exception as error:  # one target that fails is a finding; the others go on
                self._found.failures.append(f"{name}, {case.name}: {error!r}")

    def _still_running(self) -> list[tuple[str, tuple[System, Target]]]:
        ended = [name for name, (_, target) in self._running.items() if not is_running(target.pid)]
        for name in ended:
            self._found.failures.append(f"{name}: its process has ended")
            del self._running[name]
        return list(self._running.items())

    def _turn(self, system: System, target: Target, case: Case, found: BenchResults, round_: int) -> None:
        def note(metric: str, value: float) -> None:
            found.add(case.name, metric, system.name, round_, value)

        topic = target.create(case.partitions)
        try:
            produced = self._measured(
                target,
                lambda: target.produce(topic, case.partitions, case.size, self._plan.seconds, *case.settings),
                lambda metric, value: note(f"produce{metric}", value),
            )
            if case.reads and system.reads:
                records = int(produced["total_records"])
                self._measured(
                    target,
                    lambda: target.consume(topic, case.partitions, records, self._plan.seconds),
                    lambda metric, value: note(f"consume{metric}", value),
                )
        finally:
            target.drop(topic)

    def _measured(self, target: Target, run: Callable[[], Done], note: Callable[[str, float], None]) -> Done:
        self._settle()
        started, cpu_s, busy_s = time.monotonic(), cpu_seconds(target.pid), busy_seconds()
        done = run()
        took_s = time.monotonic() - started
        others_s = busy_seconds() - busy_s - done["client_cpu_s"] - (cpu_seconds(target.pid) - cpu_s)
        wait_until_quiet(target.pid)
        note("_mb_s", done["bytes"] / done["seconds"] / 1e6)
        note("_records_s", done["records"] / done["seconds"])
        note("_cpu_s_per_gib", (cpu_seconds(target.pid) - cpu_s) / (done["total_bytes"] / GIB))
        note("_others_cores", max(0.0, others_s / took_s))
        return done

    def _settle(self) -> None:
        os.sync()
        wait_for_idle_machine(at_most_s=self._plan.patience_s)

    def _latency_turn(self, name: str, target: Target, round_: int) -> None:
        topic = target.create(1)
        try:
            self._settle()
            done = target.latency(topic, LATENCY_SIZE, self._plan.latency_seconds, LATENCY_PER_SECOND)
            for metric in SHARES:
                self._found.add(LATENCY, metric, name, round_, done[metric])
        finally:
            target.drop(topic)
