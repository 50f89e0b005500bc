"""A task's part: rows in, staged pieces out. Nothing is visible in the table yet.

The one rule: every attempt stages under tokens of its own. What a failed or speculative attempt has staged is in no message, so
no commit refers to it; it goes with its batch's partition, or when the server deletes what is old.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.errors import ClickHouseUnreachableError
from holdfast.spark.clickhouse.batches import RowPiece
from holdfast.spark.clickhouse.options import ClickHouseOptions
from holdfast.spark.clickhouse.target import Target
from holdfast.vocabulary.random import Random

_TRIES: Final = 3
_SETTINGS: Final[dict[str, str | int]] = {
    "async_insert": 0,
    "wait_for_async_insert": 1,
    "input_format_null_as_default": 0,  # a null for a column that has none is an error, not a 0
    "wait_end_of_query": 1,
}


@dataclass(frozen=True, slots=True)
class StagedRows:
    """What a task has staged: pieces, or if it is small the rows themselves, as an Arrow stream."""

    pieces: list[RowPiece] = field(default_factory=list)
    inline: bytes = b""
    inline_rows: int = 0


class RowStager:
    """Stages rows for one batch of one run."""

    def __init__(
        self, client: ClickHouseClient, target: Target, options: ClickHouseOptions, staged_batch: str, random: Random
    ) -> None:
        self._client, self._target, self._options = client, target, options
        self._staged_batch, self._random = staged_batch, random

    def stage_all(self, batches: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage the rows of a task."""
        pieces: list[RowPiece] = []
        buffered: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            buffered.append(batch)
            size += batch.nbytes
            if size >= self._options.piece_bytes:
                pieces.append(self.stage(buffered))
                buffered, size = [], 0
        if not buffered:
            return StagedRows(pieces)
        if not pieces and size <= self._options.inline_bytes:
            return StagedRows([], arrow_stream(buffered), sum(batch.num_rows for batch in buffered))
        return StagedRows([*pieces, self.stage(buffered)])

    def stage(self, batches: Sequence[pa.RecordBatch]) -> RowPiece:
        """Stage some rows as one piece. If its answer is lost, a piece is staged again, under another token."""
        data = arrow_stream(batches)
        for attempt in range(_TRIES):
            token = self._random.token()
            statement = self._target.staged.insert(self._staged_batch, token)
            try:
                self._client.insert(statement, data, settings=_SETTINGS)
            except ClickHouseUnreachableError:
                if attempt == _TRIES - 1:
                    raise
                continue
            return RowPiece(token, sum(batch.num_rows for batch in batches))
        raise AssertionError("unreachable")


def arrow_stream(batches: Sequence[pa.RecordBatch]) -> bytes:
    """The batches as one Arrow stream."""
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return bytes(buffer.getvalue())


def read_batches(stream: bytes) -> list[pa.RecordBatch]:
    """The batches of a stream that `arrow_stream` wrote."""
    with pa.ipc.open_stream(stream) as reader:
        return list(reader)
