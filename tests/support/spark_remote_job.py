"""A driver whose engine is elsewhere: `python -m tests.support.spark_remote_job '{"master": …, "bootstrap": …, "topic": …}'`.

It does real work there, with Python of holdfast: rows through `mapInArrow`, into a topic, and back out of it. It prints its finds.
"""

import json
import sys
from collections.abc import Iterator

import pyarrow as pa

from holdfast.spark.settings import SparkSettings
from holdfast.spark.spark_session import session

ROWS = 20_000


def hashed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Where Kafka puts each row, and which process says so."""
    import os

    from holdfast.spark.sink.partitioner import murmur2_column

    for batch in batches:
        keys = batch.column(0).cast(pa.string()).cast(pa.binary())
        hashes = pa.array(murmur2_column(keys).tolist(), pa.int64())
        process = pa.array([os.getppid()] * batch.num_rows, pa.int64())
        yield pa.record_batch({"id": batch.column(0), "hash": hashes, "process": process})


def main() -> None:
    job = json.loads(sys.argv[1])
    settings = SparkSettings(master=job.get("master", "local[2]"), remote=job.get("remote", ""))
    spark = session(settings, app_name="elsewhere")
    rows = spark.range(0, ROWS, 1, 4).mapInArrow(hashed, "id long, hash long, process long")
    cluster_address = {"bootstrap": job["bootstrap"]}
    records = rows.selectExpr("cast(id as string) key", "struct(id, hash, process) value")
    records.write.format("holdfast").options(**cluster_address, topic=job["topic"]).mode("append").save()
    back = spark.read.format("holdfast").options(**cluster_address, topics=job["topic"]).load()
    values = back.selectExpr("from_json(cast(value as string), 'id long, hash long, process long') v", "partition")
    found = values.selectExpr("v.id", "v.hash", "v.process", "partition").toArrow()
    answer = {
        "zone": spark.conf.get("spark.sql.session.timeZone"),
        "ids": sorted(found["id"].to_pylist()) == list(range(ROWS)),
        "hashes": {str(row): found["hash"][at].as_py() for at, row in enumerate(found["id"].to_pylist()[:5])},
        "partitions": sorted(set(found["partition"].to_pylist())),
        "processes": len(set(found["process"].to_pylist())),
        "remote": type(spark).__module__,
    }
    print("ANSWER " + json.dumps(answer))
    spark.stop()


if __name__ == "__main__":
    main()
