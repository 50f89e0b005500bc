"""Orders from a topic into ClickHouse, and the large ones into another topic. Each row is written once, however often it runs.

holdfast serve --data ./data
holdfast topic create orders large-orders --partitions 2
export CLICKHOUSE_PASSWORD="$(cat data/clickhouse/password)"
spark-pipelines run
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()

BOOTSTRAP = os.environ.get("HOLDFAST_BOOTSTRAP", "127.0.0.1:9092")
ORDERS = os.environ.get("ORDERS_TOPIC", "orders")
LARGE_ORDERS = os.environ.get("LARGE_ORDERS_TOPIC", "large-orders")
SCHEMA = "id LONG, customer STRING, amount DOUBLE"


@dp.temporary_view
def orders() -> DataFrame:
    """A view, not a table: tables do not outlive a run in Spark's own in-memory catalog."""
    source = spark.readStream.format("holdfast").option("bootstrap", BOOTSTRAP).option("topics", ORDERS)
    records = source.option("startingOffsets", "earliest").load()
    return records.selectExpr(f"from_json(CAST(value AS STRING), '{SCHEMA}') AS o").select("o.*")


dp.create_sink(
    "orders_table",
    "holdfast.clickhouse",
    {
        "url": os.environ.get("CLICKHOUSE_URL", "http://127.0.0.1:8123"),
        "user": os.environ.get("CLICKHOUSE_USER", "default"),
        "password": os.environ.get("CLICKHOUSE_PASSWORD", ""),
        "table": "orders",
        "orderBy": "id",
    },
)

dp.create_sink("large_orders", "holdfast", {"bootstrap": BOOTSTRAP, "topic": LARGE_ORDERS})


@dp.append_flow(target="orders_table")
def all_orders() -> DataFrame:
    """Every order, as a row."""
    return spark.readStream.table("orders")


@dp.append_flow(target="large_orders")
def only_large_orders() -> DataFrame:
    """Orders from 100 on, as records by customer."""
    return spark.readStream.table("orders").where("amount >= 100").selectExpr("customer AS key", "struct(*) AS value")
