"""`python -m bench.spark`: topics read by Spark, against Parquet, Spark's Kafka connector and the JVM's rate source."""

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from tests.support.spark_kafka import spark_kafka_jars

from bench.figures import Figure, table
from bench.kafka.results import BenchResults
from bench.spark import batch_reads, sinks, streams, topic_sink
from bench.spark.data import filled, served, write_parquet
from holdfast.spark.settings import SparkSettings
from holdfast.spark.spark_session import session
from holdfast.vocabulary.errors import UnavailableError

PARTS = ("batch", "stream", "latency", "clickhouse", "topic")


def run(parts: list[str], records: int, rounds: int, directory: Path | None) -> tuple[list[Figure], BenchResults]:
    """One server, one session, everything in turn."""
    console, found, figures = Console(stderr=True, log_path=False), BenchResults(), list[Figure]()
    try:
        jars = ",".join(map(str, spark_kafka_jars()))
    except UnavailableError as error:
        jars, found.missing["kafka connector"] = "", str(error)
        console.log(f"Spark's Kafka connector is not measured: {error}")
    root = Path(__file__).parents[2]
    conf = {"spark.executorEnv.PYTHONPATH": f"{root / 'src'}:{root}"}  # functions of this folder travel by name
    if jars:
        conf["spark.jars"] = jars
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=directory) as made:
        folder = Path(made)
        with served(folder / "server") as bootstrap:
            console.log(f"{records:,} records are sent and published")
            data = filled(bootstrap, records, folder)
            spark = session(SparkSettings(driver_memory="3g", conf=conf), app_name="bench")
            try:
                if "batch" in parts:
                    write_parquet(spark, data)
                    console.log("batch reads")
                    figures += batch_reads.measure(spark, data, rounds, found, connector=bool(jars))
                if "stream" in parts:
                    console.log("streams")
                    figures += streams.throughput(spark, data, rounds, found)
                if "latency" in parts:
                    console.log("one row at a time")
                    figures += streams.latency(spark, data, found, connector=bool(jars))
                if "clickhouse" in parts:
                    console.log("into ClickHouse")
                    figures += sinks.measure(spark, data, rounds, found, folder)
                if "topic" in parts:
                    console.log("into a topic")
                    figures += topic_sink.measure(spark, data, rounds, found)
            finally:
                spark.stop()
    return figures, found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000, help="rows of the topic (10,000,000)")
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is read (3)")
    parser.add_argument("--only", nargs="+", default=[], choices=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--dir", type=Path, help="a directory on the disk to use, with 10 GiB to spare")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    figures, found = run(args.only or list(PARTS), args.records, args.rounds, args.dir)
    if args.json:
        values = {" / ".join(key): sorted(by_round.values()) for key, by_round in found.values.items()}
        print(json.dumps({"figures": [asdict(each) for each in figures], "values": values, "missing": found.missing}))
    else:
        title = f"{args.records:,} records of 100 bytes, {os.cpu_count()} cores, medians of {args.rounds} rounds"
        Console().print(table(figures, title))
    return 1 if any(each.met is False for each in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
