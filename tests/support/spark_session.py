"""The one Spark session of a test process. `tests/conftest.py` makes it a fixture of every folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.spark.settings import SparkSettings
from holdfast.spark.spark_session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
SETTINGS = SparkSettings(
    master="local[2]",
    quick_start=True,
    conf={
        # Functions of test modules travel by name: the workers import them.
        "spark.executorEnv.PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stopTimeout": "30s",
    },
)


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """A session of two threads for the whole run. Leave its settings as they were."""
    pytest.importorskip("pyspark")
    running = session(SETTINGS, app_name="holdfast-tests")
    yield running
    running.stop()
