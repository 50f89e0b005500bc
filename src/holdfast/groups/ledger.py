"""What a shard knows to be in the store: committed offsets by group, and the version of every group's record.

Only the writer changes it, after a commit: whatever is read from here is durable.
"""

from collections.abc import Mapping

from holdfast.contracts.store import Absent, AtVersion, Requirement
from holdfast.groups.keys import PARTITIONS_PER_KEY, group_key
from holdfast.groups.nouns import Offset
from holdfast.vocabulary.nouns import Partition

Changes = Mapping[Partition, Offset | None]  # None: forget it


class Ledger:
    """The durable state of one shard."""

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self.versions: dict[str, int] = {}  # group id → version of its record
        self._offsets: dict[str, dict[Partition, Offset]] = {}

    def offsets(self, group_id: str) -> Mapping[Partition, Offset]:
        """Everything a group has committed."""
        return self._offsets.get(group_id, {})

    def knows(self, group_id: str) -> bool:
        """Whether a group has left anything in the store."""
        return group_id in self._offsets or group_id in self.versions

    def groups(self) -> set[str]:
        """Every group that has left anything in the store."""
        return {*self._offsets, *self.versions}

    def load(self, group_id: str, offsets: Mapping[Partition, Offset]) -> None:
        """These were found in the store."""
        self._offsets.setdefault(group_id, {}).update(offsets)

    def merged(self, group_id: str, changes: Changes) -> dict[int, Offset]:
        """What the key that holds the partitions of `changes` (all in one) is to hold after them, by partition number.

        Neighbours that belong to a former topic of the same name go with the first offset of the new one.
        """
        topic, numbers = _span(changes)
        known = self.offsets(group_id)
        merged = {}
        for number in numbers:
            partition = Partition(topic, number)
            offset = changes[partition] if partition in changes else known.get(partition)
            if offset is not None:
                merged[number] = offset
        topic_id = next((each.topic_id for each in changes.values() if each is not None), "")
        if not topic_id:
            return merged
        return {number: each for number, each in merged.items() if each.topic_id in ("", topic_id)}

    def replace(self, group_id: str, changes: Changes, merged: Mapping[int, Offset]) -> None:
        """The key that holds the partitions of `changes` holds `merged` now."""
        topic, numbers = _span(changes)
        offsets = self._offsets.setdefault(group_id, {})
        for number in numbers:
            offsets.pop(Partition(topic, number), None)
        offsets.update({Partition(topic, number): each for number, each in merged.items()})
        if not offsets:
            del self._offsets[group_id]

    def unmoved(self, group_id: str) -> Requirement:
        """Holds as long as the group's record is what we wrote, or read, last."""
        key, version = group_key(self.shard, group_id), self.versions.get(group_id)
        return Absent(key) if version is None else AtVersion(key, version)


def _span(changes: Changes) -> tuple[str, range]:
    """The topic and the partitions that share a key with those of `changes`."""
    some = next(iter(changes))
    first = some.number - some.number % PARTITIONS_PER_KEY
    return some.topic, range(first, first + PARTITIONS_PER_KEY)
