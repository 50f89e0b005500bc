"""The soak: writers and a group of readers at work while the server is killed, terminated and paused; then the judgement.

What it proves is in `Report`: acknowledged = read, nothing lost, nothing twice, order kept. Everything but the chance of
the operating system follows from the seed.
"""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.clients.soak.chaos import Chaos
from tests.clients.soak.plan import Plan
from tests.clients.soak.verdict import ends, judge_log, log_of, ranges, twice, unread
from tests.support.broker import Broker
from tests.support.waiting import until

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent.parent
COMPRESSIONS = ("none", "lz4", "zstd", "gzip", "snappy")
DRAIN_TIMEOUT_S = 150
TOPIC = {"retention.ms": "-1", "segment.ms": "1000"}  # so that it often dies while it publishes


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of it. Everything from `lost` to `unclean_exits` must be nothing."""

    seconds: float
    seed: int
    acknowledged: int
    read: int
    read_by_the_group: int
    kills: int
    terms: int
    pauses: int
    slowest_start_s: float
    lost: int
    duplicated: int
    reordered: int
    unexpected: int
    failed: int
    unread_by_the_group: int
    committed_twice: int
    complaints: list[str] = field(default_factory=list)
    unclean_exits: list[int] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        wrong = [self.lost, self.duplicated, self.reordered, self.unexpected, self.failed, self.unread_by_the_group]
        whole = self.acknowledged == self.read > 0
        return whole and not any([*wrong, self.committed_twice, self.complaints, self.unclean_exits])


@contextmanager
def processes(script: str, each: list[dict[str, Any]], folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """One process per settings, for the body; whoever still lives at the end is killed."""
    running = []
    try:
        for settings in each:
            with (folder / f"{settings['name']}.stderr").open("wb") as stderr:
                argv = [sys.executable, str(HERE / script), json.dumps(settings)]
                running.append(subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=stderr, cwd=REPOSITORY))
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


def end(running: list[subprocess.Popen[bytes]]) -> None:
    """SIGTERM to all, and wait for the last."""
    for process in running:
        process.send_signal(signal.SIGTERM)
    for process in running:
        process.wait(DRAIN_TIMEOUT_S)


def soak(broker: Broker, folder: Path, plan: Plan) -> Report:
    """Run the plan on this broker, which must be ours to kill."""
    topic = broker.create_topic("soak", plan.partitions, TOPIC)
    shared = {"bootstrap": broker.bootstrap, "topic": topic, "folder": str(folder)}
    writing = {**shared, "keys": plan.keys_per_writer, "per_s": plan.records_per_s, "size": plan.record_bytes}
    reading = {**shared, "group": broker.unique("soak"), "assignor": "cooperative-sticky", "session_ms": 15_000}
    writers = [
        {**writing, "name": f"writer{n}", "compression": COMPRESSIONS[n % len(COMPRESSIONS)]}
        for n in range(plan.writers)
    ]
    readers = [{**reading, "name": f"reader{n}"} for n in range(plan.readers)]
    with processes("writer.py", writers, folder) as write, processes("reader.py", readers, folder) as read:
        with Chaos(broker, plan=plan) as chaos:
            threading.Event().wait(plan.seconds)
            until(lambda: chaos.deeds.kills and chaos.deeds.terms and chaos.deeds.pauses, what="one of each kind")
        end(write)
        last = ends(broker, topic, plan.partitions)
        with suppress(AssertionError):  # the report says how many
            until(lambda: unread(ranges(folder, "read"), last) == 0, within_s=DRAIN_TIMEOUT_S)
        end(read)
    return report(broker, folder, plan, topic, last, chaos)


def report(broker: Broker, folder: Path, plan: Plan, topic: str, last: dict[int, int], chaos: Chaos) -> Report:
    """The figures, from the files of the writers and readers and from the log."""
    log = list(log_of(broker, topic, plan.partitions))
    acknowledged, failed, verdict = judge_log(folder, log)
    complaints = [text for file in folder.glob("*.stderr") for text in file.read_text(errors="replace").splitlines()]
    return Report(
        seconds=plan.seconds,
        seed=plan.seed,
        acknowledged=acknowledged,
        read=len(log),
        read_by_the_group=sum(last - first + 1 for _, first, last in ranges(folder, "read")),
        kills=chaos.deeds.kills,
        terms=chaos.deeds.terms,
        pauses=chaos.deeds.pauses,
        slowest_start_s=round(chaos.deeds.start_s_max, 2),
        lost=len(verdict.lost),
        duplicated=len(verdict.duplicated),
        reordered=len(verdict.reordered),
        unexpected=len(verdict.unknown),
        failed=failed,
        unread_by_the_group=unread(ranges(folder, "read"), last),
        committed_twice=twice(ranges(folder, "done")),
        complaints=complaints,
        unclean_exits=chaos.deeds.unclean,
    )
