"""What a sink is to the driver and to its tasks.

The one rule: writing the same range again changes nothing. A range is known by its token, which says pipeline, generation, topic,
partition and offsets, and nothing of who writes it; the rows of a range depend on its recipe alone. Who writes it is the epoch's
business: a sink that can refuses an epoch older than the newest it was told of.

A sink is made from a `Target`, which pickles, on the driver and again in every executor's process.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from holdfast.client.cluster_address import ClusterAddress
from holdfast.pipeline.model import definition
from holdfast.pipeline.model.column_mapping import Column
from holdfast.pipeline.model.definition import Revision
from holdfast.pipeline.model.records import DeadLetterRow as DeadLetterRow
from holdfast.vocabulary.errors import HoldfastError

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkTarget:
    """Everything a sink is made of. It pickles; what may hold a password is not shown."""

    pipeline_id: str
    generation: int
    recipe: Revision = field(repr=False)
    columns: tuple[Column, ...]
    """The columns of the rows: the mapping's, or those of the SQL's result."""
    embedded: str = field(default="", repr=False)
    """The URL of the embedded ClickHouse."""
    cluster_address: ClusterAddress | None = None
    """This cluster, for sinks that are topics."""

    @property
    def overflow(self) -> bool:
        """Whether rows have the column for what the mapping does not know."""
        return self.recipe.drift.unknown_fields == "overflow"

    def fence_key(self, partition: int) -> str:
        """What epochs are compared under."""
        return f"{self.pipeline_id}:{self.generation}:{self.recipe.source.topic}:{partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FencedRange:
    """One range of one partition, and the epoch it is written under. `again`: somebody may have written it already."""

    partition: int
    start: int
    end: int
    epoch: int
    again: bool = False
    fence: int = 0
    """What `Sink.fence` gave for it."""

    def token(self, target: SinkTarget) -> str:
        """What the sink knows the range by."""
        return definition.insert_token(
            target.pipeline_id, target.generation, target.recipe.source.topic, self.partition, self.start, self.end
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """What became of a portion. `staged` is what `commit` needs, for sinks that the driver commits."""

    fenced_range: FencedRange
    rows: int = 0
    refused: int = 0
    staged: str = ""
    warnings: tuple[str, ...] = ()


class BlockedError(HoldfastError):
    """The sink takes no rows now: a table is missing or does not fit, a server does not answer. Nothing is skipped: try again."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class PipelineSink(Protocol):
    """One target. `write` runs in tasks, everything else on the driver. Not for several threads at once."""

    @property
    def guarantee(self) -> str:
        """`EXACTLY_ONCE` or `AT_LEAST_ONCE`, once `prepare` has looked."""
        ...

    def prepare(self) -> tuple[str, ...]:
        """Make or check what is written into. What a person should know is returned; what is in the way is a `BlockedError`."""
        ...

    def fence(self, partition: int, epoch: int) -> int:
        """After this, nothing that was begun before can land any more: not of an older epoch, not of an earlier try of this one.

        The answer goes into every portion that is written from here on. `FencedError`: a newer epoch was told already.
        """
        ...

    def write(self, fenced_range: FencedRange, rows: Any, refused: Sequence[DeadLetterRow]) -> WriteResult:
        """Write a portion's rows (a `pyarrow.Table`, with provenance) and refusals. `FencedError`, `BlockedError`."""
        ...

    def commit(self, written: Sequence[WriteResult]) -> None:
        """Make visible what tasks have staged, all of it at once. Nothing where `write` was the effect itself."""
        ...

    def close(self) -> None:
        """Let connections go."""
        ...
