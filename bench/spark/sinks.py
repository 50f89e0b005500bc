"""A topic into ClickHouse by a pipeline's own slot, against a bare insert of ready Arrow data from Spark's tasks.

Both write blocks of the same rows and columns into the same kind of table of the embedded ClickHouse. The slot reads, decodes JSON,
maps, begins every range in the store, fences and checkpoints; the reference does nothing but insert.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from bench.figures import Figure
from bench.kafka.results import BenchResults
from bench.spark.bare_insert import Insert
from bench.spark.data import PARTITIONS, Data
from holdfast.client.loop_thread import loop_thread, run
from holdfast.contracts.store import Store
from holdfast.pipeline.catalog.store import PipelineStore
from holdfast.pipeline.driver.settings import DriverSettings
from holdfast.pipeline.driver.slot_context import DriverResources
from holdfast.pipeline.driver.slot_processor import SlotProcessor
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.model.definition import Pipeline, registry_namespace
from holdfast.pipeline.model.driver_protocol import RunSlot
from holdfast.registry import RegistrySettings, RegistryStore
from holdfast.stores.urls import open_store
from holdfast.testing.clickhouse import ClickHouseServer, clickhouse_server
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASE: Final = "into ClickHouse"
OURS, BARE = "holdfast", "bare insert"
RATIO_MIN: Final = 0.7
BLOCK_ROWS: Final = 100_000
BLOCKS_PER_TURN: Final = 8
_TURN_MAX_S: Final = 600
_MERGES_MAX_S: Final = 60
_WARMING_TURNS: Final = 3
_TURNS_PER_ROUND: Final = 3
_NUMBERS, _TEXTS = ("id", "user", "amount"), ("page", "token")
_CLOCK, _CHANCE = RealClock(), SystemRandom()


def measure(spark: "SparkSession", data: Data, rounds: int, found: BenchResults, directory: Path) -> list[Figure]:
    """Both in turn, round after round, after some that do not count: the JVM compiles what runs often."""
    block = directory / "block.arrow"
    _write_block(block)
    context = open_store(data.cluster_address.store, clock=_CLOCK, random=_CHANCE)
    store = loop_thread().submit(context.__aenter__()).result()
    try:
        with clickhouse_server(directory / "clickhouse") as server:
            slot = _Slot(spark, data, store, server)
            bare = _Bare(spark, server, block)
            most = data.records // (BLOCK_ROWS * BLOCKS_PER_TURN) - _WARMING_TURNS
            for round_ in range(-_WARMING_TURNS, max(1, min(rounds * _TURNS_PER_ROUND, most))):
                for name, turn in ((OURS, slot.turn), (BARE, bare.turn)):
                    _await_merges(server)
                    begin = time.perf_counter()
                    rows = turn()
                    if round_ >= 0:
                        found.add(CASE, "rows_s", name, round_, rows / (time.perf_counter() - begin))
            slot.close()
    finally:
        loop_thread().submit(context.__aexit__(None, None, None)).result()
    ours, other = found.median(CASE, "rows_s", OURS), found.median(CASE, "rows_s", BARE)
    ratio = found.ratio(CASE, "rows_s", OURS, BARE)
    assert ours is not None
    met = ratio is not None and ratio >= RATIO_MIN
    turns = len(found.values[CASE, "rows_s", OURS])
    note = f"{turns} turns of {BLOCKS_PER_TURN} blocks of {BLOCK_ROWS:,} rows; the reference inserts what is ready"
    return [Figure(CASE, "topic to table", "rows/s", ours, other, ratio, f"ratio ≥ {RATIO_MIN:g}", met, note)]


def _await_merges(server: ClickHouseServer) -> None:
    """What one turn leaves to be merged is not the next one's to pay for."""
    deadline = time.monotonic() + _MERGES_MAX_S
    while server.query("SELECT count() FROM system.merges").strip() != b"0":
        if time.monotonic() > deadline:
            raise RuntimeError(f"merges go on for {_MERGES_MAX_S} s")
        time.sleep(0.05)


def slot_of(pipeline: Pipeline, jobs: SparkJobs, data: Data, store: Store) -> SlotProcessor:
    """The one slot of a pipeline of these benches, in this process."""
    resources = DriverResources(
        jobs=jobs,
        store=store,
        cluster_address=data.cluster_address,
        embedded="",
        settings=DriverSettings(),
        clock=_CLOCK,
        random=_CHANCE,
    )
    return SlotProcessor(RunSlot(slot="bench", pipeline_id=pipeline.id, generation=1), resources, lambda: True)


class _Slot:
    """A pipeline with one slot that has all partitions."""

    def __init__(self, spark: "SparkSession", data: Data, store: Store, server: ClickHouseServer) -> None:
        pipeline, self._claims = run(claimed_pipeline(store, data, "bench", _clickhouse_sink(server)))
        self._work = slot_of(pipeline, SparkJobs(spark, remote=False), data, store)

    def turn(self) -> int:
        """Go on for so many rows."""
        before, deadline = self._work.counters.rows, time.monotonic() + _TURN_MAX_S
        while (done := self._work.counters.rows - before) < BLOCK_ROWS * BLOCKS_PER_TURN:
            wait_ms = self._work.turn(self._claims)
            if self._work.blocked or time.monotonic() > deadline:
                raise RuntimeError(f"the slot does not go on: {self._work.blocked}")
            if wait_ms and self._work.counters.rows - before == done:
                time.sleep(min(wait_ms, 20) / 1_000)
        return done

    def close(self) -> None:
        self._work.close()


def _clickhouse_sink(server: ClickHouseServer) -> dict[str, Any]:
    return {
        "kind": "clickhouse",
        "dsn": server.url,
        "database": "default",
        "table": "slot",
        "batchSize": BLOCK_ROWS,
        "batchFlushIntervalMs": 100,
    }


async def claimed_pipeline(
    store: Store, data: Data, name: str, sink: dict[str, Any]
) -> tuple[Pipeline, dict[int, int]]:
    """A pipeline from the topic into a sink, all of its partitions claimed for the slot `bench`."""
    catalog = PipelineStore(store, clock=_CLOCK, random=_CHANCE)
    made = await catalog.create(name)
    columns = [{"fieldPath": name, "column": name, "type": "Int64", "nullable": False} for name in _NUMBERS]
    columns += [{"fieldPath": name, "column": name, "type": "String", "nullable": False} for name in _TEXTS]
    await catalog.put_parts(made.id, {"source": {"topic": data.topic}, "sink": sink, "mapping": {"columns": columns}})
    pipeline = await catalog.set_state(made.id, desired="started")
    settings = RegistrySettings(namespace=registry_namespace(pipeline.id, 1), partitions=PARTITIONS)
    registry = RegistryStore(store, clock=_CLOCK, random=_CHANCE, settings=settings)
    await registry.initialize()
    claims = {}
    for number in range(PARTITIONS):
        state = await registry.partition(number)
        if state is None or not await registry.claim(number, "bench", state.epoch):
            raise RuntimeError(f"partition {number} is not to be had")
        claims[number] = state.epoch + 1
    return pipeline, claims


class _Bare:
    """The same number of rows, from a file, by tasks that only insert, in Python processes that know nothing of Holdfast."""

    def __init__(self, spark: "SparkSession", server: ClickHouseServer, block: Path) -> None:
        where = {"host": server.host, "port": server.port, "username": server.user, "password": server.password}
        self._spark, self._insert = spark, Insert(where, str(block))
        numbers = ", ".join(f"{name} Int64" for name in _NUMBERS)
        texts = ", ".join(f"{name} String" for name in _TEXTS)
        place = "_pipeline LowCardinality(String), _generation UInt32, _topic String, _partition Int32, _offset Int64"
        server.query(
            f"CREATE TABLE bare ({numbers}, {texts}, {place}) ENGINE = MergeTree ORDER BY (_partition, _offset)"
        )

    def turn(self) -> int:
        """One job."""
        environment = self._spark.sparkContext.environment  # Spark keeps Python processes by it
        environment["HOLDFAST_BENCH"] = BARE
        try:
            frame = self._spark.range(0, BLOCKS_PER_TURN, 1, BLOCKS_PER_TURN).mapInArrow(self._insert, "rows long")
            return sum(row.rows for row in frame.collect())
        finally:
            del environment["HOLDFAST_BENCH"]


def _write_block(path: Path) -> None:
    numbers = pa.array(range(BLOCK_ROWS), pa.int64())
    columns: dict[str, Any] = dict.fromkeys(_NUMBERS, numbers)
    columns["page"] = pa.array([f"/p/{number % 1_000}" for number in range(BLOCK_ROWS)])
    columns["token"] = pa.array([f"{number * 2_654_435_761:024x}" for number in range(BLOCK_ROWS)])
    columns["_pipeline"] = pa.repeat(pa.scalar("0123456789abcdef", pa.string()), BLOCK_ROWS)
    columns["_generation"] = pa.repeat(pa.scalar(1, pa.uint32()), BLOCK_ROWS)
    columns["_topic"] = pa.repeat("bench", BLOCK_ROWS)
    columns["_partition"] = pa.repeat(pa.scalar(0, pa.int32()), BLOCK_ROWS)
    columns["_offset"] = numbers
    table = pa.table(columns)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
