"""The data source `format("holdfast.clickhouse")`, where Spark discovers it: no registration is needed.

Spark takes one source of each package whose name begins with `pyspark_`, so this is a package beside `pyspark_holdfast`.
"""

from pyspark_holdfast_clickhouse.datasource import DefaultSource

__all__ = ["DefaultSource"]
