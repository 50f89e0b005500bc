"""Ranges of a partition, what reading them cost, and what can be wrong with them. Data only."""

from dataclasses import dataclass

from holdfast.vocabulary.errors import HoldfastError, InvalidError
from holdfast.vocabulary.types import OffsetRange


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Offsets [start, end) of one partition of a topic."""

    topic: str
    partition: int
    start: int
    end: int

    def __post_init__(self) -> None:
        if self.partition < 0 or not 0 <= self.start <= self.end:
            raise InvalidError("partition range", str(self), "a partition of at least 0, and 0 <= start <= end")

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition} [{self.start}, {self.end})"

    @property
    def offsets(self) -> OffsetRange:
        """The range without its partition."""
        return OffsetRange(self.start, self.end)


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """Start and end offset of every partition of a topic, by number. There may be gaps in between."""

    topic_id: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass(slots=True)
class ReadCounters:
    """Bytes read by origin, and rows returned."""

    bytes_objects: int = 0
    bytes_agents: int = 0
    rows: int = 0

    def add(self, other: "ReadCounters") -> None:
        """Add the counts of `other`."""
        self.bytes_objects += other.bytes_objects
        self.bytes_agents += other.bytes_agents
        self.rows += other.rows


class InvalidClientConfigError(InvalidError):
    """librdkafka refused a property."""

    def __init__(self, reason: str) -> None:
        super().__init__("client configuration", reason, "properties of librdkafka")
        self.args = (reason,)
        self.reason = reason

    def __str__(self) -> str:
        return f"invalid client configuration: {self.reason}"


class KafkaRefusedError(InvalidError):
    """The broker refused the request."""

    def __str__(self) -> str:
        return f"{self.what} {self.given} {self.allowed}"


class KafkaNotFoundError(KafkaRefusedError):
    """What the request names does not exist."""


class KafkaConflictError(KafkaRefusedError):
    """What the request names exists already, or is in use."""


class DataLossError(HoldfastError):
    """Offsets of a range are not in the log: removed by retention, or never written."""

    def __init__(
        self, topic: str, partition: int, requested: tuple[int, int], lost: tuple[int, int], reason: str
    ) -> None:
        super().__init__(topic, partition, requested, lost, reason)
        self.topic, self.partition, self.requested, self.lost, self.reason = topic, partition, requested, lost, reason

    def __str__(self) -> str:
        return (
            f"{self.topic}:{self.partition}: offsets {self.lost[0]} to {self.lost[1] - 1} are missing, "
            f"{self.requested[0]} to {self.requested[1] - 1} were requested: {self.reason}"
        )


class TopicChangedError(HoldfastError):
    """The topic was deleted and recreated under the same name."""

    def __init__(self, topic: str, before: str, now: str) -> None:
        super().__init__(topic, before, now)
        self.topic, self.before, self.now = topic, before, now

    def __str__(self) -> str:
        return (
            f"topic {self.topic!r} was deleted and recreated (id {self.before}, now {self.now}): "
            "offsets of the old topic are not valid in the new one"
        )
