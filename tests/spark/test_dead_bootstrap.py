"""A bootstrap address where nobody answers is an error of seconds, in Spark's own message."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.spark.sink.writers import _is_first_batch


@pytest.fixture
def dead() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"127.0.0.1:{listening.getsockname()[1]}"


def read(spark: SparkSession, dead: str, _: Path) -> None:
    spark.read.format("holdfast").options(bootstrap=dead, topics="t").load().collect()


def write(spark: SparkSession, dead: str, _: Path) -> None:
    rows = spark.range(3).selectExpr("cast(id as string) value")
    rows.write.format("holdfast").options(bootstrap=dead, topic="t").mode("append").save()


def read_stream(spark: SparkSession, dead: str, folder: Path) -> None:
    rows = spark.readStream.format("holdfast").options(bootstrap=dead, topics="t").load()
    rows.writeStream.format("noop").option("checkpointLocation", str(folder)).start().awaitTermination()


def write_stream(spark: SparkSession, dead: str, folder: Path) -> None:
    rows = spark.readStream.format("rate").load().selectExpr("cast(value as string) value")
    query = rows.writeStream.format("holdfast").options(bootstrap=dead, topic="t")
    query.option("checkpointLocation", str(folder)).start().awaitTermination()


@pytest.mark.parametrize(
    "job", [read, write_stream, *(pytest.param(each, marks=pytest.mark.long) for each in (write, read_stream))]
)
def test_it_is_named_soon(
    job: Callable[[SparkSession, str, Path], None], spark: SparkSession, dead: str, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match=f"(?s)Kafka at {dead} is unavailable: no broker answered within 3 s"):
        job(spark, dead, tmp_path)


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_query_that_has_finished_a_batch_is_patient(form: str, tmp_path: Path) -> None:
    options = {"checkpointLocation": form.format(tmp_path)}
    assert _is_first_batch(options)
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / ".0.crc").touch()
    assert _is_first_batch(options)
    (tmp_path / "commits" / "0").touch()
    assert not _is_first_batch(options)


def test_a_checkpoint_elsewhere_is_not_looked_at() -> None:
    assert not _is_first_batch({"checkpointLocation": "s3a://bucket/x"})
    assert not _is_first_batch({})
