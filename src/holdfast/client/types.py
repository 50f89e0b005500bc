"""Ranges of offsets, and what can be wrong with them. Data only."""

from dataclasses import dataclass

from holdfast.vocabulary.errors import HoldfastError, InvalidError


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [start, end) of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    def __post_init__(self) -> None:
        if self.partition < 0 or not 0 <= self.start <= self.end:
            raise InvalidError("offset range", str(self), "a partition from 0 on, and 0 <= start <= end")

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition} [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """Where the partitions of a topic begin and end, by number. What comes between may have gaps."""

    topic_id: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass(slots=True)
class ReadCounters:
    """What reading cost, and brought."""

    bytes_objects: int = 0
    bytes_agents: int = 0
    rows: int = 0

    def add(self, other: "ReadCounters") -> None:
        """Count what another counted, too."""
        self.bytes_objects += other.bytes_objects
        self.bytes_agents += other.bytes_agents
        self.rows += other.rows


class DataLossError(HoldfastError):
    """Offsets of a range are not in the log: removed by retention, or never there."""

    def __init__(self, topic: str, partition: int, asked: tuple[int, int], lost: tuple[int, int], reason: str) -> None:
        super().__init__(topic, partition, asked, lost, reason)
        self.topic, self.partition, self.asked, self.lost, self.reason = topic, partition, asked, lost, reason

    def __str__(self) -> str:
        return (
            f"{self.topic}:{self.partition}: offsets {self.lost[0]} to {self.lost[1] - 1} are not there, "
            f"{self.asked[0]} to {self.asked[1] - 1} were asked for: {self.reason}"
        )


class TopicChangedError(HoldfastError):
    """The topic is not the one it was: deleted and made again under the same name."""

    def __init__(self, topic: str, before: str, now: str) -> None:
        super().__init__(topic, before, now)
        self.topic, self.before, self.now = topic, before, now

    def __str__(self) -> str:
        return (
            f"topic {self.topic!r} was deleted and made again: it was {self.before}, now it is {self.now}; "
            "offsets of the old one mean nothing in the new one"
        )
