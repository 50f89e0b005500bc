"""Leadership gained and lost, as lines for the log: one line for many partitions. No I/O: changes go in, lines come out."""

from collections.abc import Sequence
from typing import Final

from holdfast.vocabulary.types import TopicPartition

_NAMED_MAX: Final = 8  # partitions named in one line


class LeadershipLog:
    """The changes since the last `lines`."""

    def __init__(self) -> None:
        self._gained: dict[TopicPartition, int] = {}  # → epoch
        self._lost: dict[str, list[TopicPartition]] = {}  # reason → partitions
        self._recovered_partitions = self._recovered_records = 0
        self._began_ms: int | None = None
        self._ended_ms = 0

    def gained(self, partition: TopicPartition, epoch: int, *, recovered: int, began_ms: int, ended_ms: int) -> None:
        """A partition was taken over, with so many unpublished records from the WAL."""
        self._gained[partition] = epoch
        if recovered:
            self._recovered_partitions += 1
            self._recovered_records += recovered
            self._began_ms = began_ms if self._began_ms is None else min(began_ms, self._began_ms)
            self._ended_ms = max(ended_ms, self._ended_ms)

    def lost(self, partition: TopicPartition, reason: str) -> None:
        """A partition was closed."""
        self._lost.setdefault(reason, []).append(partition)

    def lines(self) -> list[str]:
        """What is to be logged now."""
        said = []
        if self._began_ms is not None:
            said.append(
                f"recovered {self._recovered_records} unpublished records of {_count(self._recovered_partitions)} "
                f"from the WAL in {self._ended_ms - self._began_ms} ms"
            )
        if self._gained:
            named = [f"{partition} (epoch {epoch})" for partition, epoch in self._gained.items()]
            said.append(f"leadership of {_count(len(named))} gained: {_first(named)}")
        for reason, partitions in self._lost.items():
            said.append(
                f"leadership of {_count(len(partitions))} ended, {reason}: {_first(list(map(str, partitions)))}"
            )
        LeadershipLog.__init__(self)
        return said


def _count(partitions: int) -> str:
    return f"{partitions} partition{'s' if partitions != 1 else ''}"


def _first(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
