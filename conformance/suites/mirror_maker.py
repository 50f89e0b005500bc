"""MirrorMaker 2 as a process of its own (dedicated mode), copying from one Holdfast cluster to another."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from conformance import topics
from conformance.java import KAFKA, LOGGING, classpath, java, properties
from conformance.model import Case, Workplace
from conformance.programs import kill, started
from conformance.scenarios import played

ARTIFACTS: Final = (f"org.apache.kafka:connect-mirror:{KAFKA}", f"org.apache.kafka:connect-runtime:{KAFKA}", LOGGING)
_INTERNAL: Final = (
    "checkpoints.topic",
    "heartbeats.topic",
    "offset-syncs.topic",
    "offset.storage",
    "status.storage",
    "config.storage",
)


class MirrorMaker:
    """The cluster `source` is copied to the cluster `target`, topics and offsets of groups."""

    name = "mirror-maker"
    title = "MirrorMaker 2"
    about = (
        "In dedicated mode between two Holdfast clusters; replication factors of 1 and shorter intervals, "
        "otherwise defaults."
    )
    server_options: Sequence[str] = ()
    lists_cases = True

    def prepare(self, cache: Path) -> str:
        classpath(cache, f"mirror-{KAFKA}", ARTIFACTS)
        return KAFKA

    def run(self, cache: Path, at: Workplace) -> Iterator[Case]:
        jars = classpath(cache, f"mirror-{KAFKA}", ARTIFACTS)
        source, target = at.broker, at.second_broker()
        settings = properties(at.scratch / "mm2.properties", _settings(source.bootstrap, target.bootstrap))
        argv = java(jars, "org.apache.kafka.connect.mirror.MirrorMaker", settings)
        first = [b"%d" % number for number in range(2000)]
        later = [b"later-%d" % number for number in range(500)]
        topics.create_topic(source.bootstrap, "orders", 3, retention_ms="7200000")
        topics.send(source.bootstrap, "orders", first, **{"compression.type": "zstd"})

        def records_are_copied_with_keys_headers_and_partitions() -> None:
            sent = topics.read_until(source.bootstrap, "orders", first)
            copied = topics.read_until(target.bootstrap, "source.orders", first)
            assert {(each.partition, each.key, each.value, each.headers, each.timestamp_ms) for each in copied} == {
                (each.partition, each.key, each.value, each.headers, each.timestamp_ms) for each in sent
            }

        def settings_of_a_topic_are_copied() -> None:
            topics.until(
                lambda: topics.config_of(target.bootstrap, "source.orders")["retention.ms"] == "7200000",
                what="retention.ms is copied", within_s=topics.WAIT_S,
            )  # fmt: skip

        def a_topic_that_is_made_later_is_copied() -> None:
            topics.create_topic(source.bootstrap, "orders-new", 1)
            topics.send(source.bootstrap, "orders-new", later)
            topics.read_until(target.bootstrap, "source.orders-new", later)

        def offsets_of_a_group_are_translated() -> None:
            _commit(source.bootstrap, "billing", "orders", 0)
            topics.until(
                lambda: topics.committed(target.bootstrap, "billing", "source.orders") > 0,
                what="the group has an offset on the other side", within_s=topics.WAIT_S,
            )  # fmt: skip

        def heartbeats_arrive() -> None:
            topics.until(lambda: "source.heartbeats" in topics.names(target.bootstrap), within_s=topics.WAIT_S)

        def records_are_copied_after_the_target_crashed() -> None:
            target.kill()
            topics.send(source.bootstrap, "orders", [b"crash-target-%d" % number for number in range(300)])
            target.start()
            topics.read_until(
                target.bootstrap, "source.orders", [*first, *(b"crash-target-%d" % number for number in range(300))]
            )

        def records_are_copied_after_the_source_crashed() -> None:
            source.kill()
            source.start()
            more = [b"crash-source-%d" % number for number in range(300)]
            topics.send(source.bootstrap, "orders", more)
            topics.read_until(target.bootstrap, "source.orders", more)

        def a_restarted_mirror_goes_on_where_it_was() -> None:
            kill(process)
            more = [b"restart-%d" % number for number in range(300)]
            topics.send(source.bootstrap, "orders", more)
            with started(argv, log=at.log, cwd=at.scratch):
                copied = topics.read_until(target.bootstrap, "source.orders", more)
            assert len(copied) < 2 * len(first), f"{len(copied)} records: it began anew"

        with started(argv, log=at.log, cwd=at.scratch) as process:
            yield from played(
                [
                    records_are_copied_with_keys_headers_and_partitions,
                    settings_of_a_topic_are_copied,
                    a_topic_that_is_made_later_is_copied,
                    offsets_of_a_group_are_translated,
                    heartbeats_arrive,
                    records_are_copied_after_the_target_crashed,
                    records_are_copied_after_the_source_crashed,
                    a_restarted_mirror_goes_on_where_it_was,
                ]
            )


def _settings(source: str, target: str) -> dict[str, object]:
    return {
        "clusters": "source,target",
        "source.bootstrap.servers": source,
        "target.bootstrap.servers": target,
        "source->target.enabled": "true",
        "source->target.topics": "orders.*",
        "source->target.groups": "billing",
        "target->source.enabled": "false",
        "replication.factor": 1,
        **{f"{each}.replication.factor": 1 for each in _INTERNAL},
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": 3,
        "emit.checkpoints.interval.seconds": 3,
        "refresh.topics.interval.seconds": 3,
        "refresh.groups.interval.seconds": 3,
        "sync.topic.configs.interval.seconds": 3,
        "offset.flush.interval.ms": 2000,
        "plugin.discovery": "service_load",  # or it scans all classes, three times, before it starts
    }


def _commit(bootstrap: str, group: str, topic: str, partition: int) -> None:
    """The end of a partition, as if the group had read everything."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        at = TopicPartition(topic, partition)
        _, end = consumer.get_watermark_offsets(at, timeout=topics.WAIT_S)
        consumer.commit(offsets=[TopicPartition(topic, partition, end)], asynchronous=False)
    finally:
        consumer.close()
