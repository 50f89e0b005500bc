"""The names of segments in object storage.

    {cluster id}/segments/{topic id}/{partition}/{base offset}-{end offset}-{epoch}-{upload id}.strm
    {cluster id}/shared/{upload id}.strm

Release 0.1.0 wrote them without the cluster's id: such keys stay in use for as long as their segments do.

The one rule: a key is never used twice. The upload id is new for every attempt to write, so that an attempt given up
by one owner cannot be taken for the segment of the next. Offsets have twenty digits: listings are in offset order.
"""

import re
from typing import Final, NamedTuple

from holdfast.vocabulary.errors import InvalidError

SEGMENTS: Final = "segments/"
SHARED: Final = "shared/"

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
CLUSTER: Final = r"(?:[A-Za-z0-9_-]{1,64}/)?"
"""The pattern of the prefix with a cluster's id."""
_SHARED: Final = re.compile(rf"{CLUSTER}shared/[^/]+", re.ASCII)
_SEGMENT: Final = re.compile(
    CLUSTER
    + r"segments/([A-Za-z0-9_-]{1,64})/(0|[1-9]\d{0,9})/(\d{20})-(\d{20})-(0|[1-9]\d{0,18})-([A-Za-z0-9_-]{1,64})\.strm",
    re.ASCII,
)
_OFFSET_MAX: Final = 2**63 - 1
_PARTITION_MAX: Final = 2**31 - 1


class SegmentKey(NamedTuple):
    """The parts of a segment's key."""

    topic_id: str
    partition: int
    base_offset: int
    end_offset: int
    epoch: int
    upload_id: str


def segment_key(topic_id: str, partition: int, base: int, end: int, epoch: int, upload_id: str, *, prefix: str) -> str:
    """The key of the object that holds one segment alone. `prefix` is that of the objects' owner."""
    check_id("topic id", topic_id)
    check_id("upload id", upload_id)
    check_offset_range(partition, base, end)
    if not 0 <= epoch <= _OFFSET_MAX:
        raise InvalidError("epoch", epoch, "0 to 2^63 - 1")
    return f"{prefix}{SEGMENTS}{topic_id}/{partition}/{base:020d}-{end:020d}-{epoch}-{upload_id}.strm"


def parse_segment_key(key: str) -> SegmentKey | None:
    """The parts of a key, or None for a key that is not a segment's."""
    found = _SEGMENT.fullmatch(key)
    if found is None:
        return None
    topic_id, upload_id = found[1], found[6]
    partition, base, end, epoch = (int(number) for number in found.group(2, 3, 4, 5))
    if partition > _PARTITION_MAX or not base < end <= _OFFSET_MAX or epoch > _OFFSET_MAX:
        return None
    return SegmentKey(topic_id, partition, base, end, epoch, upload_id)


def partition_prefix(topic_id: str, partition: int) -> str:
    """Where all segments of a partition are, but for those in shared objects."""
    check_id("topic id", topic_id)
    return f"{SEGMENTS}{topic_id}/{partition}/"


def shared_key(upload_id: str, *, prefix: str) -> str:
    """The key of an object that holds the segments of several partitions."""
    check_id("upload id", upload_id)
    return f"{prefix}{SHARED}{upload_id}.strm"


def is_shared(key: str) -> bool:
    """Whether the key is that of a shared object."""
    return _SHARED.fullmatch(key) is not None


def check_id(what: str, given: str) -> None:
    """Refuse an id that could not be part of a key."""
    if not _ID.fullmatch(given):
        raise InvalidError(what, given, "1 to 64 letters, digits, - and _")


def check_offset_range(partition: int, base_offset: int, end_offset: int) -> None:
    """Refuse numbers that cannot be a range of a partition."""
    if not 0 <= partition <= _PARTITION_MAX:
        raise InvalidError("partition", partition, "0 to 2^31 - 1")
    if not 0 <= base_offset < end_offset <= _OFFSET_MAX:
        raise InvalidError("offsets", (base_offset, end_offset), "0 <= base < end <= 2^63 - 1")
