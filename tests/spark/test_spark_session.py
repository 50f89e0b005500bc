"""The shared session is set as documented, runs Python of holdfast, and leaves nothing in the current folder."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from holdfast.spark.settings import SparkSettings
from holdfast.spark.spark_session import session
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.hashing import murmur2


def hashed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        values = [murmur2(str(value).encode()) for value in batch.column(0).to_pylist()]
        yield pa.record_batch({"hash": pa.array(values, pa.int64())})


def test_python_of_holdfast_runs_in_the_workers(spark: SparkSession) -> None:
    rows = spark.range(100).mapInArrow(hashed, "hash long").collect()
    assert sorted(row.hash for row in rows) == sorted(murmur2(str(number).encode()) for number in range(100))


def test_the_settings_are_the_documented_ones(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert conf.get("spark.python.unix.domain.socket.enabled") == "true"
    assert conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None


def test_nothing_is_left_in_the_current_folder(spark: SparkSession) -> None:
    spark.sql("CREATE TABLE kept (id INT) USING parquet")
    spark.sql("DROP TABLE kept")
    left = {entry.name for entry in Path.cwd().iterdir()}
    assert not left & {"spark-warehouse", "metastore_db", "derby.log", "artifacts"}


def test_a_session_of_another_engine_is_refused_while_one_runs(spark: SparkSession) -> None:
    with pytest.raises(InvalidError, match=r"already runs a session on"):
        session(SparkSettings(master="spark://127.0.0.1:7077"))
    with pytest.raises(InvalidError, match=r"already runs a session on"):
        session(SparkSettings(remote="sc://127.0.0.1:15002"))


def test_a_second_call_returns_the_running_session(spark: SparkSession) -> None:
    assert session(SparkSettings(master="local[2]")) is spark
