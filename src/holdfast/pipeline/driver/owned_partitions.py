"""The partitions a slot owns and what it counted, as values. No I/O."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from holdfast.pipeline.driver.range_plan import PartitionBacklog
from holdfast.pipeline.driver.sources import TopicBounds
from holdfast.pipeline.driver.task_outcomes import TaskOutcome
from holdfast.pipeline.model.driver_protocol import PartitionProgress, SlotProgress

WARNINGS_MAX: Final = 20


@dataclass(slots=True)
class TakenPartition:
    """A partition that was taken over: no write of an older epoch can land, and no range is open."""

    partition: int
    epoch: int
    position: int
    stop: int | None
    fence: int = 0
    end: int = 0
    since_ms: int = 0
    """When a record after the position was first seen; 0: there is none."""
    row_bytes: float = 0.0
    newest_ms: int = 0
    """The time of the last record that was written."""
    caught_up: bool = False

    def update_end(self, end: int, now_ms: int) -> None:
        """The source now ends here."""
        self.end = end
        if self.backlog.rows == 0:
            self.since_ms, self.caught_up = 0, True
        elif self.since_ms == 0:
            self.since_ms = max(1, now_ms)

    def advance(self, outcome: TaskOutcome, end: int, now_ms: int) -> None:
        """A range was written and the checkpoint moved."""
        self.position = end
        self.since_ms = max(1, now_ms) if self.backlog.rows else 0
        if outcome.read:
            self.row_bytes = outcome.payload_bytes / outcome.read
        self.newest_ms = max(self.newest_ms, outcome.newest_ms)

    @property
    def backlog(self) -> PartitionBacklog:
        """The input of planning."""
        return PartitionBacklog(
            partition=self.partition,
            position=self.position,
            end=self.end,
            since_ms=self.since_ms,
            stop=self.stop,
            row_bytes=self.row_bytes,
        )

    @property
    def finished(self) -> bool:
        """Whether the generation's end is reached."""
        return self.stop is not None and self.position >= self.stop

    def progress(self, *, now_ms: int, wall_ms: int) -> PartitionProgress:
        """Position and lag. Until it has caught up, lag is the age of the last record written; after that, of the oldest
        backlog."""
        lag_ms = 0
        if self.backlog.rows:
            catching_up = not self.caught_up and self.newest_ms
            lag_ms = wall_ms - self.newest_ms if catching_up else now_ms - self.since_ms
        return PartitionProgress(checkpoint=self.position, end=max(self.end, self.position), lag_ms=max(0, lag_ms))


@dataclass(slots=True)
class SlotCounters:
    """Counts since the slot began."""

    rows: int = 0
    batches: int = 0
    filtered: int = 0
    dlq_rows: int = 0
    bytes_objects: int = 0
    bytes_agents: int = 0
    warnings: dict[str, None] = field(default_factory=dict)
    source_partitions: int = 0

    def add(self, outcome: TaskOutcome) -> None:
        """A range whose checkpoint has moved."""
        self.rows += outcome.rows
        self.filtered += outcome.filtered
        self.dlq_rows += outcome.refused
        self.bytes_objects += outcome.bytes_objects
        self.bytes_agents += outcome.bytes_agents
        self.warn(*outcome.warnings)

    def warn(self, *texts: str) -> None:
        """Add warnings for the operator; each once, the newest are kept."""
        for text in texts:
            self.warnings.pop(text, None)
            self.warnings[text] = None
        while len(self.warnings) > WARNINGS_MAX:
            del self.warnings[next(iter(self.warnings))]

    def progress(self, slot: str, partitions: dict[str, PartitionProgress], blocked: str) -> SlotProgress:
        """The message to the worker."""
        return SlotProgress(
            slot=slot,
            rows=self.rows,
            batches=self.batches,
            filtered=self.filtered,
            dlq_rows=self.dlq_rows,
            bytes_objects=self.bytes_objects,
            bytes_agents=self.bytes_agents,
            partitions=partitions,
            blocked=blocked,
            warnings=tuple(self.warnings),
            source_partitions=self.source_partitions,
        )


def deleted_unread(owned: Iterable[TakenPartition], bounds: TopicBounds) -> dict[int, str]:
    """The partitions whose next records are gone, and why: a range of them would block, and hold back retention."""
    behind = [each for each in owned if each.position < bounds.starts[each.partition]]
    return {each.partition: why for each in behind if (why := offset_errors(each, bounds))}


def offset_errors(owned: TakenPartition, bounds: TopicBounds) -> str:
    """Why the position is not within the offsets of the source; empty: it is."""
    start, end = bounds.starts[owned.partition], bounds.ends[owned.partition]
    if owned.finished:
        return ""
    if owned.position < start:
        return (
            f"offsets {owned.position} to {start - 1} of partition {owned.partition} were deleted before they were read; "
            "rewind the pipeline to continue after them"
        )
    if owned.position > end:
        return (
            f"partition {owned.partition} ends at {end}, before the checkpoint {owned.position}: was the topic recreated? "
            "rewind the pipeline to continue"
        )
    return ""
