"""Spark on topics, measured against what else Spark can read, on one warmed session, in one run. See docs/spark.md.

data.py       a topic of so many records, and the same as Parquet
reading.py    batch reads: ours, Parquet, Spark's Kafka connector
streams.py    streams into nothing, and how long one row takes
sinks.py      a topic into ClickHouse
bare.py       the insert it is measured against
"""
