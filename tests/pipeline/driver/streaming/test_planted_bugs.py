"""Bugs planted in streaming queries are found by what is in the table; without them the same faults leave it exact.

The faults are those of `tests.pipeline.kills --planted`, within one process: no driver has to start anew for each of them. A query
stores its rows before it inserts them, so there is no hash to compare with rows that are mapped again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import pytest
from tests.pipeline.kills.planted import FENCE, PROVENANCE, TOKEN, Planted, install
from tests.support.driver_cluster import DriverCluster
from tests.support.failpoints import FailpointError
from tests.support.sink_destinations import ClickHouseDatabase, lose_parts
from tests.support.stream_pipelines import StreamSlot, events, source, stream_pipeline, stream_sink
from tests.support.waiting import until

from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.model.definition import Pipeline
from holdfast.vocabulary import failpoints

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]  # a cold JVM on a busy machine

RECORDS = 20


@dataclass
class Trial:
    """A topic, and pipelines that read it into one table."""

    world: DriverCluster
    jobs: SparkJobs
    clickhouse: ClickHouseDatabase
    table: str

    def __post_init__(self) -> None:
        self.topic = self.world.topic(1)
        self.sent = 0

    def pipeline(self) -> Pipeline:
        query = {"sources": [source(self.topic, "orders")], "sql": "SELECT id, kind FROM orders"}
        return stream_pipeline(self.world, stream_sink(self.clickhouse, table=self.table), query)

    def send(self) -> None:
        self.world.produce(self.topic, events(range(self.sent, self.sent + RECORDS)))
        self.sent += RECORDS

    def slot(self, pipeline: Pipeline, name: str) -> StreamSlot:
        return StreamSlot(self.world, self.jobs, pipeline, f"{name}-{self.table}")

    def read(self, slot: StreamSlot) -> None:
        """Until it has written everything."""
        slot.run_until(slot.has_read(**{self.topic: self.sent}))

    def rows(self, pipeline: Pipeline) -> tuple[int, int]:
        """How many rows it has, and of how many records."""
        name = f"{self.clickhouse.database}.{self.table}"
        where = f"_pipeline = '{pipeline.id}'"
        [found] = self.clickhouse.ask(f"SELECT count() AS n, uniqExact(id) AS ids FROM {name} WHERE {where}")
        return int(found["n"]), int(found["ids"])


def provenance(trial: Trial) -> Pipeline:
    """A pipeline dies after it has begun what another has in the same table."""
    trial.send()
    trial.read(trial.slot(trial.pipeline(), "first"))
    pipeline = trial.pipeline()
    trial.slot(pipeline, "dead").fail_at("stream.begun")
    trial.read(trial.slot(pipeline, "successor"))
    return pipeline


def fence(trial: Trial) -> Pipeline:
    """A zombie inserts what its successor has inserted, after so many other inserts that its token is forgotten."""
    pipeline = trial.pipeline()
    zombie = trial.slot(pipeline, "zombie")
    trial.send()
    trial.read(zombie)
    name = f"{trial.clickhouse.database}.{trial.table}"
    trial.clickhouse.run(f"ALTER TABLE {name} MODIFY SETTING non_replicated_deduplication_window = 1")
    held, woken = Event(), Event()

    def hold(step: str) -> None:
        if step == "stream.inserting" and not held.is_set():
            held.set()
            woken.wait()

    with failpoints.installed(hold):
        trial.send()
        zombie.run_until(held.is_set)
        successor = trial.slot(pipeline, "successor")
        for _ in range(3):
            trial.read(successor)
            trial.send()
        running = zombie.processor.running
        assert running is not None
        assert running.batches is not None
        woken.set()
        until(lambda: running.batches is not None and running.batches.idle, what="the zombie's batch ends")
    trial.read(successor)
    return pipeline


def token(trial: Trial) -> Pipeline:
    """ClickHouse dies after it has recorded a token, before it has stored the rows; so does the owner."""
    pipeline = trial.pipeline()
    dead = trial.slot(pipeline, "dead")
    lost: list[int] = []

    def die(step: str) -> None:
        if step == "stream.inserted":
            if not lost:
                lost.append(lose_parts(trial.clickhouse, trial.table))
            raise FailpointError(step)

    trial.send()
    with failpoints.installed(die):
        dead.run_until(lambda: bool(lost) and not dead.is_active)
    assert lost == [1]
    dead.processor.stop()
    trial.read(trial.slot(pipeline, "successor"))
    return pipeline


@pytest.mark.parametrize(("bug", "fault"), [(PROVENANCE, provenance), (FENCE, fence), (TOKEN, token)])
def test_a_planted_bug_is_found_and_without_it_there_is_nothing_to_find(
    bug: str,
    fault: Callable[[Trial], Pipeline],
    world: DriverCluster,
    jobs: SparkJobs,
    clickhouse: ClickHouseDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(tmp_path, monkeypatch.setattr)
    without = Trial(world, jobs, clickhouse, "without")
    assert without.rows(fault(without)) == (without.sent, without.sent)
    Planted(tmp_path).plant(bug)
    planted = Trial(world, jobs, clickhouse, "planted")
    assert planted.rows(fault(planted)) != (planted.sent, planted.sent)
