"""The data source `format("holdfast")`, where Spark discovers it: no registration is needed.

Spark imports every package whose name begins with `pyspark_` when it first resolves a Python data source. Nothing else is here.
"""

from pyspark_holdfast.datasource import DefaultSource

__all__ = ["DefaultSource"]
