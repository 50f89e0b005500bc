"""Parquet files under a path or URL: one per range, named by it.

The one rule: a range has one file name, which names its pipeline, too, and every writer writes the same rows to it. So a range
written again, by a successor or by a zombie, is the same file: exactly-once without a fence. A range without rows has no file.
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from holdfast.contracts.executors import Executors
from holdfast.pipeline.model.definition import ParquetConfig
from holdfast.pipeline.sinks.contract import EXACTLY_ONCE, DeadLetterRow, FencedRange, SinkTarget, WriteResult
from holdfast.pipeline.sinks.files import parquet_bytes, parse_location
from holdfast.pipeline.sinks.lake import put_dead_letters
from holdfast.pipeline.sinks.provenance import with_pipeline
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import InvalidError


class ParquetSink:
    """One target in one process."""

    guarantee = EXACTLY_ONCE
    stages = False

    def __init__(self, target: SinkTarget) -> None:
        config = target.revision.sink
        if not isinstance(config, ParquetConfig):
            raise InvalidError("sink", type(config).__name__, "parquet")
        self._target, self._location = target, parse_location(config.url)

    def prepare(self) -> tuple[str, ...]:
        return ()

    def fence(self, partition: int, epoch: int) -> int:
        """Not needed: a zombie and its successor write the same file."""
        return epoch

    def written_beyond(self, partition: int, end: int) -> int:
        """By the names of files, which sort by the offset they start at."""
        names = self._location.names_from(folder_of(self._target, partition), f"{end:020d}")
        return max((last for name in names if (last := end_in(name, self._target.pipeline_id)) > end), default=0)

    def begin(self, fenced_ranges: Sequence[FencedRange]) -> None:
        """A no-op: a file's name has the end of its range."""

    def write(self, fenced_range: FencedRange, rows: Any, refused: Sequence[DeadLetterRow]) -> WriteResult:
        failpoints.reached("pipeline.inserting")
        if rows.num_rows:
            self._location.put(file_name(self._target, fenced_range), self._file(rows))
        failpoints.reached("pipeline.inserted")
        put_dead_letters(self._location, self._target, fenced_range, refused)
        failpoints.reached("pipeline.dlq-inserted")
        return WriteResult(fenced_range=fenced_range, rows=rows.num_rows, refused=len(refused))

    def _file(self, rows: Any) -> bytes:
        return parquet_bytes(with_pipeline(rows, self._target.pipeline_id))

    def commit(self, written: Sequence[WriteResult], executors: Executors | None = None) -> None:
        """A no-op: every file is visible once written."""

    def close(self) -> None:
        """Nothing is open."""


def folder_of(target: SinkTarget, partition: int) -> str:
    """`generation=1/topic=orders/partition=3`: of every pipeline that shares the location."""
    topic = quote(target.revision.source.topic, safe="")
    return f"generation={target.generation}/topic={topic}/partition={partition}"


def file_name(target: SinkTarget, fenced_range: FencedRange) -> str:
    """`generation=1/topic=orders/partition=3/{start}-{end}-{pipeline}-{topic id}.parquet`, with offsets of twenty digits."""
    return f"{folder_of(target, fenced_range.partition)}/{fenced_range.identity(target).offsets_name}.parquet"


def end_in(name: str, pipeline_id: str) -> int:
    """Where the range of a pipeline's file ends; -1: the file is another's, or of a release that did not name the pipeline."""
    _, _, rest = name.removesuffix(".parquet").partition("-")
    end, _, owner = rest.partition("-")
    ours = owner == pipeline_id or owner.startswith(f"{pipeline_id}-")
    return int(end) if ours and end.isdigit() else -1
