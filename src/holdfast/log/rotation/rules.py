"""When a segment is sealed, and who leads the next one. Pure."""

from collections.abc import Collection

import msgspec

from holdfast.log.model import PartitionConfig
from holdfast.log.rotation.record import SEALED_MAX, RotationRecord, SealedSegment
from holdfast.vocabulary.types import Member


def is_due(config: PartitionConfig, *, entries: int, size_bytes: int) -> bool:
    """Whether a segment of so many entries and bytes is long enough."""
    return entries > 0 and (0 < config.rotation_entries <= entries or (0 < config.rotation_bytes <= size_bytes))


def next_leader(members: Collection[Member], *, group: str, leader: str, before: str) -> str:
    """Round robin by node number: the agent after the one that was to lead last, or after the leader; the leader if it is alone.

    `before`: who was asked for last. If it never took over (it is being drained, or the partition is assigned), its turn
    has passed.
    """
    ring = sorted((member for member in members if member.group == group), key=lambda member: member.node)
    names = [member.id for member in ring]
    if not names:
        return leader
    last = before if before in names else leader
    at = names.index(last) if last in names else -1
    following = names[at + 1 :] + names[: at + 1]
    return next((name for name in following if name != leader), leader)


def sealed(record: RotationRecord, *, end: int, epoch: int, node: int, target: str) -> RotationRecord:
    """The record once the segment is sealed at `end`."""
    segment = SealedSegment(segment=record.segment, start=record.start, end=end, epoch=epoch, node=node)
    return msgspec.structs.replace(
        record,
        segment=record.segment + 1,
        start=end,
        target=target,
        sealed=(*record.sealed, segment)[-SEALED_MAX:],
    )
