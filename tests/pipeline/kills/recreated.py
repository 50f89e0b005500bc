"""A topic that is deleted and created again while pipelines read it: offsets mean other records then.

The one rule: the slots block, and nothing of the new topic is taken for the old, also not for a range or a batch that was begun. A
rewind reads the new one.
"""

from collections.abc import Sequence

from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]
from tests.pipeline.kills.cluster import TOPIC, KillCluster
from tests.pipeline.kills.watched import Watched
from tests.pipeline.kills.writer import Writer, record
from tests.support.waiting import until

BEYOND = 100
"""More records than the old topic had, in every partition: ends are beyond the checkpoints, so offsets alone show nothing."""
OTHER_NUMBERS = 1_000_000


def recreate(cluster: KillCluster, topic: str, partitions: int, old: int) -> Writer:
    """Another topic of the same name, with other records at the same offsets and beyond. `old`: how many records there were."""
    admin = cluster.broker.admin
    admin.delete_topics([topic])[topic].result(30)
    until(lambda: topic not in admin.list_topics(timeout=10).topics, what=f"{topic} is gone")
    admin.create_topics([NewTopic(topic, partitions, 1, config=TOPIC)])[topic].result(30)
    cluster.broker.await_leaders(topic, partitions)
    writer = Writer(cluster.broker.bootstrap, topic, per_s=0, poisoned_share=0, seed=1)
    for partition in range(partitions):
        first = OTHER_NUMBERS * (partition + 1)
        values: list[bytes | None] = [record(number) for number in range(first, first + old + BEYOND)]
        writer.send(values, first=first, partition=partition)
    return writer


def await_blocked(pipelines: Sequence[Watched], topic: str) -> None:
    """Until each is blocked, with the reason."""
    for each in pipelines:
        each.await_blocked(f"topic '{topic}' was deleted and recreated")
