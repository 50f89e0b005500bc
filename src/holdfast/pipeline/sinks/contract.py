"""The contract between sinks and the driver and its tasks.

The one rule: writing the same range again changes nothing. A range has an identity (`model.range_identity`): pipeline, generation,
topic, partition and offsets, but not its writer; its rows depend on its revision alone. The writer is identified by the epoch:
sinks that can reject an epoch older than the newest they were fenced with.

A sink is made from a `SinkTarget`, which pickles, on the driver and again in every executor process.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from holdfast.client.cluster_address import ClusterAddress
from holdfast.contracts.executors import Executors
from holdfast.pipeline.model.column_mapping import Column
from holdfast.pipeline.model.definition import RangeDigest, Revision
from holdfast.pipeline.model.range_identity import RangeIdentity, partition_key
from holdfast.pipeline.model.records import DeadLetterRow as DeadLetterRow
from holdfast.vocabulary.errors import HoldfastError

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkTarget:
    """Everything a sink is made of. It pickles; `repr` hides what may hold a password."""

    pipeline_id: str
    generation: int
    revision: Revision = field(repr=False)
    columns: tuple[Column, ...]
    """The columns of the rows: the mapping's, or those of the SQL's result."""
    embedded: str = field(default="", repr=False)
    """The URL of the embedded ClickHouse."""
    cluster_address: ClusterAddress | None = None
    """This cluster, for sinks that are topics."""
    sink_roots: tuple[str, ...] = ()
    """Below which files may be written; none: anywhere."""

    @property
    def overflow(self) -> bool:
        """Whether rows have the column for unmapped fields."""
        return self.revision.drift.unknown_fields == "overflow"

    def fence_key(self, partition: int) -> str:
        """The key under which epochs are compared."""
        return partition_key(self.pipeline_id, self.generation, self.revision.source.topic, partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class FencedRange:
    """A range of a partition, and the epoch it is written under. `may_be_written`: an earlier attempt may have written it."""

    partition: int
    start: int
    end: int
    epoch: int
    may_be_written: bool = False
    fence: int = 0
    """The result of `PipelineSink.fence`."""
    topic_id: str = ""
    legacy: bool = False
    """See `RangeIdentity`."""
    digest: RangeDigest | None = None
    """What its records were mapped to when it was begun, as recorded; None: nothing is recorded."""

    def identity(self, target: SinkTarget) -> RangeIdentity:
        """Identifies the range in the sink."""
        return RangeIdentity(
            pipeline_id=target.pipeline_id,
            generation=target.generation,
            topic=target.revision.source.topic,
            topic_id=self.topic_id,
            partition=self.partition,
            start=self.start,
            end=self.end,
            legacy=self.legacy,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """A written range. `staged` is what `commit` needs, for sinks that the driver commits."""

    fenced_range: FencedRange
    rows: int = 0
    refused: int = 0
    staged: str = ""
    warnings: tuple[str, ...] = ()


class BlockedError(HoldfastError):
    """The sink accepts no rows now: a table is missing or differs, a server does not respond. Nothing is skipped: retry."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class PipelineSink(Protocol):
    """One target. `write` runs in tasks, everything else on the driver. Not thread-safe."""

    @property
    def guarantee(self) -> str:
        """`EXACTLY_ONCE` or `AT_LEAST_ONCE`, once `prepare` has returned."""
        ...

    @property
    def stages(self) -> bool:
        """Whether `write` only stages rows, and `commit` has the effect."""
        ...

    def prepare(self) -> tuple[str, ...]:
        """Create or check the destination; warnings for the operator. `BlockedError`: it cannot be written to."""
        ...

    def fence(self, partition: int, epoch: int) -> int:
        """After this, no write that was begun before can land: neither of an older epoch nor of an earlier attempt of this one.

        The result goes into every range written from here on. `FencedError`: a newer epoch has fenced the partition.
        """
        ...

    def written_beyond(self, partition: int, end: int) -> int:
        """Where the last range ends that the sink has of a partition of this generation, if it is beyond `end`; else 0.

        `end` is all that the store knows of. A sink that shows no ends by itself has them from `begin`.
        """
        ...

    def begin(self, fenced_ranges: Sequence[FencedRange]) -> None:
        """Before these ranges are written. `BlockedError`: they may not be."""
        ...

    def write(self, fenced_range: FencedRange, rows: Any, refused: Sequence[DeadLetterRow]) -> WriteResult:
        """Write a range's rows (a `pyarrow.Table`, with provenance) and dead letters. `FencedError`, `BlockedError`."""
        ...

    def commit(self, written: Sequence[WriteResult], executors: Executors | None = None) -> None:
        """Make what tasks have staged visible, all at once. A no-op where `write` itself has the effect.

        Where that takes more than a decision, the work is done by tasks on `executors`, if they are given.
        """
        ...

    def close(self) -> None:
        """Close connections."""
        ...
