"""A topic into another one by a pipeline's own slot: sent by tasks on two executor cores, against sent by the driver.

Both stage the same way; what differs is who reads the staged pieces and sends them. Measured are the sink's commit alone (plan,
send, mark done), the driver's own CPU in it, and whole turns.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from bench.figures import Figure
from bench.kafka.results import BenchResults
from bench.spark.data import PARTITIONS, Data, create
from bench.spark.sinks import claimed_pipeline, slot_of
from holdfast.client.loop_thread import loop_thread, run
from holdfast.contracts.store import Store
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.sinks.contract import WriteResult
from holdfast.pipeline.sinks.topic import TopicSink
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASE: Final = "into a topic"
TASKS, DRIVER = "sent by tasks", "sent by the driver"
_WARMING_TURNS: Final = 2
_TURNS_PER_ROUND: Final = 3
_BATCH_ROWS: Final = 100_000
_CLOCK, _CHANCE = RealClock(), SystemRandom()


def measure(spark: "SparkSession", data: Data, rounds: int, found: BenchResults) -> list[Figure]:
    """Both in turn."""
    context = open_store(data.cluster_address.store, clock=_CLOCK, random=_CHANCE)
    store = loop_thread().submit(context.__aenter__()).result()
    try:
        slots = {name: _Copying(spark, data, store, by_tasks=name == TASKS) for name in (TASKS, DRIVER)}
        most = data.records // (_BATCH_ROWS * PARTITIONS) - _WARMING_TURNS
        for round_ in range(-_WARMING_TURNS, max(1, min(rounds * _TURNS_PER_ROUND, most))):
            for name, slot in slots.items():
                rows, turn_s, commit_s, cpu_s = slot.turn()
                if round_ >= 0:
                    found.add(CASE, "cpu_us", name, round_, 1_000_000 * cpu_s / rows)
                    found.add(CASE, "rows_s", name, round_, rows / turn_s)
                    found.add(CASE, "sent_s", name, round_, rows / commit_s)
        for slot in slots.values():
            slot.close()
    finally:
        loop_thread().submit(context.__aexit__(None, None, None)).result()
    return [
        _figure(found, "sent_s", "publishing alone, tasks against the driver"),
        _figure(found, "cpu_us", "CPU of the driver's Python while it publishes", "µs a row"),
        _figure(found, "rows_s", "topic to topic, tasks against the driver"),
    ]


def _figure(found: BenchResults, value: str, what: str, unit: str = "rows/s") -> Figure:
    ours, other = found.median(CASE, value, TASKS), found.median(CASE, value, DRIVER)
    assert ours is not None
    note = (
        f"{len(found.values[CASE, value, TASKS])} turns of {_BATCH_ROWS * PARTITIONS:,} rows, {PARTITIONS} partitions"
    )
    return Figure(CASE, what, unit, ours, other, found.ratio(CASE, value, TASKS, DRIVER), note=note)


class _DriverJobs(SparkJobs):
    """Jobs of a driver that sends itself."""

    def executors(self, slot: str) -> Any:
        return None


class _Copying:
    """A pipeline with one slot that has all partitions."""

    def __init__(self, spark: "SparkSession", data: Data, store: Store, *, by_tasks: bool) -> None:
        name = "tasks" if by_tasks else "driver"
        sink = {
            "kind": "topic",
            "topic": create(data.bootstrap, f"copy-{name}", PARTITIONS),
            "batchSize": _BATCH_ROWS,
            "batchFlushIntervalMs": 100,
        }
        pipeline, self._claims = run(claimed_pipeline(store, data, f"copy-{name}", sink))
        jobs = SparkJobs(spark, remote=False) if by_tasks else _DriverJobs(spark, remote=False)
        self._work = slot_of(pipeline, jobs, data, store)

    def turn(self) -> tuple[int, float, float, float]:
        """Rows, seconds, and seconds and CPU seconds of the sink's commit, of about one batch per partition."""
        commit_s, cpu_s, commit = 0.0, 0.0, TopicSink.commit

        def timed(sink: TopicSink, written: Sequence[WriteResult], executors: Any = None) -> None:
            nonlocal commit_s, cpu_s
            begin, begin_cpu = time.perf_counter(), time.process_time()
            commit(sink, written, executors)
            commit_s, cpu_s = commit_s + time.perf_counter() - begin, cpu_s + time.process_time() - begin_cpu

        before, begin = self._work.counters.rows, time.perf_counter()
        TopicSink.commit = timed  # type: ignore[method-assign,assignment]
        try:
            while self._work.counters.rows - before < _BATCH_ROWS * PARTITIONS:
                self._work.turn(self._claims)
                if self._work.blocked:
                    raise RuntimeError(f"the slot does not go on: {self._work.blocked}")
        finally:
            TopicSink.commit = commit  # type: ignore[method-assign]
        return self._work.counters.rows - before, time.perf_counter() - begin, commit_s, cpu_s

    def close(self) -> None:
        self._work.close()
