"""What Spark finds by itself: `format("holdfast")`, for reading and writing, without registering anything.

Spark imports every package whose name begins with `pyspark_` when it first looks for a Python data source. Nothing else is here.
"""

from pyspark_holdfast.datasource import DefaultSource

__all__ = ["DefaultSource"]
