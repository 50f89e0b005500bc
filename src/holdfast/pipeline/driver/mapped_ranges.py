"""A range's records, mapped: rows, dead letters, and the digest by which mapping them again is compared. Runs on executors.

The one rule: nothing is written that differs from the digest in the range's intent. An earlier attempt may have written what was
recorded there, and the sink would take other rows for the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from holdfast.pipeline.driver import mapped_files
from holdfast.pipeline.driver.task_outcomes import TaskOutcome
from holdfast.pipeline.mapping.content_hash import comparable, digest_of
from holdfast.pipeline.mapping.transform import map_records
from holdfast.pipeline.model.definition import RangeDigest
from holdfast.pipeline.model.records import DeadLetterRow
from holdfast.pipeline.sinks.contract import BlockedError, FencedRange, SinkTarget

NOTHING: Final = RangeDigest(rows=0, rows_hash="")
"""Of a range without records, or one whose records were all dropped by filters."""


@dataclass(frozen=True, slots=True)
class MappedRange:
    """Rows (a `pyarrow.Table` with provenance) and dead letters, and what was counted on the way."""

    rows: Any
    refused: Sequence[DeadLetterRow]
    outcome: TaskOutcome

    @property
    def digest(self) -> RangeDigest:
        """Of both."""
        return self.outcome.digest or NOTHING


def map_range(target: SinkTarget, fenced_range: FencedRange, table: Any) -> MappedRange:
    """Map the records of a range; None: it has none."""
    import pyarrow as pa

    if table is None:
        done = TaskOutcome(partition=fenced_range.partition, kind="done", digest=NOTHING)
        return MappedRange(pa.table({}), (), done)
    mapped = map_records(target.revision, target.generation, table)
    outcome = TaskOutcome(
        partition=fenced_range.partition,
        kind="done",
        rows=mapped.rows.num_rows,
        refused=len(mapped.refused),
        filtered=mapped.filtered,
        read=table.num_rows,
        payload_bytes=payload_bytes_of(table),
        newest_ms=mapped.newest_ms,
        digest=digest_of(mapped.rows, mapped.refused),
    )
    return MappedRange(pa.Table.from_batches([mapped.rows]), mapped.refused, outcome)


def without_rows(mapped: MappedRange) -> MappedRange:
    """The dead letters alone."""
    import pyarrow as pa

    digest = msgspec.structs.replace(mapped.digest, rows=0, rows_hash="")
    outcome = msgspec.structs.replace(mapped.outcome, rows=0, digest=digest)
    return MappedRange(pa.table({}), mapped.refused, outcome)


def keep_mapped(target: SinkTarget, fenced_range: FencedRange, mapped: MappedRange) -> None:
    """For the task that writes it."""
    mapped_files.put_rows(target, fenced_range, mapped.rows)
    mapped_files.put_refused(target, fenced_range, mapped.refused)


def kept_range(target: SinkTarget, fenced_range: FencedRange) -> MappedRange | None:
    """What an earlier task has mapped, if it is here and is what was recorded."""
    import pyarrow as pa

    recorded = fenced_range.digest
    if recorded is None:
        return None
    rows = mapped_files.take_rows(target, fenced_range) if recorded.rows else pa.table({})
    refused = mapped_files.take_refused(target, fenced_range) if recorded.refused else []
    if rows is None or refused is None or digest_of(rows, refused) != recorded:
        return None
    outcome = TaskOutcome(partition=fenced_range.partition, kind="done", digest=recorded)
    return MappedRange(rows, refused, outcome)


def check_rows(fenced_range: FencedRange, found: RangeDigest) -> None:
    """`BlockedError`: the rows are not those that were recorded."""
    recorded = fenced_range.digest
    if recorded is not None and not _same(recorded.rows, recorded.rows_hash, found.rows, found.rows_hash):
        raise changed(fenced_range, found)


def check_refused(fenced_range: FencedRange, found: RangeDigest) -> None:
    """The same for dead letters."""
    recorded = fenced_range.digest
    if recorded is not None and not _same(recorded.refused, recorded.refused_hash, found.refused, found.refused_hash):
        raise changed(fenced_range, found)


def changed(fenced_range: FencedRange, found: RangeDigest) -> BlockedError:
    """A range that is not what it was, with both."""
    offsets = f"offsets {fenced_range.start} to {fenced_range.end - 1} of partition {fenced_range.partition}"
    return BlockedError(
        f"{offsets} are {found} now and were {fenced_range.digest} when they were begun, which may be in the sink; "
        "rewind the pipeline to the checkpoint to continue with what they are now"
    )


def _same(recorded: int, recorded_hash: str, found: int, found_hash: str) -> bool:
    return recorded == found and (recorded_hash == found_hash or not comparable(recorded_hash))


def payload_bytes_of(table: Any) -> int:
    """Bytes of keys and values."""
    return 0 if table is None else int(table.column("value").nbytes + table.column("key").nbytes)
