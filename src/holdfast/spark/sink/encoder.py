"""Columns to RecordBatches: rows of many Arrow batches are buffered by partition until they fill one.

The one rule: no Python code runs per record. Columns become lists, lists are sliced and zipped, and the native encoder writes them.
"""

from dataclasses import dataclass, field
from itertools import pairwise, repeat
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
from pyarrow import compute

from holdfast.log.batches import Record, encode
from holdfast.log.batches.header import HEADER_BYTES
from holdfast.spark.sink.partitioner import NumpyArray, assign_partitions
from holdfast.spark.sink.rows import Headers, Rows
from holdfast.vocabulary.errors import InvalidError

RECORD_OVERHEAD_BYTES: Final = 40  # the most a record costs beside key, value and headers
HEADER_OVERHEAD_BYTES: Final = 10
BATCH_OVERHEAD_BYTES: Final = HEADER_BYTES + 64  # a codec may add a little to what it cannot shrink


@dataclass(frozen=True, slots=True)
class SinkTopic:
    """What the encoder needs of a topic to write batches that it accepts."""

    name: str
    id: str
    partitions: int
    batch_bytes_max: int
    compacted: bool


@dataclass(slots=True)
class EncodedBatches:
    """Batches of one partition, in order."""

    batches: list[bytes] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _PendingRows:
    """Rows of one partition that do not fill a batch yet. `headers` is None until a row has some."""

    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[Headers] | None = None
    times_ms: list[int] = field(default_factory=list)
    size_bytes: int = 0


class BatchEncoder:
    """Rows of one task in, batches by topic and partition out."""

    def __init__(self, *, compression: str, batch_bytes: int, spread: int) -> None:
        self._compression, self._batch_bytes, self._spread = compression, batch_bytes, spread
        self._pending: dict[tuple[SinkTopic, int], _PendingRows] = {}
        self._done: dict[tuple[SinkTopic, int], EncodedBatches] = {}
        self.size_bytes = 0
        """What is buffered, encoded or not."""

    def add(self, topic: SinkTopic, rows: Rows) -> None:
        """Buffer rows of one topic."""
        count = len(rows.values)
        if topic.compacted and (rows.keys is None or rows.keys.null_count):
            raise InvalidError(f"key of a record for {topic.name}", None, "set: the topic is compacted by key")
        sizes = _sizes(rows)
        limit = topic.batch_bytes_max - BATCH_OVERHEAD_BYTES
        if count and sizes.max() > limit:
            raise InvalidError(
                f"size of a record for {topic.name}", int(sizes.max()), f"at most {limit} bytes (max.message.bytes)"
            )
        partitions = assign_partitions(
            rows.keys, rows.partitions, partitions=topic.partitions, spread=self._spread, rows=count
        )
        self._spread += 1
        order = np.argsort(partitions, kind="stable")
        partitions, sizes = partitions[order], sizes[order]
        sorted_rows = _RowLists.of(rows, order)
        edges = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), count] if count else []
        for start, end in pairwise(edges):
            self._extend(topic, int(partitions[start]), sorted_rows, sizes, start, end)
        self.size_bytes += int(sizes.sum())

    def take(self) -> dict[tuple[SinkTopic, int], EncodedBatches]:
        """Everything so far as batches; the buffers are empty afterwards."""
        for (topic, partition), pending in self._pending.items():
            if pending.values:
                self._encode(topic, partition, pending)
        done, self._done, self._pending, self.size_bytes = self._done, {}, {}, 0
        return done

    def _extend(
        self, topic: SinkTopic, partition: int, rows: "_RowLists", sizes: NumpyArray, start: int, end: int
    ) -> None:
        """Add rows [start, end); encode a batch when it is full."""
        full = min(self._batch_bytes, topic.batch_bytes_max - BATCH_OVERHEAD_BYTES)
        pending = self._pending.setdefault((topic, partition), _PendingRows())
        sums = np.concatenate(([0], np.cumsum(sizes[start:end])))
        at, last = 0, end - start
        while at < last:
            room = full - pending.size_bytes
            fit = int(np.searchsorted(sums, sums[at] + room, side="right")) - 1 - at
            if fit <= 0 and pending.values:
                self._encode(topic, partition, pending)
                pending = self._pending[topic, partition] = _PendingRows()
                continue
            fit = max(fit, 1)  # a row larger than a batch gets one of its own
            rows.copy_to(pending, start + at, start + at + fit)
            pending.size_bytes += int(sums[at + fit] - sums[at])
            at += fit

    def _encode(self, topic: SinkTopic, partition: int, pending: _PendingRows) -> None:
        if not pending.values:
            return
        count = len(pending.values)
        headers: Any = pending.headers if pending.headers is not None else repeat(())
        # The kernels accept any tuple of five; creating a Record for each would cost more than writing it.
        records = list(zip(range(count), pending.times_ms, pending.keys, pending.values, headers, strict=False))
        batch = encode(cast(list[Record], records), compression=self._compression)
        encoded = self._done.setdefault((topic, partition), EncodedBatches())
        encoded.batches.append(batch)
        encoded.counts.append(count)


@dataclass(slots=True)
class _RowLists:
    """Columns as lists, in the order of their partitions."""

    keys: list[bytes | None] | None
    values: list[bytes | None]
    headers: list[Headers] | None
    times_ms: list[int]

    @classmethod
    def of(cls, rows: Rows, order: NumpyArray) -> "_RowLists":
        headers = None
        if rows.headers is not None and any(rows.headers):
            headers = [rows.headers[at] for at in order.tolist()]
        keys = None if rows.keys is None else _reorder(rows.keys, order)
        return cls(keys, _reorder(rows.values, order), headers, rows.times_ms[order].tolist())

    def copy_to(self, pending: _PendingRows, start: int, end: int) -> None:
        """Add rows [start, end)."""
        if self.headers is not None or pending.headers is not None:
            if pending.headers is None:
                pending.headers = [()] * len(pending.values)
            pending.headers.extend(self.headers[start:end] if self.headers is not None else [()] * (end - start))
        pending.keys.extend(self.keys[start:end] if self.keys is not None else repeat(None, end - start))
        pending.values.extend(self.values[start:end])
        pending.times_ms.extend(self.times_ms[start:end])


def _reorder(column: pa.Array, order: NumpyArray) -> list[bytes | None]:
    found: list[bytes | None] = column.to_numpy(zero_copy_only=False)[order].tolist()
    return found


def _sizes(rows: Rows) -> NumpyArray:
    """An upper bound for the bytes of each row in a batch."""
    sizes = _lengths(rows.values) + RECORD_OVERHEAD_BYTES
    if rows.keys is not None:
        sizes = sizes + _lengths(rows.keys)
    if rows.headers is not None:
        sizes = sizes + np.fromiter(map(_header_bytes, rows.headers), dtype=np.int64, count=len(rows.headers))
    return sizes


def _lengths(column: pa.Array) -> NumpyArray:
    lengths: NumpyArray = compute.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _header_bytes(headers: Headers) -> int:
    return sum(len(key.encode()) + len(value or b"") + HEADER_OVERHEAD_BYTES for key, value in headers)
