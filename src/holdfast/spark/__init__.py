"""Holdfast on Spark: a session that runs anywhere, topics as a source and a sink of DataFrames.

    spark = holdfast.spark.session()
    spark.read.format("holdfast").option("bootstrap", "127.0.0.1:9092").option("topics", "orders").load()

Importing this package imports neither PySpark nor PyArrow; `session` does, and says what to install if they are missing. A plain
local SparkSession that starts after it runs its workers with this Python (`_holdfast_pyspark`).
"""

from typing import TYPE_CHECKING

from _holdfast_pyspark import install as _install_worker_python

if TYPE_CHECKING:
    from holdfast.spark.settings import SparkSettings
    from holdfast.spark.sink.foreach_batch import publish_batches
    from holdfast.spark.source.read_metrics import ReadMetrics
    from holdfast.spark.spark_session import session

__all__ = ["ReadMetrics", "SparkSettings", "publish_batches", "session"]

_MODULES = {
    "ReadMetrics": "holdfast.spark.source.read_metrics",
    "SparkSettings": "holdfast.spark.settings",
    "publish_batches": "holdfast.spark.sink.foreach_batch",
    "session": "holdfast.spark.spark_session",
}

_install_worker_python()  # a wheel has done so; a source tree or an editable install has not


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted((*globals(), *__all__))
