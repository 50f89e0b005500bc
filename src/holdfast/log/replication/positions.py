"""Positions, entries and epochs of a replicated log. Data only.

The one rule: an entry keeps its epoch for ever, however often it is copied. So (epoch, end offset) names one history, and two logs
that have a position in common are equal up to it.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from holdfast.log.segments.model import EpochStart
from holdfast.log.wal.frames import Buffer

PartitionKey = tuple[bytes, int]
"""(topic id, number)."""


class Position(NamedTuple):
    """The epoch of the last entry and the end offset, ordered in this order."""

    epoch: int
    offset: int


NOWHERE: Final = Position(0, 0)  # of a log that never had an entry: epochs begin at 1


class ReplicaEntry(NamedTuple):
    """What one append added: `count` offsets from `base_offset` on, written under `epoch`.

    The bytes are record batches as they stand in the WAL, and are never looked at. Without offsets it is an epoch-start
    entry: the first of its epoch, which changes the position from (e', x) to (epoch, x).
    """

    epoch: int
    base_offset: int
    count: int  # type: ignore[assignment]  # the log's word; the method of tuple is of no use here
    payload: Sequence[Buffer] = ()
    checksum: int | None = None  # of the payload, CRC-32C, if it is known already

    @property
    def position(self) -> Position:
        """Where a log ends that ends with this entry."""
        return Position(self.epoch, self.base_offset + self.count)

    @property
    def is_epoch_start(self) -> bool:
        return self.count == 0

    @property
    def size_bytes(self) -> int:
        payload = self.payload
        return len(payload[0]) if len(payload) == 1 else sum(map(len, payload))


Epochs = tuple[EpochStart, ...]
"""The epochs of a log above its base, oldest first, each with its first offset."""


def epoch_start(epoch: int, offset: int) -> ReplicaEntry:
    """The first entry of an epoch."""
    return ReplicaEntry(epoch, offset, 0)
