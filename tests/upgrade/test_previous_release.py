"""A release opens what the last one wrote.

`0.1.0.tar.gz` is a data folder as `holdfast serve` of that release left it when it was killed (SIGKILL): a SQLite store, published
segments, a WAL with an unpublished tail, a committed group, and a pipeline that had written 40 of 50 records to another topic.
A release that changes a format adds its own fixture and a migration; the fixtures before it stay.
"""

import json
import tarfile
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from tests.support.server_process import ServeProcess, read, started
from tests.support.waiting import until

FIXTURES = sorted(Path(__file__).parent.glob("*.tar.gz"))


def unpacked(fixture: Path, directory: Path, *options: str) -> ServeProcess:
    """A server on a copy of what an older release left behind."""
    directory.mkdir()
    with tarfile.open(fixture) as archive:
        archive.extractall(directory, filter="data")
    return ServeProcess(directory, "--clickhouse", "off", *options)


def messages(bootstrap: str, topic: str, partition: int, count: int) -> list[Message]:
    """The first `count` records of a partition, with keys, headers and timestamps."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        found = consumer.consume(count, timeout=60)
        assert len(found) == count
        return found
    finally:
        consumer.close()


def pipeline(server: ServeProcess) -> dict[str, Any]:
    """The status of the fixture's pipeline."""
    with urllib.request.urlopen(f"{server.http}/api/status", timeout=60) as answer:
        [found] = json.load(answer)
    assert isinstance(found, dict)
    return found


def checkpoint(server: ServeProcess) -> int:
    """How many records the pipeline has finished, over both partitions."""
    return sum(each["checkpoint"] for each in pipeline(server)["partitions"])


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def test_topics_offsets_and_pipelines_of_the_last_release_are_there(fixture: Path, tmp_path: Path) -> None:
    server = unpacked(fixture, tmp_path / "node", "--roles", "api,agent")
    with started(server):
        for partition in (0, 1):
            expected = [n for n in range(1, 51) if n % 2 == partition]
            found = messages(server.kafka, "orders", partition, 25)
            assert [json.loads(each.value() or b"")["id"] for each in found] == expected
            assert [each.key() for each in found] == [f"k{n % 4}".encode() for n in expected]
            assert [each.headers() for each in found] == [[("n", str(n).encode())] for n in expected]
            assert [each.timestamp()[1] for each in found] == [1_700_000_000_000 + n for n in expected]
        assert read(server.kafka, "profiles", 7) == [f"v{n}" for n in range(1, 8)]
        assert read(server.kafka, "ledger", 3) == ["l1", "l2", "l3"]
        group = Consumer({"bootstrap.servers": server.kafka, "group.id": "billing"})
        committed = group.committed([TopicPartition("orders", 0), TopicPartition("orders", 1)], timeout=30)
        group.close()
        assert [each.offset for each in committed] == [5, 20]
        status = pipeline(server)
        assert (status["name"], status["desired"], status["recipe"]) == ("orders-copy", "started", 1)
        assert checkpoint(server) == 40
        # and it goes on from there: what is written now follows what was written then
        assert server.terminate() == 0
    with started(server):
        assert len(messages(server.kafka, "orders", 0, 25)) == 25


def keep_records(server: ServeProcess) -> None:
    """They are of 2023: retention would delete them in its first round, if Spark takes longer to start than that."""
    keep = ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ResourceType.TOPIC, "orders", incremental_configs=[keep])
    admin = AdminClient({"bootstrap.servers": server.kafka})
    admin.incremental_alter_configs([topic])[topic].result(30)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def test_a_pipeline_of_the_last_release_continues_where_it_was(fixture: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    server = unpacked(fixture, tmp_path / "node")
    with started(server):
        keep_records(server)
        until(lambda: checkpoint(server) == 50, what="both partitions are finished", within_s=200)
        copied = [json.loads(each)["id"] for each in read(server.kafka, "orders-copy", 50)]
        assert sorted(copied) == list(range(1, 51))  # each once
        # Its topic grows, and it reads the new partition from its beginning.
        admin = AdminClient({"bootstrap.servers": server.kafka})
        admin.create_partitions([NewPartitions("orders", 3)])["orders"].result(30)
        producer = Producer({"bootstrap.servers": server.kafka})
        for number in range(51, 61):
            producer.produce("orders", json.dumps({"id": number, "name": f"n{number}"}), partition=2)
        assert producer.flush(30) == 0
        until(lambda: checkpoint(server) == 60, what="the new partition is finished", within_s=100)
        assert [each["partition"] for each in pipeline(server)["partitions"]] == [0, 1, 2]
