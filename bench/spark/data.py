"""The data: a topic of events of 100 bytes on a server of its own, all of it published; the same rows as Parquet."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from bench.kafka.targets import HoldfastServer
from holdfast.client.cluster_address import ClusterAddress
from holdfast.spark.clusters import discover_urls
from holdfast.spark.ranges import Planner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUE_BYTES: Final = 100
PARTITIONS: Final = 4
_CHUNK: Final = 20_000
_PUBLISHED_WITHIN_S: Final = 180
_SENDING: Final = {
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "batch.num.messages": 10_000,
    "queue.buffering.max.messages": 1_000_000,
    "enable.idempotence": True,
    "log_level": 0,
}


@dataclass(frozen=True)
class Data:
    """A topic, how it is reached, and where it stands as Parquet."""

    bootstrap: str
    cluster_address: ClusterAddress
    topic: str
    records: int
    parquet: Path

    @property
    def options(self) -> dict[str, str]:
        """For `format("holdfast")`."""
        return {"bootstrap": self.bootstrap, "topics": self.topic}


class _Server(HoldfastServer):
    """One that runs no pipelines: they are what is measured."""

    def argv(self) -> list[str]:
        return [*super().argv(), "--roles", "api,agent"]


@contextmanager
def served(directory: Path) -> Iterator[str]:
    """A server's address, for the body."""
    with _Server(directory).running() as server:
        yield server.bootstrap


def filled(bootstrap: str, records: int, directory: Path) -> Data:
    """A new topic with so many records, all of them in object storage."""
    topic = create(bootstrap, "bench", PARTITIONS)
    send(bootstrap, topic, records)
    _roll_now(bootstrap, topic)
    cluster_address = discover_urls(ClusterAddress(bootstrap=bootstrap))
    _await_published(cluster_address, topic)
    return Data(bootstrap, cluster_address, topic, records, directory / "parquet")


def create(bootstrap: str, topic: str, partitions: int, **config: str) -> str:
    """A new topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    properties = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=properties)])[topic].result(30)
    return topic


def send(bootstrap: str, topic: str, records: int) -> None:
    """Events that look like JSON, with numbers that differ."""
    rng, sent = random.Random(3), 0
    producer = Producer({"bootstrap.servers": bootstrap, **_SENDING})
    while sent < records:
        count = min(_CHUNK, records - sent)
        chunk = [{"value": _event(rng, sent + at)} for at in range(count)]
        while chunk:
            taken = producer.produce_batch(topic, chunk, partition=sent // _CHUNK % PARTITIONS)
            chunk = chunk[taken:]
            producer.poll(0.05 if chunk else 0)
        sent += count
    if producer.flush(120):
        raise RuntimeError("the records were not all acknowledged")


def _event(rng: random.Random, number: int) -> bytes:
    text = b'{"id":%d,"user":%d,"amount":%d,"page":"/p/%d","token":"' % (
        number,
        rng.randrange(1_000_000),
        rng.randrange(100_000),
        rng.randrange(1_000),
    )
    return text + b"%0*x" % (VALUE_BYTES - 2 - len(text), rng.getrandbits(64)) + b'"}'


def _roll_now(bootstrap: str, topic: str) -> None:
    """Publish what is left, which would otherwise wait for a minute."""
    entry = ConfigEntry("segment.ms", "1000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.incremental_alter_configs([resource])[resource].result(30)


def _await_published(cluster_address: ClusterAddress, topic: str) -> None:
    planner, published = (
        Planner(cluster_address),
        Planner(ClusterAddress(store=cluster_address.store, objects=cluster_address.objects)),
    )
    deadline = time.monotonic() + _PUBLISHED_WITHIN_S
    while planner.topic_offsets(topic).ends != published.topic_offsets(topic).ends:
        if time.monotonic() > deadline:
            raise RuntimeError("not everything was published in time")
        time.sleep(0.2)


def write_parquet(spark: "SparkSession", data: Data) -> None:
    """The same rows and columns, as Spark writes them."""
    frame = spark.read.format("holdfast").options(**data.options).load()
    frame.write.mode("overwrite").parquet(str(data.parquet))
