"""What the store holds of a partition that rotates: `rotation/{resource}` (a kernel key: the planner reads `target` of it).

A segment here is a range of offsets between two seals, as clients of the text protocol count them; it may be stored in any
number of STRM segments.
"""

from typing import Final

import msgspec

from holdfast.contracts.store import Entry, Store
from holdfast.kernel.keys import partition_resource, rotation_key
from holdfast.vocabulary.types import TopicPartition

SEALED_MAX: Final = 64  # the newest are listed: a record must not grow without bound


class SealedSegment(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets [`start`, `end`), sealed at `epoch` by the agent with this node number."""

    segment: int
    start: int
    end: int
    epoch: int
    node: int


class RotationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The segment that is written now, from offset `start` on, and who shall lead it; `sealed`: those before it, oldest first."""

    topic_id: str
    segment: int = 1
    start: int = 0
    target: str = ""
    sealed: tuple[SealedSegment, ...] = ()


def decode_rotation(entry: Entry | None, topic_id: str) -> RotationRecord:
    """The record in a store entry; a topic that has never rotated, or is a new one of the same name, is at its first segment."""
    found = None if entry is None else msgspec.json.decode(entry.value, type=RotationRecord)
    return found if found is not None and found.topic_id == topic_id else RotationRecord(topic_id=topic_id)


async def read_rotation(store: Store, topic: str, topic_id: str, number: int) -> RotationRecord:
    """The record of a partition."""
    return decode_rotation(await store.get(rotation_key(partition_resource(TopicPartition(topic, number)))), topic_id)
