"""When committed offsets expire. Pure: the shard deletes them.

the topic was deleted (or created again)     at once
a group without members                      `retention_ms` after its last member left
a group that never had members               `retention_ms` after the partition's last commit
a group with members                         topics without a subscription, `retention_ms` after the last commit

Subscriptions are read by `subscriptions`, for they may be large, and most sweeps need none of them.
"""

from collections.abc import Callable, Mapping

from holdfast.groups.group import Group
from holdfast.groups.model import CommittedOffset, GroupState
from holdfast.vocabulary.types import TopicPartition

TopicIdLookup = Callable[[str], str | None]  # the id of a topic; None: unknown to this process


def belongs_to_topic(offset: CommittedOffset, topic_id: str | None) -> bool:
    """Whether an offset belongs to the topic with this id; assumed so if either id is unknown."""
    return topic_id is None or not offset.topic_id or offset.topic_id == topic_id


def expired_offsets(
    group: Group,
    offsets: Mapping[TopicPartition, CommittedOffset],
    now_ms: int,
    *,
    retention_ms: int,
    topic_id: TopicIdLookup,
) -> tuple[list[TopicPartition], list[TopicPartition]]:
    """The partitions whose offsets have expired, and those whose have unless a member is subscribed to their topic.

    `now_ms` is wall time, as commit times are.
    """
    ids = {topic: topic_id(topic) for topic in {partition.topic for partition in offsets}}
    found: list[TopicPartition] = []
    unless_subscribed: list[TopicPartition] = []
    for partition, offset in offsets.items():
        known = ids[partition.topic]
        # An offset without a topic id was committed before this process knew the new topic: it may still not.
        if (known is None and offset.topic_id) or not belongs_to_topic(offset, known):
            found.append(partition)
            continue
        since_ms = offset.committed_at_ms
        if group.state is GroupState.EMPTY:
            since_ms = max(since_ms, group.empty_since_ms or 0)
        if now_ms - since_ms >= retention_ms:
            (found if group.state is GroupState.EMPTY else unless_subscribed).append(partition)
    return found, unless_subscribed
