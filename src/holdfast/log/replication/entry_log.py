"""A replicated log above its base, in memory, and where two of them part. No I/O.

The one rule: positions only grow along a log, and a position names one history. So containing a position is a look-up, and a fork
is found from epochs and where they start, without comparing entries.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.log.replication.positions import NOWHERE, Epochs, Position, ReplicaEntry
from holdfast.log.segments.model import EpochStart
from holdfast.vocabulary.errors import CorruptError


class LogSnapshot(NamedTuple):
    """What `EntryLog.restore` goes back to. Valid as long as the log is restored in reverse order."""

    base: Position
    entries: list[ReplicaEntry]
    ends: list[Position]
    length: int
    size_bytes: int


class EntryLog:
    """Entries behind `base`, up to which everything is published and was released."""

    __slots__ = ("_ends", "_entries", "base", "position", "size_bytes")

    def __init__(self, base: Position = NOWHERE, entries: Iterable[ReplicaEntry] = ()) -> None:
        self.base = base
        self.position = base  # where it ends
        self._entries: list[ReplicaEntry] = []
        self._ends: list[Position] = []
        self.size_bytes = 0  # of the entries' payloads
        for entry in entries:
            self.append(entry)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> Sequence[ReplicaEntry]:
        return self._entries

    @property
    def epochs(self) -> Epochs:
        """The epochs of the entries, each with its first offset."""
        found: list[EpochStart] = []
        at = 0
        while at < len(self._entries):
            epoch = self._entries[at].epoch
            found.append(EpochStart(epoch, self._entries[at].base_offset))
            at = bisect_left(self._ends, Position(epoch + 1, 0), at)
        return tuple(found)

    def contains(self, position: Position) -> bool:
        """Whether the log, up to some entry, is the history that `position` names."""
        if position == self.base:
            return True
        if position == self.position:
            return True
        at = bisect_left(self._ends, position)
        return at < len(self._ends) and self._ends[at] == position

    def floor(self, position: Position) -> Position:
        """The last position it contains that is not above `position`; its base if there is none."""
        at = bisect_right(self._ends, position)
        return self._ends[at - 1] if at else self.base

    def position_at(self, offset: int) -> Position:
        """The last position with this end offset. `CorruptError`: no entry ends there."""
        at = bisect_right(self._ends, offset, key=lambda each: each.offset)
        found = self._ends[at - 1] if at else self.base
        if found.offset != offset:
            raise CorruptError(
                "replicated log", f"offset {offset} is not the end of an entry: the one before ends at {found}"
            )
        return found

    def after(self, position: Position, bytes_max: int | None = None) -> tuple[ReplicaEntry, ...]:
        """The entries behind a position that the log contains; about `bytes_max` of them, at least one if there is one."""
        at = bisect_right(self._ends, position)
        if bytes_max is None or at + 1 == len(self._entries):
            return tuple(self._entries[at:])
        end, size = at, 0
        while end < len(self._entries) and (end == at or size + self._entries[end].size_bytes <= bytes_max):
            size += self._entries[end].size_bytes
            end += 1
        return tuple(self._entries[at:end])

    def append(self, entry: ReplicaEntry) -> None:
        """Add the next entry. `CorruptError`: it does not follow."""
        end = entry.position
        if entry.base_offset != self.position.offset or entry.epoch != self.position.epoch or not entry.count:
            check_follows(self.position, entry)
        self._entries.append(entry)
        self.position = end
        self._ends.append(end)
        self.size_bytes += entry.size_bytes

    def truncate(self, keep: Position) -> None:
        """Drop what lies behind `keep`."""
        at = bisect_right(self._ends, keep)
        self.size_bytes -= _size_bytes(self._entries[at:])
        self._entries, self._ends = self._entries[:at], self._ends[:at]
        self.position = self._ends[-1] if at else self.base

    def release(self, position: Position) -> None:
        """Begin at `position`, which the log contains: nothing up to it is needed any more."""
        at = bisect_right(self._ends, position)
        self.size_bytes -= _size_bytes(self._entries[:at])
        self._entries, self._ends, self.base = self._entries[at:], self._ends[at:], position
        self.position = self._ends[-1] if self._ends else position

    def reset(self, base: Position) -> None:
        """Drop everything and begin at `base`."""
        self._entries, self._ends, self.base, self.position, self.size_bytes = [], [], base, base, 0

    def snapshot(self) -> LogSnapshot:
        """What it is now. Nothing is copied: what shortens a log makes new lists, and `append` only adds."""
        return LogSnapshot(self.base, self._entries, self._ends, len(self._entries), self.size_bytes)

    def restore(self, snapshot: LogSnapshot) -> None:
        """Be what it was."""
        self.base, self._entries, self._ends = snapshot.base, snapshot.entries, snapshot.ends
        self.size_bytes = snapshot.size_bytes
        del self._entries[snapshot.length :], self._ends[snapshot.length :]
        self.position = self._ends[-1] if self._ends else self.base


def _size_bytes(entries: Iterable[ReplicaEntry]) -> int:
    return sum(entry.size_bytes for entry in entries)


def check_follows(position: Position, entry: ReplicaEntry) -> None:
    """Raise `CorruptError` unless a log that ends at `position` can go on with `entry`.

    Offsets are contiguous but for an epoch-start entry, which may begin above: a takeover skipped what lies between.
    """
    epoch, base, count = entry[:3]
    contiguous = base == position.offset or (not count and base > position.offset)
    if not contiguous or epoch < position.epoch or (epoch, base + count) <= position:
        raise CorruptError(
            "replicated log",
            f"the entry of epoch {entry.epoch} at offset {entry.base_offset} does not follow {position}",
        )


class _Span(NamedTuple):
    """Positions (epoch, start) to (epoch, end) that a log contains."""

    epoch: int
    start: int
    end: int


def find_fork(log: EntryLog, base: Position, position: Position, epochs: Epochs) -> Position | None:
    """The last position that `log` and another one have in common; None: it lies below the base of either.

    The other log is described by where it begins and ends, and where its epochs start. Within an epoch all logs are prefixes of
    what its leader wrote, so of two that have the epoch the shorter one ends at the fork.
    """
    theirs = {span.epoch: span for span in _spans(base, position, epochs)}
    for ours in reversed(_spans(log.base, log.position, log.epochs)):
        other = theirs.get(ours.epoch)
        if other is not None and max(ours.start, other.start) <= min(ours.end, other.end):
            # An epoch ends where the next one starts, which may lie above its last entry.
            return log.floor(Position(ours.epoch, min(ours.end, other.end)))
    return None


def _spans(base: Position, position: Position, epochs: Epochs) -> list[_Span]:
    starts = [*epochs]
    if not starts or starts[0].epoch != base.epoch:
        starts.insert(0, EpochStart(base.epoch, base.offset))
    ends = [each.start_offset for each in starts[1:]] + [position.offset]
    return [_Span(each.epoch, each.start_offset, end) for each, end in zip(starts, ends, strict=True)]
