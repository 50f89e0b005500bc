"""A heap partition of the simulated world: a log, and leaders that are views of it. It is as little as the protocols need.

The one rule: what a leader knows is what the log says. A new leader replays it; the appends of an old one are refused where they
land.
"""

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from holdfast.heap.spine.leader_end import LeaderEnd


class Kind(Enum):
    """What a record of the simulated log says of its messages."""

    READY = auto()
    DELAYED = auto()
    LEASED = auto()
    GONE = auto()
    SPINE = auto()
    PARTITIONS = auto()


class SimulatedRecord(NamedTuple):
    """One record: messages and their ranks, or the epoch of a spine, or how many partitions there are."""

    kind: Kind
    messages: tuple[tuple[int, int], ...] = ()
    spine_epoch: int = 0
    partitions: int = 0


@dataclass(slots=True)
class View:
    """What the records say."""

    ready: list[tuple[int, int]] = field(default_factory=list)  # (rank, message), sorted
    delayed: dict[int, int] = field(default_factory=dict)
    leased: dict[int, int] = field(default_factory=dict)
    spine_epoch: int = 0
    partitions: int = 0

    def apply(self, record: SimulatedRecord) -> None:
        """Take a record."""
        if record.kind is Kind.SPINE:
            self.spine_epoch = record.spine_epoch
            return
        if record.kind is Kind.PARTITIONS:
            self.partitions = record.partitions
            return
        for message, rank in record.messages:
            self._remove(message, rank)
            if record.kind is Kind.READY:
                insort(self.ready, (rank, message))
            elif record.kind is Kind.DELAYED:
                self.delayed[message] = rank
            elif record.kind is Kind.LEASED:
                self.leased[message] = rank

    def _remove(self, message: int, rank: int) -> None:
        self.delayed.pop(message, None)
        self.leased.pop(message, None)
        at = bisect_left(self.ready, (rank, message))
        if at < len(self.ready) and self.ready[at] == (rank, message):
            del self.ready[at]

    def best(self, count: int) -> list[tuple[int, int]]:
        """(rank, message) of what would be granted, in order."""
        return self.ready[:count]

    def least_ranks(self, count: int) -> tuple[list[int], bool]:
        """The least ranks that are ready, and whether they are all."""
        return [rank for rank, _ in self.ready[:count]], len(self.ready) <= count


class SimPartition:
    """The log of one partition, and the epoch of its leader."""

    def __init__(self, number: int, *, unknown_to_spines: bool, view: Callable[[], View] = View) -> None:
        self.number, self._unknown_to_spines, self._view = number, unknown_to_spines, view
        self.epoch = 0
        self.records: list[SimulatedRecord] = []

    def lead(self, leader_end: type[LeaderEnd]) -> "SimLeader":
        """A new leader, by replay."""
        self.epoch += 1
        view = self._view()
        for record in self.records:
            view.apply(record)
        end = leader_end(
            self.number,
            self.epoch,
            spine_epoch=view.spine_epoch,
            unknown_to_spines=self._unknown_to_spines,
            partitions=view.partitions,
        )
        return SimLeader(self, self.epoch, view, end)


@dataclass(slots=True)
class SimLeader:
    """A leader of a partition, while its epoch is the newest."""

    partition: SimPartition
    epoch: int
    view: View
    end: LeaderEnd
    waiting: dict[int, tuple[int, int]] = field(
        default_factory=dict
    )  # events that are not acknowledged: (message, rank)
    last_pop: tuple[tuple[int, int], ...] = ()

    @property
    def leads(self) -> bool:
        """Whether its appends land."""
        return self.epoch == self.partition.epoch

    @property
    def offset(self) -> int:
        """Of the last record."""
        return len(self.partition.records)

    def append(self, kind: Kind, *messages: tuple[int, int], spine_epoch: int = 0, partitions: int = 0) -> None:
        """Append and apply."""
        record = SimulatedRecord(kind, messages, spine_epoch, partitions)
        self.partition.records.append(record)
        self.view.apply(record)
