"""Spark's own Kafka connector, for tests and benchmarks that read a topic as everybody else does.

There is none for every release of Spark to be had; what is named here was found to work with the PySpark that we use.
"""

from pathlib import Path
from typing import Final

from tests.support.maven import fetch_jars

ARTIFACTS: Final = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)


def spark_kafka_jars() -> list[Path]:
    """The jars, for `spark.jars`. `UnavailableError` where they are neither kept nor to be had."""
    return fetch_jars("spark-kafka-4.2.0", ARTIFACTS, alone=True)
