"""MirrorMaker 2 between two servers, with the replication factors it asks for by itself, which are 3.

Topics arrive with their settings and all their partitions, also those added later.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.cimpl import NewPartitions
from tests.support.apache_kafka import VERSION, java_argv
from tests.support.broker import ADMIN_TIMEOUT_S, Broker, serving
from tests.support.librdkafka_client import read_all, send_values, values
from tests.support.maven import fetch_jars
from tests.support.waiting import until

from holdfast.vocabulary.errors import UnavailableError

ARTIFACTS = (f"org.apache.kafka:connect-mirror:{VERSION}", "org.slf4j:slf4j-simple:1.7.36")


@contextmanager
def mirroring(source: Broker, target: Broker, topic: str, folder: Path) -> Iterator[None]:
    """MirrorMaker copies `topic` for the body, to a topic named `source.{topic}`."""
    properties = {
        "clusters": "source,target",
        "source.bootstrap.servers": source.bootstrap,
        "target.bootstrap.servers": target.bootstrap,
        "source->target.enabled": "true",
        "source->target.topics": topic,
        "target->source.enabled": "false",
        "refresh.topics.interval.seconds": "1",
        "sync.topic.configs.interval.seconds": "1",
    }
    settings = folder / "mm2.properties"
    settings.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    argv = java_argv("org.apache.kafka.connect.mirror.MirrorMaker", str(settings), log_level="warn")
    argv[argv.index("-cp") + 1] = ":".join(map(str, fetch_jars(f"kafka-mirror-{VERSION}", ARTIFACTS)))
    with (folder / "mm2.log").open("w") as log, subprocess.Popen(argv, stdout=log, stderr=log) as process:
        try:
            yield
        finally:
            process.kill()


def partitions(broker: Broker, topic: str) -> int:
    found = broker.admin.list_topics(timeout=10).topics.get(topic)
    return 0 if found is None else len(found.partitions)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_topic_is_mirrored_with_its_settings_and_grows_with_its_source(tmp_path: Path) -> None:
    capped = ("--set", "kafka.replication_factor=auto")
    with serving(tmp_path / "source", *capped) as source, serving(tmp_path / "target", *capped) as target:
        check_mirroring(source, target, tmp_path)


def check_mirroring(broker: Broker, own_broker: Broker, folder: Path) -> None:
    topic = broker.create_topic("mirrored", 3, {"compression.type": "zstd"})
    copy = f"source.{topic}"
    send_values(broker, topic, [b"a", b"b"], partition=2)
    try:
        with mirroring(broker, own_broker, topic, folder):
            until(lambda: partitions(own_broker, copy) == 3, what="it is mirrored with its partitions")
            assert values(read_all(own_broker, copy, (2,))) == [b"a", b"b"]
            broker.admin.create_partitions([NewPartitions(topic, 5)])[topic].result(ADMIN_TIMEOUT_S)
            send_values(broker, topic, [b"c"], partition=4)
            until(lambda: partitions(own_broker, copy) == 5, what="it has grown")
            until(lambda: values(read_all(own_broker, copy, (4,))) == [b"c"], what="what is new is mirrored")
    except UnavailableError as missing:
        pytest.skip(str(missing))
