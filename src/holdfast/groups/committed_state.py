"""The durable state of a shard: committed offsets by group, and the version of every group's record.

The one rule: only the writer changes it, after a commit, so everything read from here is durable.
"""

from collections.abc import Mapping

from holdfast.contracts.store import Absent, AtVersion, Requirement
from holdfast.groups.keys import PARTITIONS_PER_KEY, group_key
from holdfast.groups.model import CommittedOffset
from holdfast.vocabulary.types import TopicPartition

OffsetChanges = Mapping[TopicPartition, CommittedOffset | None]  # None: delete it; in the order of the commits


class CommittedState:
    """The durable state of one shard."""

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self.versions: dict[str, int] = {}  # group id → version of its record
        self._offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {}

    def offsets(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """The committed offsets of a group."""
        return self._offsets.get(group_id, {})

    def knows(self, group_id: str) -> bool:
        """Whether a group has a record or offsets in the store."""
        return group_id in self._offsets or group_id in self.versions

    def groups(self) -> set[str]:
        """Every group with a record or offsets in the store."""
        return {*self._offsets, *self.versions}

    def load(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Add offsets read from the store."""
        self._offsets.setdefault(group_id, {}).update(offsets)

    def merged(self, group_id: str, changes: OffsetChanges) -> dict[TopicPartition, CommittedOffset]:
        """The offsets of one key after `changes`, all of which belong to it; the last change comes last.

        Neighbours of a deleted topic with the same name are dropped with the first offset of the new one. Which is the new one, the
        last change says, not the time of the commits: clocks differ, and are set.
        """
        known = self.offsets(group_id)
        neighbours = {each: known[each] for each in _neighbours(changes) if each not in changes and each in known}
        merged = neighbours | {each: offset for each, offset in changes.items() if offset is not None}
        topic_id = next(
            (each.topic_id for each in reversed([*changes.values()]) if each is not None and each.topic_id), ""
        )
        if not topic_id:
            return merged
        return {partition: each for partition, each in merged.items() if each.topic_id in ("", topic_id)}

    def replace(self, group_id: str, changes: OffsetChanges, merged: Mapping[TopicPartition, CommittedOffset]) -> None:
        """The key with the partitions of `changes` now contains `merged`."""
        offsets = self._offsets.setdefault(group_id, {})
        for partition in _neighbours(changes):
            if partition not in merged:
                offsets.pop(partition, None)
        offsets.update(merged)
        if not offsets:
            del self._offsets[group_id]

    def unchanged_requirement(self, group_id: str) -> Requirement:
        """Holds while the group's record is as this shard last wrote or read it."""
        key, version = group_key(self.shard, group_id), self.versions.get(group_id)
        return Absent(key) if version is None else AtVersion(key, version)


def _neighbours(changes: OffsetChanges) -> list[TopicPartition]:
    """The partitions that share a key with those of `changes`, themselves included."""
    if len(changes) == PARTITIONS_PER_KEY:
        return list(changes)
    some = next(iter(changes))
    first = some.number - some.number % PARTITIONS_PER_KEY
    return [TopicPartition(some.topic, number) for number in range(first, first + PARTITIONS_PER_KEY)]
