"""What clients saw of a partition, and whether it may be: the invariants of replication.

I1: what was acknowledged is never lost. I2: an offset has one visible value. I3: the visible end never goes back. I4: one history
per position. I5: what is published is a prefix of what was acknowledged, and only grows. I6: a value is visible once.
"""

from random import Random as Chance  # noqa: TID251 - a seeded one is passed in

from holdfast.log.replication.entry_log import EntryLog
from holdfast.log.replication.leader import Leader
from holdfast.log.replication.positions import Position, ReplicaEntry
from holdfast.log.replication.replica import Replica


class ViolationError(Exception):
    """An invariant does not hold."""


class History:
    """Everything that was ever visible, and every entry that was ever written."""

    def __init__(self) -> None:
        self.visible: list[int] = []  # by offset
        self.published_end = 0
        self.values = 0
        self.newest: Leader | None = None  # of those that were opened
        self._known: dict[
            Position, tuple[Position, ReplicaEntry]
        ] = {}  # position → the position before it, and its entry

    def next_value(self, leader: Leader, chance: Chance) -> int | None:
        """A new value, or one that may not have arrived: a producer sends it again unless the log has it."""
        if self.values and chance.random() < 0.3:
            value = chance.randint(1, self.values)
            logged = {int(bytes(entry.payload[0])) for entry in leader.log.entries if entry.count}
            if value in logged or value in self.visible[: leader.log.base.offset]:
                return None
            return value
        self.values += 1
        return self.values

    def appended(self, entry: ReplicaEntry) -> None:
        """A leader has numbered an entry."""
        if entry.epoch < 1:
            raise ViolationError(f"I4: {entry} has no epoch")

    def opened(self, leader: Leader) -> None:
        """A leader serves: the end offset it answers with is its high watermark."""
        if self.newest is None or leader.epoch > self.newest.epoch:
            self.newest = leader
            if leader.hw < len(self.visible):
                raise ViolationError(
                    f"I3: the end offset of epoch {leader.epoch} is {leader.hw}, and was {len(self.visible)}"
                )
        self.shown(leader)

    def shown(self, leader: Leader) -> None:
        """What lies below the high watermark is visible, and acknowledged."""
        for entry in leader.log.entries:
            if entry.position.offset > leader.hw:
                break
            self._see(entry, f"leader {leader.epoch}")
        self.check_log(leader.log)
        self.check_newest()

    def check_newest(self) -> None:
        """The newest leader has all that is visible."""
        leader = self.newest
        if leader is None:
            return
        if leader.log.position.offset < len(self.visible):
            raise ViolationError(
                f"I1: the log of epoch {leader.epoch} ends at {leader.log.position}, {self.visible} is visible"
            )
        for entry in leader.log.entries:
            if self.visible[entry.base_offset : entry.position.offset] not in ([], *self._values(entry)):
                raise ViolationError(f"I1: epoch {leader.epoch} has {entry}, and {self.visible} is visible")

    def published(self, leader: Leader, offset: int) -> None:
        """A leader commits everything below `offset` to object storage."""
        if offset < self.published_end or offset > len(self.visible):
            raise ViolationError(f"I5: {offset} is published after {self.published_end}, and {self.visible} is visible")
        for entry in leader.log.entries:
            if entry.position.offset <= offset:
                self._see(entry, f"published by {leader.epoch}")
        self.published_end = offset

    def check_follower(self, replica: Replica) -> None:
        """A follower shows what lies below its high watermark."""
        for entry in replica.log.entries:
            if entry.position.offset <= replica.hw:
                shown = self.visible[entry.base_offset : entry.position.offset]
                if shown != [int(bytes(each)) for each in entry.payload] * entry.count:
                    raise ViolationError(f"I2: a follower shows {entry}, and {self.visible} is visible")

    def check_log(self, log: EntryLog) -> None:
        """Equal positions mean equal histories."""
        before = log.base
        for entry in log.entries:
            known = self._known.setdefault(entry.position, (before, entry))
            if known[1].payload != entry.payload or known[1].base_offset != entry.base_offset:
                raise ViolationError(f"I4: {entry.position} is {entry} and {known[1]}")
            if known[0] != before:
                raise ViolationError(f"I4: before {entry.position} is {before} and {known[0]}")
            before = entry.position

    def _values(self, entry: ReplicaEntry) -> list[list[int]]:
        """What may be visible of an entry: any beginning of it."""
        value = [int(bytes(each)) for each in entry.payload] * entry.count
        return [value[: at + 1] for at in range(len(value))]

    def _see(self, entry: ReplicaEntry, where: str) -> None:
        if not entry.count:
            return
        values = [int(bytes(each)) for each in entry.payload] * entry.count
        seen = self.visible[entry.base_offset : entry.position.offset]
        if seen:
            if seen != values:
                raise ViolationError(f"I2: {where} shows {entry}, and {self.visible} is visible")
            return
        if entry.base_offset != len(self.visible):
            raise ViolationError(f"I3: {where} shows {entry}, and the end offset is {len(self.visible)}")
        if values[0] in self.visible:
            raise ViolationError(f"I6: {values[0]} is visible twice: {self.visible} and {entry}")
        self.visible += values
