"""PartitionSource: which partitions a consumer reads, and where its offsets are kept: a group, a registry, or nowhere.

The one rule: a partition is announced by `assigned` before its first record is fetched, and by `revoked` before somebody else
gets it, where there is time for that.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.client.records.fetcher import Fetcher
from holdfast.client.records.model import TopicPartition
from holdfast.vocabulary.errors import HoldfastError


class AssignmentEvents(Protocol):
    """What a source tells its consumer, on the event loop."""

    async def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """These are ours from now on."""
        ...

    async def revoked(self, partitions: Sequence[TopicPartition], *, lost: bool) -> None:
        """These are not ours any more; `lost`: it is too late to commit."""
        ...

    def to_commit(self) -> Mapping[TopicPartition, int]:
        """What is processed and, by automatic commits, to be committed before partitions are given away. From any thread."""
        ...

    def was_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These were committed. From any thread."""
        ...


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What a source works with. `idle_ms`: for how long the application has asked for nothing."""

    fetcher: Fetcher
    events: AssignmentEvents
    idle_ms: Callable[[], float]


class PartitionSource(Protocol):
    """Opened once, closed once."""

    def properties(self) -> Mapping[str, Any]:
        """What librdkafka is told, beside the consumer's settings."""
        ...

    async def open(self, context: SourceContext) -> None:
        """Begin to read."""
        ...

    def check(self) -> None:
        """Raise what has ended the membership, if it has ended."""
        ...

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, HoldfastError]:
        """Keep these offsets; the error of each partition that refused."""
        ...

    async def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The offsets that are kept."""
        ...

    async def lost_error(self, partition: TopicPartition) -> HoldfastError:
        """Why records of a partition that was lost cannot be committed."""
        ...

    async def close(self) -> None:
        """Give all partitions back."""
        ...
