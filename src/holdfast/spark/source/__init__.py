"""The source `format("holdfast")`: topics as batch and streaming DataFrames.

    options.py       the options, parsed and checked
    positions.py     a stream's position, with the ids of its topics
    filters.py       which filters are pushed down, and which are left to Spark
    plan.py          from options and pushed filters to the ranges to read
    tasks.py         ranges grouped into tasks, and a task's work on an executor
    batch.py         the batch reader
    stream.py        the streaming reader
    read_metrics.py  what executors read, counted in a file

The one rule: a range is read exactly, or the query fails (`failOnDataLoss=false`: it logs a warning).
"""
