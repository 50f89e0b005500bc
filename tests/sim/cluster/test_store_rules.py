"""The rules of what the store and the bucket hold."""

from typing import Any

import msgspec

from holdfast.contracts.store import Change, Entry
from holdfast.kernel.keys import epoch_key, partition_resource
from holdfast.log.keys import index_entry_key, segment_entry_key, state_key, topic_id_key
from holdfast.log.metadata import IndexRecord, PartitionRecord, SegmentRecord
from holdfast.log.segments.model import EpochStart
from holdfast.sim.cluster.history import ClusterEvent, ObjectDeleted
from holdfast.sim.cluster.store_rules import StoreRules
from holdfast.sim.history import CommitApplied
from holdfast.vocabulary.types import TopicPartition


def put(key: str, value: Any) -> Change:
    return Change(key, Entry(key, msgspec.json.encode(value), 1))


def commit(*changes: Change) -> CommitApplied:
    return CommitApplied(1, 1, changes)


def segment(base: int, end: int, epoch: int) -> Change:
    record = SegmentRecord(
        base_offset=base,
        end_offset=end,
        object=f"object-{base}",
        start=0,
        end=10,
        epoch=epoch,
        records=end - base,
        min_timestamp_ms=0,
        max_timestamp_ms=0,
    )
    return put(segment_entry_key("id", 0, base), record)


def state(published: int, **others: Any) -> Change:
    return put(state_key("id", 0), PartitionRecord(published=published, **others))


def epoch(number: int) -> Change:
    return put(epoch_key(partition_resource(TopicPartition("t", 0))), {"epoch": number})


def broken(*events: ClusterEvent) -> list[str]:
    rules = StoreRules()
    for index, event in enumerate((commit(put(topic_id_key("id"), {"name": "t"})), *events)):
        rules.take(index, event)
    return [violation.rule for violation in rules.violations]


def test_publications_in_order_under_their_epoch_keep_every_rule() -> None:
    assert (
        broken(
            commit(epoch(1)),
            commit(state(0)),
            commit(state(5), segment(0, 3, 1), segment(3, 5, 1)),
            commit(epoch(2)),
            commit(state(7), segment(5, 7, 2)),
        )
        == []
    )


def test_a_publication_of_an_old_epoch_is_noticed() -> None:
    assert broken(commit(epoch(1)), commit(state(0)), commit(epoch(2)), commit(state(5), segment(0, 5, 1))) == [
        "published-by-leader"
    ]


def test_a_publication_that_leaves_offsets_out_is_noticed() -> None:
    assert broken(commit(epoch(1)), commit(state(0)), commit(state(5), segment(1, 5, 1))) == ["published-in-order"]


def test_a_merged_segment_keeps_its_epoch() -> None:
    events = (commit(epoch(1)), commit(state(0)), commit(state(5), segment(0, 5, 1)), commit(epoch(2)))
    assert broken(*events, commit(segment(0, 5, 1))) == []


def test_a_record_that_goes_back_is_noticed() -> None:
    assert broken(commit(state(5)), commit(state(4))) == ["record-grows"]
    assert broken(commit(state(5, start=3)), commit(state(5, start=2))) == ["record-grows"]
    newer, older = (EpochStart(2, 0),), (EpochStart(1, 0),)
    assert broken(commit(state(5, epochs=newer)), commit(state(5, epochs=older))) == ["record-grows"]


def test_an_object_that_is_listed_must_not_be_deleted() -> None:
    listed = (commit(epoch(1)), commit(state(0)), commit(state(5), segment(0, 5, 1)))
    assert broken(*listed, ObjectDeleted(2, "object-0")) == ["listed-exists"]
    unlisted = commit(Change(segment_entry_key("id", 0, 0), None))
    assert broken(*listed, unlisted, ObjectDeleted(2, "object-0")) == []
    index = IndexRecord(base_offset=0, end_offset=5, object="index", entries=1, size_bytes=10)
    assert broken(commit(put(index_entry_key("id", 0, 0), index)), ObjectDeleted(2, "index")) == ["listed-exists"]
