"""Two executors of a standalone Spark and a driver, killed (SIGKILL) in turn while a windowed aggregation and a stream-stream join
write to ClickHouse: exact against a batch over the same topics."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.driver_cluster import DriverCluster
from tests.support.driver_process import DriverProcess, driving
from tests.support.failpoints import FailpointFolder
from tests.support.sink_destinations import ClickHouseDatabase
from tests.support.spark_executors import executor_conf, kill_any_executor, kill_executor_of
from tests.support.spark_servers import standalone
from tests.support.stream_pipelines import (
    SCHEMA,
    WINDOWED,
    event,
    is_read,
    source,
    stream_pipeline,
    stream_record,
    stream_sink,
)
from tests.support.waiting import until

from holdfast.pipeline.driver.settings import SparkOptions
from holdfast.pipeline.model.definition import Pipeline
from holdfast.pipeline.model.driver_protocol import SlotProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(2_400)]

CHUNK = 500
DELAY = f"{3 * CHUNK} seconds"  # a partition may be read before the other: nothing may be late
JOIN = """
SELECT o.id AS id, o.amount AS ordered, p.amount AS paid,
  sha2(concat('o', o.id), 512) AS left_text, sha2(concat('p', p.id), 512) AS right_text
FROM {orders} o JOIN {payments} p ON o.id = p.id AND p.at BETWEEN o.at AND o.at + INTERVAL 20 SECONDS
"""
FAULTS = (
    ("executor", "stream.task-staged"),
    ("executor", "stream.task-inserting"),
    ("executor", "stream.task-inserted"),
    ("driver", "stream.begun"),
    ("executor", ""),
    ("both", "stream.task-inserted"),
)


def order(number: int) -> bytes:
    return event(number)


def payment(number: int) -> bytes:
    """Every third one comes too late to be one."""
    return event(number, second=number + (30 if number % 3 == 0 else 5))


@dataclass
class Workload:
    """Orders and payments in two partitions each, and the two pipelines that read them."""

    world: DriverCluster
    orders: str
    payments: str
    pipelines: dict[str, Pipeline]
    made: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def produce(self) -> None:
        numbers = range(self.made, self.made + CHUNK)
        for topic, make in ((self.orders, order), (self.payments, payment)):
            for partition in (0, 1):
                self.world.produce(topic, [make(n) for n in numbers if n % 2 == partition], partition=partition)
        self.made += CHUNK

    def close_windows(self) -> None:
        for topic in (self.orders, self.payments):
            self.world.produce(topic, [event(-1, second=1_000_000)])

    def wait_read(self, driver: DriverProcess, *, more: int = 0) -> None:
        ends = {self.orders: self.made + more, self.payments: self.made + more}

        def read() -> bool:
            windows, join = (stream_record(self.world, self.pipelines[name]) for name in ("windows", "join"))
            return is_read(windows, {self.orders: ends[self.orders]}) and is_read(join, ends)

        until(read, within_s=400, what=lambda: f"{ends}; {driver.heard(SlotProgress)[-2:]}")

    def wait_closed(self, clickhouse: ClickHouseDatabase) -> None:
        """Until every order is in a window that the table has."""
        query = f"SELECT sum(n) AS n FROM {clickhouse.database}.windows"
        until(lambda: int(clickhouse.ask(query)[0]["n"] or 0) >= self.made, within_s=200, what="all windows")


@contextmanager
def working(load: Workload, master: str, folder: Path, failpoints: FailpointFolder) -> Iterator[DriverProcess]:
    """A driver that owns both pipelines."""
    number = len(list(folder.glob("driver-*")))
    (folder / f"driver-{number}").mkdir()
    spark = SparkOptions(master=master, quick_start=True, conf=executor_conf(failpoints))
    environment = failpoints.environment
    with driving(load.world, folder / f"driver-{number}", environment, spark=spark, start_within_s=600) as driver:
        for name, pipeline in load.pipelines.items():
            slot = f"{name}-{number}"
            driver.work(slot, pipeline.id, load.world.claim(load.world.registry(pipeline, 1), slot, [0]))
        yield driver


def suffer(load: Workload, driver: DriverProcess, target: str, step: str, failpoints: FailpointFolder) -> None:
    """One fault, with records on their way; of an executor's at a step, while a task of it is there."""
    load.faults[f"{target} at {step or 'any time'}"] += 1
    if not step:
        load.produce()
        kill_any_executor(failpoints)
        return
    action = "kill" if target == "driver" else "hold"
    failpoints.arm(step, action)

    def taken() -> int | None:
        """Small batches have no pieces in object storage, which tasks insert: more records make a larger one."""
        load.produce()
        try:
            return failpoints.wait_taken(step, action, within_s=20)
        except TimeoutError:
            return None

    pid = until(lambda: taken() or 0, within_s=300, what=f"{step}; {driver.heard(SlotProgress)[-2:]}")
    if target != "driver":
        kill_executor_of(pid, failpoints)
    if target == "both":
        driver.process.kill()
    if target != "driver":
        failpoints.resume(step, action)


def batch_rows(spark: "SparkSession", load: Workload, sql: str) -> list[dict[str, Any]]:
    """The query as a batch over the whole topics, without the records that only close windows."""
    from pyspark.sql import functions as f

    views = {"orders": f"{load.orders}_batch".replace("-", "_"), "payments": f"{load.payments}_batch".replace("-", "_")}
    for topic, view in zip((load.orders, load.payments), views.values(), strict=True):
        options = {"bootstrap": load.world.broker.bootstrap, "topics": topic}
        frame = spark.read.format("holdfast").options(**options).load()
        rows = frame.select(f.from_json(frame["value"].cast("string"), SCHEMA).alias("v")).select("v.*")
        rows.where("id >= 0").createOrReplaceTempView(view)
    return [row.asDict() for row in spark.sql(sql.format(**views)).collect()]


def counted(rows: list[dict[str, Any]], *columns: str) -> Counter[tuple[str, ...]]:
    return Counter(tuple(str(row[name]) for name in columns) for row in rows)


@pytest.mark.parametrize(
    "faults",
    [(("executor", "stream.task-staged"), ("driver", "stream.begun")), FAULTS],
    ids=["one-of-each", "all"],
)
def test_killed_executors_and_drivers_lose_and_repeat_no_row_of_windows_and_joins(
    faults: tuple[tuple[str, str], ...],
    world: DriverCluster,
    clickhouse: ClickHouseDatabase,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    orders, payments = world.topic(2), world.topic(2)
    sources = [source(orders, "orders", delay=DELAY), source(payments, "payments", delay=DELAY)]
    windows = {"sources": sources[:1], "sql": WINDOWED.format(orders="orders")}
    join = {"sources": sources, "sql": JOIN.format(orders="orders", payments="payments")}
    pipelines = {
        "windows": stream_pipeline(world, stream_sink(clickhouse, table="windows"), windows),
        "join": stream_pipeline(world, stream_sink(clickhouse, table="joined", batchFlushIntervalMs=1_000), join),
    }
    load = Workload(world, orders, payments, pipelines)
    failpoints = FailpointFolder(tmp_path / "failpoints")
    left = list(faults)
    with standalone(tmp_path, workers=2) as master:
        while left:
            with working(load, master, tmp_path, failpoints) as driver:
                while left:
                    target, step = left.pop(0)
                    suffer(load, driver, target, step, failpoints)
                    if target != "executor":
                        break  # the next driver takes over
                    load.wait_read(driver)
            failpoints.disarm()
        load.close_windows()
        with working(load, master, tmp_path, failpoints) as driver:
            load.wait_read(driver, more=1)
            load.wait_closed(clickhouse)
    spark: SparkSession = request.getfixturevalue("spark")  # a JVM more, which the drivers need not share cores with
    expected = counted(batch_rows(spark, load, WINDOWED), "minute", "kind", "n", "total")
    query = "SELECT toString(toDateTime(minute)) AS minute, kind, n, toDecimalString(total, 2) AS total"
    found = clickhouse.ask(f"{query} FROM {clickhouse.database}.windows")
    assert counted(found, "minute", "kind", "n", "total") == expected
    columns = ("id", "ordered", "paid", "left_text", "right_text")
    query = "SELECT id, toDecimalString(ordered, 2) AS ordered, toDecimalString(paid, 2) AS paid, left_text, right_text"
    # The records that close windows are a pair, too, which the batch leaves out.
    joined = counted(clickhouse.ask(f"{query} FROM {clickhouse.database}.joined WHERE id >= 0"), *columns)
    assert joined == counted(batch_rows(spark, load, JOIN), *columns)
    print(f"{sum(load.faults.values())} faults {dict(load.faults)}; {2 * load.made} rows in; {len(found)} windows and")
    print(f"{joined.total()} pairs out; duplicates {joined.total() - len(joined)}; losses 0")
