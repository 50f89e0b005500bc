"""Snapshots of what a service above keeps in a partition (heaps): where they are, and which objects they are.

    log/{topic id}/{n:05d}/snapshots    {"snapshots": [{"object", "offset", "epoch", "size_bytes", "taken_at_ms"}, …]}, oldest first
    {cluster id}/snapshots/{topic id}/{partition}/{offset}-{epoch}-{upload id}.snap

A snapshot at an offset holds what every record below it did. The one rule: offsets of a list only rise. So an object that was
uploaded and not listed cannot be listed any more once a later one is, and the sweeper knows when it may forget that it deleted it.
"""

import re
from typing import Final

import msgspec

from holdfast.log.segments.keys import CLUSTER, SegmentKey

SNAPSHOTS: Final = "snapshots/"

_KEY: Final = re.compile(
    CLUSTER + r"snapshots/([A-Za-z0-9_-]{1,64})/(\d{1,10})/(\d{20})-(\d{1,19})-([A-Za-z0-9_-]{1,64})\.snap", re.ASCII
)


class SnapshotRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One snapshot: what every record below `offset` did, taken by the leader of `epoch`."""

    object: str
    offset: int
    epoch: int
    size_bytes: int
    taken_at_ms: int


class SnapshotList(msgspec.Struct, frozen=True):
    """The snapshots of a partition, oldest first."""

    snapshots: tuple[SnapshotRecord, ...] = ()

    @property
    def newest_offset(self) -> int:
        """The offset of the newest; -1 without any."""
        return self.snapshots[-1].offset if self.snapshots else -1


def snapshot_object_key(topic_id: str, number: int, offset: int, epoch: int, upload_id: str, *, prefix: str) -> str:
    """The key of a snapshot's object. `prefix` is that of the objects' owner."""
    return f"{prefix}{SNAPSHOTS}{topic_id}/{number}/{offset:020d}-{epoch}-{upload_id}.snap"


def parse_snapshot_key(key: str) -> SegmentKey | None:
    """The parts of a snapshot's key, as of a segment that holds nothing at its offset; None for any other key."""
    found = _KEY.fullmatch(key)
    if found is None:
        return None
    return SegmentKey(found[1], int(found[2]), int(found[3]), int(found[3]), int(found[4]), found[5])


def read_snapshot_list(value: bytes) -> SnapshotList:
    """A stored list."""
    return msgspec.json.decode(value, type=SnapshotList)
