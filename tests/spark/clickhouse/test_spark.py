"""`format("holdfast.clickhouse")` on Spark: found by itself, batch and streams, every row once."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.support.faulty_clickhouse_source import ROWS_PER_FILE, FaultyClickHouseSource, add_file, start_stream
from tests.support.waiting import until

from holdfast.spark.clickhouse import upsert
from holdfast.testing.clickhouse import ClickHouseServer

ROOT = Path(__file__).parents[3]
DRIVER_TIMEOUT_S = 240  # a busy machine is no defect
FORMAT = "holdfast.clickhouse"

pytestmark = pytest.mark.timeout(300)  # each starts Spark's Python processes several times


@pytest.fixture
def options(clickhouse: ClickHouseServer, clickhouse_database: str) -> dict[str, str]:
    url = f"http://{clickhouse.host}:{clickhouse.port}/{clickhouse_database}"
    return {
        "url": url,
        "user": clickhouse.user,
        "password": clickhouse.password,
        "table": f"{clickhouse_database}.t",
        "orderBy": "id",
    }


def query(server: ClickHouseServer, options: dict[str, str], select: str, *, tail: str = "") -> list[str]:
    return server.query(f"SELECT {select} FROM {options['table']} {tail}").decode().splitlines()


def ids(server: ClickHouseServer, options: dict[str, str]) -> list[int]:
    return [int(line) for line in query(server, options, "id", tail="ORDER BY id")]


def test_a_batch_is_appended_overwritten_and_read(
    spark: SparkSession, clickhouse: ClickHouseServer, options: dict[str, str]
) -> None:
    wide = """
        id, cast(id as int) i, cast(id as byte) b, id / 4.0 f, id % 2 = 0 even, cast(id as decimal(20, 3)) amount,
        if(id = 1, null, concat('n', id)) name, timestamp_millis(id * 1001) at, date_add(date'2026-01-01', cast(id as int)) day,
        array(id, null) list, map('k', id) pairs, cast(concat('b', id) as binary) raw
    """
    rows = spark.range(5).selectExpr(*[part.strip() for part in split_columns(wide)])
    rows.write.format(FORMAT).options(**options).mode("append").save()
    rows.where("id < 2").write.format(FORMAT).options(**options, writeId="more").mode("append").save()
    rows.where("id < 2").write.format(FORMAT).options(**options, writeId="more").mode("append").save()
    assert ids(clickhouse, options) == [0, 0, 1, 1, 2, 3, 4]
    rows.write.format(FORMAT).options(**options).mode("overwrite").save()
    assert ids(clickhouse, options) == [0, 1, 2, 3, 4]
    read = spark.read.format(FORMAT).options(**options).load()
    assert dict(read.drop("_scope", "_generation", "_batch", "_piece", "raw").dtypes) == dict(rows.drop("raw").dtypes)
    same = [name for name in rows.columns if name != "raw"]
    assert read.select(same).orderBy("id").collect() == rows.select(same).orderBy("id").collect()
    assert spark.read.format(FORMAT).options(**options, filter="id > 2").load().count() == 2


def split_columns(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for at, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            yield text[start:at]
            start = at + 1
    yield text[start:]


@pytest.mark.long  # every step of a commit dies in test_committer.py, a query in tests/spark/sink/test_spark_stream.py
def test_a_stream_that_dies_in_its_commits_goes_on_where_it_was(
    spark: SparkSession, clickhouse: ClickHouseServer, options: dict[str, str], tmp_path: Path
) -> None:
    spark.dataSource.register(FaultyClickHouseSource)
    (tmp_path / "in").mkdir()
    steps = ("begun", "inserted")
    for number, step in enumerate(steps):
        add_file(tmp_path / "in", number)
        fault = {"step": step, "mark": str(tmp_path / step), "signal": str(int(signal.SIGKILL)), "inlineBytes": "0"}
        dying = start_stream(spark, "faulty.clickhouse", tmp_path, {**options, **fault})
        with pytest.raises(Exception, match=r"(?s)."):
            dying.awaitTermination()
        assert (tmp_path / step).exists(), f"the commit did not reach {step!r}"
    add_file(tmp_path / "in", len(steps))
    start_stream(spark, FORMAT, tmp_path, options).awaitTermination()
    start_stream(spark, FORMAT, tmp_path, options).awaitTermination()
    assert ids(clickhouse, options) == list(range((len(steps) + 1) * ROWS_PER_FILE))
    assert query(clickhouse, options, "groupUniqArray(_batch)") == ["[0,1,2]"]


@pytest.mark.long
def test_complete_mode_and_upserts_leave_what_a_batch_query_gives(
    spark: SparkSession, clickhouse: ClickHouseServer, options: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(2):
        add_file(tmp_path / "in", number)
    rows = spark.readStream.schema("id LONG").option("maxFilesPerTrigger", "1").json(str(tmp_path / "in"))
    counts = rows.selectExpr("id % 10 id").groupBy("id").count()
    database = options["table"].partition(".")[0]
    complete = {**options, "table": f"{database}.complete"}
    updates = {"url": options["url"], "user": options["user"], "password": options["password"]}
    updates |= {"table": f"{database}.updates", "order_by": "id"}

    def write(batch: DataFrame, number: int) -> None:
        upsert(batch, number, scope="counts", **updates)
        upsert(batch, number, scope="counts", **updates)  # a batch that is repeated changes nothing

    writing = counts.writeStream.outputMode("complete").format(FORMAT).options(**complete)
    for each in (writing, counts.writeStream.outputMode("update").foreachBatch(write)):
        folder = str(tmp_path / f"checkpoint-{each is writing}")
        each.option("checkpointLocation", folder).trigger(availableNow=True).start().awaitTermination()
    expected = [f"{key}\t{2 * ROWS_PER_FILE // 10}" for key in range(10)]
    assert query(clickhouse, complete, "id, count", tail="ORDER BY id") == expected
    assert query(clickhouse, {"table": f"{database}.updates FINAL"}, "id, count", tail="ORDER BY id") == expected


def test_bad_options_and_tables_are_refused_before_anything_is_written(
    spark: SparkSession, clickhouse: ClickHouseServer, options: dict[str, str]
) -> None:
    rows = spark.range(3)

    def failure(**more: str) -> str:
        with pytest.raises(Exception, match=r"(?s).") as failed:
            rows.write.format(FORMAT).options(**{**options, **more}).mode("append").save()
        assert options["password"] not in str(failed.value)
        return str(failed.value)

    assert "invalid option 'stagging'" in failure(stagging="x")
    clickhouse.query(f"CREATE TABLE {options['table']} (id UInt8, x String) ENGINE = MergeTree ORDER BY id")
    assert "MODIFY SETTING non_replicated_deduplication_window" in failure()
    clickhouse.query(f"ALTER TABLE {options['table']} MODIFY SETTING non_replicated_deduplication_window = 100")
    assert "lacks _scope" in failure(provenance="required")
    rows.selectExpr("id", "cast(null as string) x").limit(0).write.format(FORMAT).options(**options).mode(
        "append"
    ).save()
    with pytest.raises(Exception, match="Cannot convert NULL value"):
        rows.selectExpr("id", "cast(null as string) x").write.format(FORMAT).options(**options).mode("append").save()
    with pytest.raises(Exception, match="has no column y"):
        rows.selectExpr("id", "'' y").write.format(FORMAT).options(**options).mode("append").save()
    assert ids(clickhouse, options) == []


@contextmanager
def driver(folder: Path, options: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """A driver of its own on `local[2,3]`: a task is tried three times."""
    argv = [sys.executable, "-m", "tests.support.faulty_clickhouse_source", str(folder)]
    process = subprocess.Popen([*argv, *(f"{k}={v}" for k, v in options.items())], start_new_session=True, cwd=ROOT)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.long  # a second JVM; without Spark, the same is in test_committer.py
@pytest.mark.timeout(600)
def test_tasks_are_tried_again_and_a_driver_that_was_replaced_writes_nothing(
    spark: SparkSession, clickhouse: ClickHouseServer, options: dict[str, str], tmp_path: Path
) -> None:
    """The first driver's tasks all fail once; its second commit stops, a second driver finishes, the first one wakes."""
    (tmp_path / "in").mkdir()
    for number in range(2):
        add_file(tmp_path / "in", number)
    mark = tmp_path / "stopped"
    fault = {
        "step": "begun",
        "mark": str(mark),
        "signal": str(int(signal.SIGSTOP)),
        "failFirst": "yes",
        "inlineBytes": "0",
    }
    with driver(tmp_path, {**options, **fault}) as zombie:
        until(lambda: mark.exists() or zombie.poll() is not None, what="the commit stops", within_s=DRIVER_TIMEOUT_S)
        assert zombie.poll() is None
        add_file(tmp_path / "in", 2)
        start_stream(spark, FORMAT, tmp_path, options).awaitTermination()
        os.kill(int(mark.read_text()), signal.SIGCONT)
        until(lambda: (tmp_path / "failure").exists(), what="the first driver fails", within_s=DRIVER_TIMEOUT_S)
        assert "a newer run of query/" in (tmp_path / "failure").read_text()
        assert zombie.wait(DRIVER_TIMEOUT_S) == 0
    assert ids(clickhouse, options) == list(range(3 * ROWS_PER_FILE))


@pytest.mark.long
def test_a_full_refresh_of_a_flow_is_a_new_generation(
    spark: SparkSession, clickhouse: ClickHouseServer, options: dict[str, str], tmp_path: Path
) -> None:
    """As Spark Declarative Pipelines start a flow: by name, with a checkpoint in a folder that is numbered."""
    (tmp_path / "in").mkdir()
    add_file(tmp_path / "in", 0)
    for number, root in ((0, "file:"), (0, "file://"), (1, "file://")):  # Spark spells it in both ways
        rows = spark.readStream.schema("id LONG").json(str(tmp_path / "in"))
        writing = rows.writeStream.format(FORMAT).queryName("copied").options(**options)
        writing = writing.option("checkpointLocation", f"{root}{tmp_path}/_checkpoints/sink/copied/{number}")
        writing.trigger(availableNow=True).start().awaitTermination()
        assert ids(clickhouse, options) == list(range(ROWS_PER_FILE))
    assert query(clickhouse, options, "DISTINCT _generation, startsWith(_scope, 'flow/')") == ["1\t1"]
