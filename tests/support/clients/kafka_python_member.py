"""A member of a consumer group that runs kafka-python: `python kafka_python_member.py SETTINGS`, the settings as JSON.

Its output is that of `group_members`; `assigned` also names the generation. Rebalances happen inside of `poll`, so nothing
comes between reading and committing.
"""

import json
import signal
import sys
from collections.abc import Collection
from typing import Any

from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError
from tests.support.clients.events import say

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition

# A generation that was joined between two polls is thrown away, and the member joins once more (FINDINGS.md): so the first
# join, the one that matters to a static member that returns, is one poll.
JOIN_MS, POLL_MS = 20_000, 50

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        say("revoked", partitions=sorted(each.partition for each in revoked))

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        generation = self._consumer.group_metadata().generation_id
        say("assigned", partitions=sorted(each.partition for each in assigned), generation=generation)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        say("revoked", partitions=sorted(each.partition for each in lost))


def work(consumer: KafkaConsumer, settings: dict[str, Any], turn: int) -> int:
    """Read some and commit them; returns how often there was something to commit."""
    polled = consumer.poll(timeout_ms=POLL_MS if consumer.assignment() else JOIN_MS, max_records=20)
    records = [record for partition in polled.values() for record in partition]
    if not records:
        return turn
    say("committing", values=[record.value.decode() for record in records])
    if turn + 1 == settings.get("hold_at"):
        say("holding")
        sys.stdin.readline()
    offsets = {place: OffsetAndMetadata(some[-1].offset + 1, "", -1) for place, some in polled.items() if some}
    try:
        consumer.commit(offsets)
    except KafkaError as refusal:
        say("refused", error=type(refusal).__name__)
    else:
        say("committed")
    return turn + 1


def main(settings: dict[str, Any]) -> None:
    leaving: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: leaving.append(number))
    consumer = KafkaConsumer(
        bootstrap_servers=settings["bootstrap"],
        group_id=settings["group"],
        group_instance_id=settings.get("instance"),
        session_timeout_ms=settings["session_ms"],
        heartbeat_interval_ms=300,
        max_poll_interval_ms=60_000,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[ASSIGNORS[settings.get("assignor", "range")]],
        request_timeout_ms=10_000,
        metadata_max_age_ms=1_000,
    )
    consumer.subscribe([settings["topic"]], listener=Listener(consumer))
    turn = 0
    try:
        while not leaving:
            turn = work(consumer, settings, turn)
    finally:
        consumer.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
