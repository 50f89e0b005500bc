"""The committed offsets of one shard: commit, fetch, delete, expire.

The one rule: an offset belongs to a topic's id, not to its name. Whether a member may commit is decided by its group.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from holdfast.groups.committed_state import CommittedState
from holdfast.groups.errors import GroupRefusal, GroupRefusedError
from holdfast.groups.group import Group
from holdfast.groups.model import CommittedOffset, GroupState
from holdfast.groups.offset_expiration import TopicIdLookup, belongs_to_topic, expired_offsets
from holdfast.groups.settings import GroupCounters, GroupSettings
from holdfast.groups.subscriptions import Subscriptions
from holdfast.groups.writer import ShardWriter
from holdfast.kafka.special_offsets import EARLIEST, LATEST
from holdfast.log.topics import PARTITIONS_MAX, check_name
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError, InvalidError, UnavailableError
from holdfast.vocabulary.settings import check_between
from holdfast.vocabulary.types import TopicPartition

OffsetResults = Mapping[TopicPartition, HoldfastError | None]  # None: done


class ShardOffsets:
    """Offsets of one shard's groups."""

    def __init__(
        self,
        committed: CommittedState,
        writer: ShardWriter,
        *,
        clock: Clock,
        settings: GroupSettings,
        counters: GroupCounters,
        topic_id: TopicIdLookup,
    ) -> None:
        self._committed, self._writer, self._clock = committed, writer, clock
        self._settings, self._counters, self._topic_id = settings, counters, topic_id
        self._subscriptions = Subscriptions()

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> OffsetResults:
        """Write the valid offsets; returns once they are durable."""
        now_ms = self._clock.now_ms()
        results: dict[TopicPartition, HoldfastError | None] = {}
        valid = {}
        topic_ids: dict[str, str] = {}
        for partition, offset in offsets.items():
            try:
                if partition.topic not in topic_ids:
                    check_name(partition.topic)
                    topic_ids[partition.topic] = self._topic_id(partition.topic) or ""
                self._check(group_id, partition, offset)
                if offset.topic_id not in ("", topic_ids[partition.topic]):
                    raise _topic_changed(partition.topic)
            except HoldfastError as error:
                results[partition] = error
                continue
            valid[partition] = replace(offset, committed_at_ms=now_ms, topic_id=topic_ids[partition.topic])
        results.update(await self._writer.commit(group_id, valid))
        for partition, offset in valid.items():
            if results[partition] is None and self._topic_id(partition.topic) != offset.topic_id:
                # This process was told too late: an offset of the deleted topic means nothing, and is about to be removed.
                results[partition] = _topic_changed(partition.topic) if offset.topic_id else None
        self._counters.offset_commits += 1
        self._counters.offsets_committed += sum(error is None for error in results.values())
        return results

    def fetch(
        self, group_id: str, partitions: Collection[TopicPartition] | None
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """The committed offsets of these partitions, or of all."""
        committed = self._committed.offsets(group_id)
        wanted = committed if partitions is None else partitions
        found = {partition: committed[partition] for partition in wanted if partition in committed}
        ids = {topic: self._topic_id(topic) for topic in {partition.topic for partition in found}}
        return {
            partition: offset for partition, offset in found.items() if belongs_to_topic(offset, ids[partition.topic])
        }

    async def delete(self, group: Group, partitions: Collection[TopicPartition]) -> OffsetResults:
        """Delete offsets, except those of topics the group's members are subscribed to."""
        protected: frozenset[str] | None = frozenset()
        if group.members:
            protected = await self._subscriptions.among(group, frozenset(each.topic for each in partitions))
        if protected is None:
            raise GroupRefusedError(group.id, GroupRefusal.NOT_EMPTY)
        results: dict[TopicPartition, HoldfastError | None] = {
            each: GroupRefusedError(group.id, GroupRefusal.SUBSCRIBED) if each.topic in protected else None
            for each in partitions
        }
        committed = self._committed.offsets(group.id)
        deleted = dict.fromkeys(each for each, error in results.items() if error is None and each in committed)
        results.update(await self._writer.commit(group.id, deleted))
        return results

    async def expire(self, group: Group) -> bool:
        """Queue the deletion of a group's expired offsets; whether none is left."""
        expired, unless_subscribed = self._expired(group)
        if unless_subscribed:
            topics = frozenset(each.topic for each in unless_subscribed)
            subscribed = await self._subscriptions.among(group, topics)
            if self._writer.broken is not None or group.state is GroupState.DEAD or group.id in self._writer.changing():
                return False
            expired, unless_subscribed = self._expired(group)  # offsets may have been committed meanwhile
            if subscribed is not None:
                expired += [each for each in unless_subscribed if each.topic in topics - subscribed]
        offsets = self._committed.offsets(group.id)
        if expired:
            self._counters.offsets_forgotten += len(expired)
            self._writer.put_offsets(group.id, dict.fromkeys(expired))
        return len(expired) == len(offsets)

    def _expired(self, group: Group) -> tuple[list[TopicPartition], list[TopicPartition]]:
        return expired_offsets(
            group,
            self._committed.offsets(group.id),
            self._clock.now_ms(),
            retention_ms=self._settings.retention_ms,
            topic_id=self._topic_id,
        )

    def _check(self, group_id: str, partition: TopicPartition, offset: CommittedOffset) -> None:
        check_between("partition", partition.number, 0, PARTITIONS_MAX)
        if len(offset.metadata) > self._settings.metadata_chars_max:
            raise GroupRefusedError(group_id, GroupRefusal.METADATA_TOO_LARGE)
        if offset.offset < EARLIEST:  # kafkajs commits EARLIEST and LATEST as they are, to start there
            allowed = f"at least 0, or {LATEST} (latest) or {EARLIEST} (earliest)"
            raise InvalidError("offset", offset.offset, allowed)


def _topic_changed(name: str) -> UnavailableError:
    return UnavailableError(f"topic {name}", "it was deleted or created again: look it up, and commit again")
