"""Logs of epochs that this agent has led and ended itself, to begin the next one with other replicas.

Whatever was acknowledged in an epoch is in its leader's log. So the next epoch need not seal the set before, of which too many may
be gone for good: a leader that lives must not be locked out by them. The one rule: such a log is used only if the record says that
no later epoch has served.
"""

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from holdfast.log.leader_epochs import epoch_at
from holdfast.log.metadata import PartitionRecord
from holdfast.log.replication.entry_log import EntryLog
from holdfast.log.replication.positions import Position
from holdfast.log.replication.quorum import seal_quorum

_KEPT_MS: Final = 60_000  # of a partition that is not opened here again


class EndedLog(NamedTuple):
    """The log of an epoch. It grows no more once the next one has begun."""

    epoch: int
    log: EntryLog

    def is_last(self, record: PartitionRecord) -> bool:
        """Whether it has everything that was acknowledged: its epoch was the last to serve, and it reaches what is published."""
        is_newest = bool(record.opened_replicas) and self.epoch == record.opened_epoch
        return is_newest and self.log.contains(published_position(record))

    def is_only_one(self, record: PartitionRecord, is_connected: Callable[[str], bool]) -> bool:
        """Whether nobody else could begin the next epoch: too few replicas that have what is not published can be reached."""
        return not record.clean and self.is_last(record) and not can_be_sealed(record, is_connected)


def can_be_sealed(record: PartitionRecord, is_connected: Callable[[str], bool]) -> bool:
    """Whether enough of the set that served last can be reached."""
    return sum(map(is_connected, record.opened_replicas)) >= seal_quorum(len(record.opened_replicas))


def published_position(record: PartitionRecord) -> Position:
    """The position that is published. Without an epoch, it was published by a leader without replicas: then that one's."""
    epoch = record.published_epoch or max(epoch_at(record.epochs, record.published - 1), 0)
    return Position(epoch, record.published)


class EndedLogs:
    """Of one session, by resource."""

    def __init__(self) -> None:
        self._ended: dict[str, tuple[EndedLog, float]] = {}

    def __len__(self) -> int:
        return len(self._ended)

    def remember(self, resource: str, ended: EndedLog, now_ms: float) -> None:
        """The epoch is about to end."""
        self._ended[resource] = ended, now_ms

    def get(self, resource: str) -> EndedLog | None:
        """What is known of it."""
        found = self._ended.get(resource)
        return found[0] if found is not None else None

    def forget(self, resource: str) -> None:
        """It is served again."""
        self._ended.pop(resource, None)

    def sweep(self, held: Collection[str], now_ms: float) -> None:
        """Forget those whose lease went elsewhere a while ago."""
        for resource, (_, at_ms) in list(self._ended.items()):
            if resource not in held and now_ms - at_ms >= _KEPT_MS:
                del self._ended[resource]
