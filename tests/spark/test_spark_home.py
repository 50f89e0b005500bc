"""The SPARK_HOME without a zipped PySpark: links to the distribution, made once, never in the way of the operator's own."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from holdfast.spark.spark_home import unzipped_spark_home


def test_it_links_to_the_distribution_and_has_no_zip(tmp_path: Path) -> None:
    home = unzipped_spark_home({"XDG_CACHE_HOME": str(tmp_path)})
    assert home is not None
    assert (home / "bin" / "spark-submit").is_file()
    assert not (home / "python").exists()
    assert unzipped_spark_home({"XDG_CACHE_HOME": str(tmp_path)}) == home


def test_a_home_of_the_operators_is_left_alone(tmp_path: Path) -> None:
    assert unzipped_spark_home({"XDG_CACHE_HOME": str(tmp_path), "SPARK_HOME": "/opt/spark"}) is None


def test_a_damaged_one_is_replaced(tmp_path: Path) -> None:
    home = unzipped_spark_home({"XDG_CACHE_HOME": str(tmp_path)})
    assert home is not None
    (home / "jars").unlink()
    assert unzipped_spark_home({"XDG_CACHE_HOME": str(tmp_path)}) == home
    assert (home / "jars").is_dir()


def test_a_read_only_folder_falls_back_to_sparks_own_home(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "cache").write_text("a file")
    assert unzipped_spark_home({"XDG_CACHE_HOME": str(tmp_path / "cache")}) is None
    assert any("cannot write" in each for each in caplog.messages)


def made(folder: str) -> str:
    home = unzipped_spark_home({"XDG_CACHE_HOME": folder})
    assert home is not None
    return str((home / "jars").resolve())


def test_processes_that_create_it_concurrently_all_find_a_complete_one(tmp_path: Path) -> None:
    # Not forked: a thread of this process may have a lock that its copy would wait for, for ever.
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = list(pool.map(made, [str(tmp_path)] * 24))
    assert found == [str(Path(pyspark.__file__).resolve().parent / "jars")] * 24
    assert len(list((tmp_path / "holdfast" / "spark").iterdir())) == 1


@pytest.mark.long
def test_workers_import_the_installed_pyspark(spark: SparkSession) -> None:
    (found,) = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("pyspark").__file__).collect()
    assert found == pyspark.__file__
