"""Leader epochs of a partition: which one wrote which offsets. Pure."""

from collections.abc import Sequence

from holdfast.log.errors import FencedLeaderEpochError, UnknownLeaderEpochError
from holdfast.log.model import PartitionId
from holdfast.log.segments.model import EpochStart


def with_epoch(epochs: Sequence[EpochStart], epoch: int, start_offset: int) -> tuple[EpochStart, ...]:
    """The history with a new epoch. An epoch that wrote nothing leaves no trace."""
    kept = [each for each in epochs if each.start_offset < start_offset]
    return (*kept, EpochStart(epoch, start_offset))


def without_epochs_before(epochs: Sequence[EpochStart], start: int) -> tuple[EpochStart, ...]:
    """The history from `start` on: the epoch that wrote the first kept offset stays."""
    later = [each for each in epochs if each.start_offset > start]
    earlier = [each for each in epochs if each.start_offset <= start]
    return tuple((earlier[-1:] if earlier else []) + later)


def epoch_at(epochs: Sequence[EpochStart], offset: int) -> int:
    """The epoch that was leading when `offset` was written; -1 before the history begins."""
    found = -1
    for each in epochs:
        if each.start_offset <= offset:
            found = each.epoch
    return found


def end_of_epoch(epochs: Sequence[EpochStart], epoch: int, next_offset: int) -> tuple[int, int]:
    """Kafka's OffsetForLeaderEpoch: the largest known epoch ≤ `epoch`, and the offset where the next one began.

    (-1, -1) when the asked epoch is newer than any known. One older than all has ended where the history begins: what it wrote
    is gone, and a reader who comes from there goes on at the start.
    """
    if not epochs or epoch < 0 or epoch > epochs[-1].epoch:
        return -1, -1
    if epoch < epochs[0].epoch:
        return epoch, epochs[0].start_offset
    known = max(each.epoch for each in epochs if each.epoch <= epoch)
    ends = [each.start_offset for each in epochs if each.epoch > known]
    return known, ends[0] if ends else next_offset


def check_leader_epoch(partition_id: PartitionId, expected: int, current: int) -> None:
    """Raise unless the caller's leader epoch is ours: an older one is fenced, a newer one has not reached this agent."""
    if expected < current:
        raise FencedLeaderEpochError(str(partition_id), expected, current)
    if expected > current:
        raise UnknownLeaderEpochError(str(partition_id), expected, current)
