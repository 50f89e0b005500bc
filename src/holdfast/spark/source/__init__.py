"""The source `format("holdfast")`: topics as batch and streaming DataFrames.

options.py     what may be asked for, checked
positions.py   how far a stream has come, with the ids of its topics
filters.py     which filters become bounds, and which are left to Spark
planning.py    topics, ranges, limits: from options and bounds to what is to be read
tasks.py       ranges to tasks, and a task's work on an executor
batch.py streaming.py   the two readers
figures.py     what executors read, counted on the driver
"""
