"""What must be true of partitions in the store, and of objects: judged from commits and deletions, in their order.

Pure. A segment that a publication lists carries the epoch of the leader that published it; nothing of a partition's record goes
back; and an object that a partition lists is there.
"""

from typing import Final

import msgspec

from holdfast.contracts.store import Change, Entry
from holdfast.kernel.keys import EPOCHS, partition_resource
from holdfast.kernel.lease import read_epoch
from holdfast.log.keys import LOGS, TOPIC_IDS
from holdfast.log.metadata import IndexRecord, PartitionRecord, SegmentRecord
from holdfast.sim.checker import Violation
from holdfast.sim.cluster.history import ClusterEvent, ObjectDeleted
from holdfast.sim.history import CommitApplied
from holdfast.vocabulary.types import TopicPartition

STORE_RULES: Final = {
    "published-by-leader": "a segment is published under the newest epoch of its partition",
    "record-grows": "what a partition has published, where it starts and its leader history never go back",
    "published-in-order": "a publication continues where the last one ended",
    "listed-exists": "no object is deleted while a partition lists it",
}


class StoreRules:
    """Follows a history event by event."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self._index, self._at_ms = 0, 0.0
        self._names: dict[str, str] = {}  # topic id → name
        self._epochs: dict[str, int] = {}  # resource → newest epoch
        self._records: dict[str, PartitionRecord] = {}
        self._listed: dict[str, str] = {}  # entry key → object key
        self._ends: dict[str, int] = {}

    def take(self, index: int, event: ClusterEvent) -> None:
        """The next event."""
        self._index, self._at_ms = index, event.at_ms
        if isinstance(event, CommitApplied):
            self._take_commit(event.changes)
        elif isinstance(event, ObjectDeleted):
            for key, listed in self._listed.items():
                if listed == event.key:
                    self._broken("listed-exists", f"{event.key} was deleted, and {key} lists it")

    def _broken(self, rule: str, what: str) -> None:
        self.violations.append(Violation(rule, self._at_ms, what, self._index))

    def _take_commit(self, changes: tuple[Change, ...]) -> None:
        before = dict(self._records) if len(changes) > 1 else self._records
        self._ends = {}  # of what this commit publishes, by partition
        for change in sorted(changes, key=lambda each: each.key):
            key, entry = change.key, change.entry
            if key.startswith(EPOCHS) and entry is not None:
                self._epochs[key.removeprefix(EPOCHS)] = read_epoch(entry)
            elif key.startswith(TOPIC_IDS) and entry is not None:
                self._names[key.removeprefix(TOPIC_IDS)] = msgspec.json.decode(entry.value)["name"]
            elif key.startswith(LOGS):
                self._take_log(key, entry, before)

    def _take_log(self, key: str, entry: Entry | None, before: dict[str, PartitionRecord]) -> None:
        partition, _, rest = key.removeprefix(LOGS).partition("/")[2].partition("/")
        topic_id = key.removeprefix(LOGS).partition("/")[0]
        place = f"{topic_id}/{partition}"
        if entry is None:
            self._listed.pop(key, None)
            if rest == "state":
                self._records.pop(place, None)
        elif rest == "state":
            self._take_record(place, msgspec.json.decode(entry.value, type=PartitionRecord))
        elif rest.startswith("seg/"):
            segment = msgspec.json.decode(entry.value, type=SegmentRecord)
            self._listed[key] = segment.object
            known = before.get(place)
            if known is not None and segment.base_offset >= known.published:
                self._take_publication(topic_id, int(partition), segment)
                end = self._ends.get(place, known.published)
                if segment.base_offset != end:
                    self._broken(
                        "published-in-order", f"{place} was published up to {end}, then from {segment.base_offset}"
                    )
                self._ends[place] = segment.end_offset
        elif rest.startswith("idx/"):
            self._listed[key] = msgspec.json.decode(entry.value, type=IndexRecord).object

    def _take_record(self, place: str, record: PartitionRecord) -> None:
        known = self._records.get(place, PartitionRecord())
        for name in ("published", "start"):
            if getattr(record, name) < getattr(known, name):
                self._broken(
                    "record-grows", f"{name} of {place} went from {getattr(known, name)} to {getattr(record, name)}"
                )
        if known.epochs and record.epochs and record.epochs[-1].epoch < known.epochs[-1].epoch:
            self._broken(
                "record-grows", f"{place} is at epoch {record.epochs[-1].epoch} after {known.epochs[-1].epoch}"
            )
        self._records[place] = record

    def _take_publication(self, topic_id: str, number: int, segment: SegmentRecord) -> None:
        name = self._names.get(topic_id)
        if name is None:
            return
        newest = self._epochs.get(partition_resource(TopicPartition(name, number)), 0)
        if segment.epoch != newest:
            self._broken(
                "published-by-leader",
                f"{name}:{number} from {segment.base_offset} was published with epoch {segment.epoch} in epoch {newest}",
            )
