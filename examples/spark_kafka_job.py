"""A job written for Spark's Kafka connector, on Holdfast: one word differs.

    holdfast serve --data ./data
    python examples/spark_kafka_job.py 127.0.0.1:9092 /tmp/checkpoint

It reads orders as JSON, keeps the paid ones, and writes them to another topic under the customer's key. Everything but FORMAT is
what the connector's own documentation shows: the names of options and columns, JSON offsets, the limit per trigger.
"""

import sys

from pyspark.sql import DataFrame, SparkSession

FORMAT = "holdfast"  # was "kafka"

ORDERS, PAID = "orders", "paid-orders"
SCHEMA = "id LONG, customer STRING, status STRING, amount DOUBLE"


def paid_orders(spark: SparkSession, bootstrap: str, source: str = ORDERS, format: str = FORMAT) -> DataFrame:  # noqa: A002
    """The paid orders, as records."""
    records = (
        spark.readStream.format(format)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", f'{{"{source}": {{"0": -2, "1": -2}}}}')
        .option("maxOffsetsPerTrigger", 1_000)
        .option("kafka.group.id", "paid-orders")
        .option("failOnDataLoss", "true")
        .load()
    )
    orders = records.selectExpr(
        f"from_json(CAST(value AS STRING), '{SCHEMA}') AS order", "topic", "partition", "offset"
    )
    return orders.where("order.status = 'paid'").selectExpr("order.customer AS key", "to_json(order) AS value")


def write(rows: DataFrame, bootstrap: str, checkpoint: str, target: str = PAID, format: str = FORMAT) -> None:  # noqa: A002
    """Write what there is, and stop."""
    query = (
        rows.writeStream.format(format)
        .queryName("paid-orders")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("kafka.compression.type", "lz4")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main() -> None:
    """Run it once."""
    bootstrap, checkpoint = sys.argv[1:]
    spark = SparkSession.builder.appName("paid-orders").getOrCreate()
    write(paid_orders(spark, bootstrap), bootstrap, checkpoint)
    spark.stop()


if __name__ == "__main__":
    main()
