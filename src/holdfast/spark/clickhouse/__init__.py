"""`format("holdfast.clickhouse")`: rows of DataFrames become rows of ClickHouse, exactly once; tables become DataFrames.

    options.py        the options, parsed and checked
    scopes.py         whose rows they are: query, generation, batch
    runs.py           which run of a query may write; pure
    batches.py        what is recorded of a batch, and what a commit does about it; pure
    statements.py     the SQL, and the sink's own tables
    spark_types.py    types of Spark and of ClickHouse
    target.py         the table: created or checked
    stager.py         a task's part: rows in, staged pieces out
    ownership.py      the fence, and how a scope is taken over
    inserts.py        staged rows into the table
    committer.py      the driver's part
    writers.py        the writers that Spark calls
    reader.py         a table as a DataFrame
    foreach_batch.py  `upsert`, for update mode

The one rule: tasks only stage. The driver records a batch with the hash of its rows before the first one is visible, and every
insert carries the fence of its run and a token of its own.
"""

from holdfast.spark.clickhouse.foreach_batch import VERSION_COLUMN, upsert

__all__ = ["VERSION_COLUMN", "upsert"]
