"""Mapping a range again must give what its intent says: otherwise the slot is blocked, and both are shown."""

from pathlib import Path

import msgspec
import pytest
from tests.support.driver_cluster import DriverCluster, drain, event
from tests.support.failpoints import FailpointError, fail_at
from tests.support.sink_destinations import ClickHouseDatabase, sink_of, totals
from tests.support.waiting import until

from holdfast.client.loop_thread import run
from holdfast.pipeline.driver.slot_processor import SlotProcessor
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.model.definition import RangeDigest, RangeIntent
from holdfast.registry import RegistryStore
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.types import OffsetRange

pytestmark = pytest.mark.spark

OTHER = RangeDigest(rows=49, rows_hash="1:" + "0" * 32)
SOME_ROWS = "select id, name from rows where id % 2 = 0"
NO_ROWS = "select id from rows where id < 0"


def intent(registry: RegistryStore, number: int = 0) -> RangeIntent:
    state = run(registry.partition(number))
    assert state is not None
    assert state.intent is not None
    return msgspec.json.decode(state.intent, type=RangeIntent)


def turns(work: SlotProcessor, claims: dict[int, int], count: int = 3) -> None:
    for _ in range(count):
        work.turn(claims)


@pytest.mark.parametrize(
    ("kind", "sql"),
    [
        pytest.param(kind, sql, marks=() if kind == "clickhouse" or sql is SOME_ROWS else pytest.mark.long)
        for kind in ("clickhouse", "parquet", "delta")
        for sql in ("", SOME_ROWS, NO_ROWS)
    ],
)
def test_what_a_range_is_written_as_is_in_its_intent_before_anything_is_visible(
    kind: str, sql: str, world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase, tmp_path: Path
) -> None:
    topic = world.topic(1)
    world.produce(topic, [*map(event, range(50)), b"bad"])
    files = {"kind": kind, "url": str(tmp_path / "table"), "batchFlushIntervalMs": 100}
    sink = sink_of(clickhouse) if kind == "clickhouse" else files
    pipeline = world.pipeline(topic, sink, sql={"sql": sql})
    registry = world.registry(pipeline, 1)
    claims = world.claim(registry, "ann", [0])
    with failpoints.installed(fail_at("pipeline.recorded")), pytest.raises(FailpointError):
        drain(world.work(jobs, pipeline, "ann"), claims, {0: 51})
    digest = intent(registry).digest
    assert digest is not None
    assert (digest.rows, digest.refused) == (50 if not sql else 25 if "%" in sql else 0, 1)
    assert bool(digest.rows_hash) == bool(digest.rows)
    assert digest.refused_hash
    if kind == "clickhouse":
        assert totals(clickhouse)[0] == totals(clickhouse, "orders_dlq", "recipe")[0] == 0
    work = world.work(jobs, pipeline, "bob")
    drain(work, world.claim(registry, "bob", [0]), {0: 51})
    assert work.counters.dlq_rows == 1
    if kind == "clickhouse":
        assert totals(clickhouse, "orders_dlq", "recipe")[:2] == (1, 1)


@pytest.mark.parametrize("sql", ["", NO_ROWS, pytest.param("select id, name from rows", marks=pytest.mark.long)])
def test_a_replay_that_differs_is_blocked_with_both_and_nothing_is_written(
    sql: str, world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(2)
    for number in (0, 1):
        world.produce(topic, map(event, range(50)), partition=number)
    pipeline = world.pipeline(topic, sink_of(clickhouse), sql={"sql": sql})
    registry = world.registry(pipeline, 2)
    claims = world.claim(registry, "ann", [0, 1])
    with failpoints.installed(fail_at("pipeline.begun")), pytest.raises(FailpointError):
        drain(world.work(jobs, pipeline, "ann"), claims, {0: 50, 1: 50})
    fields = {"digest": OTHER}
    assert run(registry.amend_range(0, "ann", claims[0], OffsetRange(start=0, end=50), fields))
    claims = world.claim(registry, "bob", [0, 1])
    work = world.work(jobs, pipeline, "bob")

    def has_gone_on() -> bool:
        turns(work, claims)
        return world.checkpoint(registry, 1) == 50

    until(has_gone_on, what="its neighbour goes on")
    assert f"were {OTHER} when" in work.blocked
    assert f"{0 if 'id < 0' in sql else 50} rows" in work.blocked
    assert world.checkpoint(registry, 0) == 0
    assert totals(clickhouse)[0] == (0 if "id < 0" in sql else 50)
    assert intent(registry).digest == OTHER


def test_a_range_begun_by_the_last_release_is_finished(
    world: DriverCluster, jobs: SparkJobs, clickhouse: ClickHouseDatabase
) -> None:
    topic = world.topic(1)
    world.produce(topic, map(event, range(50)))
    pipeline = world.pipeline(topic, sink_of(clickhouse))
    registry = world.registry(pipeline, 1)
    claims = world.claim(registry, "ann", [0])
    old = f'{{"end":30,"recipe":{pipeline.revision},"rows":null,"start":0,"topic":"{topic}"}}'
    assert run(registry.begin_range(0, "ann", claims[0], old))
    drain(world.work(jobs, pipeline, "ann"), claims, {0: 50})
    assert totals(clickhouse) == (50, 50, sum(range(50)))
