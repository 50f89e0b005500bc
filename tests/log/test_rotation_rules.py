"""When a segment is sealed and who is next: pure."""

import pytest

from holdfast.contracts.store import Entry
from holdfast.kernel.placement import Workload
from holdfast.kernel.placement_requests import with_rotations
from holdfast.log.model import PartitionConfig
from holdfast.log.rotation.record import SEALED_MAX, RotationRecord, decode_rotation
from holdfast.log.rotation.rules import is_due, next_leader, sealed
from holdfast.log.topic_config import TopicConfig, read_config
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.types import Member


@pytest.mark.parametrize(
    ("config", "entries", "size_bytes", "due"),
    [
        (PartitionConfig(), 1 << 40, 1 << 40, False),
        (PartitionConfig(rotation_entries=10), 9, 1 << 40, False),
        (PartitionConfig(rotation_entries=10), 10, 0, True),
        (PartitionConfig(rotation_bytes=10), 1, 10, True),
        (PartitionConfig(rotation_bytes=10), 0, 10, False),
        (PartitionConfig(rotation_entries=10, rotation_bytes=100), 1, 99, False),
    ],
)
def test_a_segment_is_due_by_entries_or_bytes(
    config: PartitionConfig, entries: int, size_bytes: int, due: bool
) -> None:
    assert is_due(config, entries=entries, size_bytes=size_bytes) is due


def members(*names: str, group: str = "default") -> list[Member]:
    return [Member(id=name, session=name, node=node, group=group) for node, name in enumerate(names, 1)]


def test_leadership_goes_round_robin_by_node_number() -> None:
    ring = members("cid", "ann", "bob")
    order = ["cid"]
    for _ in range(6):
        order.append(next_leader(ring, group="default", leader=order[-1], before=order[-1]))
    assert order == ["cid", "ann", "bob", "cid", "ann", "bob", "cid"]
    assert next_leader(ring, group="default", leader="cid", before="") == "ann"


def test_whoever_did_not_take_over_is_passed_by() -> None:
    ring = members("ann", "bob", "cid")
    assert next_leader(ring, group="default", leader="ann", before="bob") == "cid"
    assert next_leader(ring, group="default", leader="ann", before="cid") == "bob"
    assert next_leader(ring, group="default", leader="ann", before="gone") == "bob"


def test_only_agents_of_the_group_are_next() -> None:
    ring = members("ann", "bob") + members("x", "y", group="other")
    assert next_leader(ring, group="default", leader="ann", before="") == "bob"
    assert next_leader(members("ann"), group="default", leader="ann", before="") == "ann"
    assert next_leader([], group="default", leader="ann", before="") == "ann"


def test_seals_are_listed_and_the_oldest_are_forgotten() -> None:
    record = RotationRecord(topic_id="t")
    for number in range(SEALED_MAX + 5):
        record = sealed(record, end=(number + 1) * 10, epoch=number, node=1, target="bob")
    assert (record.segment, record.start, record.target) == (SEALED_MAX + 6, (SEALED_MAX + 5) * 10, "bob")
    assert len(record.sealed) == SEALED_MAX
    assert [(each.start, each.end) for each in record.sealed[-2:]] == [
        ((SEALED_MAX + 3) * 10, (SEALED_MAX + 4) * 10),
        ((SEALED_MAX + 4) * 10, (SEALED_MAX + 5) * 10),
    ]


def test_the_record_of_an_earlier_topic_of_the_name_does_not_count() -> None:
    entry = Entry(key="rotation/partition/t/00000", value=b'{"topic_id":"old","segment":7,"start":70}', version=3)
    assert decode_rotation(entry, "old").segment == 7
    assert decode_rotation(entry, "new") == RotationRecord(topic_id="new")


def test_what_an_operator_assigned_wins_over_rotation() -> None:
    targets = {"partition/t/00000": "ann", "partition/t/00001": "bob", "partition/u/00002": ""}
    assert with_rotations({"t": {1: ("cid",)}}, targets, ()) == {"t": {0: ("ann",), 1: ("cid",)}}


def test_a_topic_that_rotates_no_more_asks_for_nobody() -> None:
    targets = {"partition/t/00000": "ann", "partition/u/00000": "bob"}
    workloads = [Workload(topic="t", partitions=1, rotates=False), Workload(topic="u", partitions=1)]
    assert with_rotations({"t": {1: ("cid",)}}, targets, workloads) == {"t": {1: ("cid",)}, "u": {0: ("bob",)}}


def test_rotation_is_on_without_a_number() -> None:
    assert TopicConfig().rotation_entries == 0
    assert read_config({"rotation_entries": "on"}).rotation_entries == 1_000_000
    assert read_config({"rotation_entries": "off"}).rotation_entries == 0
    assert read_config({"rotation_entries": "12"}).rotation_entries == 12
    with pytest.raises(InvalidError):
        read_config({"rotation_entries": "-1"})
