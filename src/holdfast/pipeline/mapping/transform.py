"""From the records of a range to rows and dead letters, Arrow to Arrow. Runs on executors.

The one rule: the outcome depends on the records and the revision alone, so a range that is written again has the same rows. Every
record becomes a row or a dead letter with a reason, or is dropped by the filter; none is lost.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec

from holdfast.pipeline.filters.config import condition_of
from holdfast.pipeline.filters.evaluation import Filter, select
from holdfast.pipeline.formats.csv_rows import CsvDecoder
from holdfast.pipeline.formats.debezium import Changes
from holdfast.pipeline.formats.decoded import NO_VALUE as NO_VALUE
from holdfast.pipeline.formats.decoded import ValueDecoder
from holdfast.pipeline.formats.decoders import Envelope, envelope_of, value_decoder
from holdfast.pipeline.mapping.arrow_columns import coerce_all, provenance, with_provenance
from holdfast.pipeline.mapping.changes import RowChanges, coerce_changes, filter_changes, with_changes
from holdfast.pipeline.mapping.coercion import CoercionPlan, make_coercion_plan
from holdfast.pipeline.mapping.drift import AddColumns, Decision, DivertToDlq, NoDrift, Overflow, StopPipeline, decide
from holdfast.pipeline.mapping.json_batches import BatchRows, make_batch_plan, read_json_batch, without_schema_ids
from holdfast.pipeline.mapping.text_batches import is_readable, read_csv_batch, read_raw_batch
from holdfast.pipeline.model.definition import ClickHouseConfig, KafkaConfig, Revision
from holdfast.pipeline.model.field_paths import parse_path
from holdfast.pipeline.model.records import DeadLetterRow, SourceRecords

REVISIONS_CACHED_MAX: Final = 32
BATCH_ROWS_MAX: Final = 32_768
"""Records that are read at once: what does not fit makes its batch slow, and not the whole range."""
REASON_CHARS_MAX: Final = 2_000
_PER_RECORD_POLICIES: Final = ("overflow", "dlq")
"""Drift policies that apply record by record."""

ReadBatch = Callable[[Any], BatchRows | None]
"""From an Arrow array of payloads to the mapping's columns; None: read them one by one."""


@dataclass(frozen=True, slots=True)
class PreparedRevision:
    """A revision with its plan and filter compiled."""

    plan: CoercionPlan
    condition: Filter | None
    keys: bool
    headers: bool
    """Whether the mapping or the filter uses them."""
    decoder: ValueDecoder
    envelope: Envelope | None
    """How change events become rows."""
    key_columns: frozenset[str]
    """Of a table that rows are deleted from."""
    read_batch: ReadBatch | None
    """Reads all records at once, if they fit; None: records are coerced one by one."""


@dataclass(frozen=True, slots=True)
class MappedBatch:
    """The outcome of a range. `rows` is a `pyarrow.RecordBatch` ordered by offset, with provenance."""

    rows: Any
    refused: Sequence[DeadLetterRow]
    filtered: int
    newest_ms: int
    """The greatest timestamp."""


@lru_cache(maxsize=REVISIONS_CACHED_MAX)
def prepared_revision(revision: Revision) -> PreparedRevision:
    """Prepared once per process and revision."""
    paths = [parse_path(column.field_path) for column in revision.mapping.columns]
    roots = {path.root for path in paths} | {word for word in ("key", "headers") if word in revision.filters.expression}
    plan, condition = make_coercion_plan(revision.mapping), condition_of(revision.filters)
    decoder = value_decoder(revision.source)
    one_by_one = revision.drift.unknown_fields in _PER_RECORD_POLICIES
    envelope = envelope_of(revision.source)
    sink = revision.sink
    key_columns = frozenset(sink.order_by) if isinstance(sink, ClickHouseConfig) else frozenset[str]()
    read_batch = None if one_by_one or envelope else _batch_reader(revision.source, plan, condition, decoder)
    return PreparedRevision(
        plan, condition, "key" in roots, "headers" in roots, decoder, envelope, key_columns, read_batch
    )


def _batch_reader(
    source: KafkaConfig, plan: CoercionPlan, condition: Filter | None, decoder: ValueDecoder
) -> ReadBatch | None:
    if source.format == "json":
        batch = make_batch_plan(plan, condition)
        if batch is None:
            return None
        if source.schema_registry.url:
            return lambda payloads: read_json_batch(batch, without_schema_ids(payloads))
        return lambda payloads: read_json_batch(batch, payloads)
    if condition is not None or not is_readable(plan):
        return None
    if isinstance(decoder, CsvDecoder):
        return lambda payloads: _unfiltered(read_csv_batch(plan, decoder, payloads))
    if source.format == "raw" and source.raw == "utf-8":
        return lambda payloads: _unfiltered(read_raw_batch(plan, payloads))
    return None


def _unfiltered(rows: Any | None) -> BatchRows | None:
    return None if rows is None else BatchRows(rows, None)


@dataclass(slots=True)
class _DecodedRecords:
    """Decoded records, and those rejected so far."""

    records: SourceRecords
    keys: list[bytes | None]
    payloads: list[bytes | None]
    refused: list[DeadLetterRow]
    changes: RowChanges | None = None
    """Of change events."""
    dropped: int = 0

    def refuse(self, rows: Sequence[tuple[int, str]]) -> None:
        """Reject records, with the reason."""
        offsets = self.records.offsets
        self.refused.extend(
            DeadLetterRow(
                offset=offsets[row], key=self.keys[row], payload=self.payloads[row], reason=reason[:REASON_CHARS_MAX]
            )
            for row, reason in rows
        )

    def keep(self, rows: Sequence[int]) -> None:
        """Continue with some of them."""
        if len(rows) == len(self.records):
            return
        self.records = self.records.take(rows)
        self.keys = [self.keys[row] for row in rows]
        self.payloads = [self.payloads[row] for row in rows]
        if self.changes is not None:
            self.changes = self.changes.take(rows)

    def without(self, rows: Iterable[int]) -> None:
        """Continue with the others."""
        gone = set(rows)
        self.keep([row for row in range(len(self.records)) if row not in gone])

    def set_changes(self, found: Changes) -> None:
        """The values are change events."""
        self.records = msgspec.structs.replace(self.records, fields=found.rows, ops=found.ops, sources=found.sources)
        self.changes, self.dropped = RowChanges(found.deleted, found.versions), len(found.dropped)

    @property
    def present(self) -> Sequence[Any]:
        """The values; of a row that is deleted nothing is left."""
        return self.records.fields if self.changes is None else self.changes.present(self.records.fields)


def map_records(revision: Revision, generation: int, table: Any) -> MappedBatch:
    """Decode, filter and map the records of one range (a table with the schema of Spark's Kafka source)."""
    with _without_gc():
        if table.num_rows <= BATCH_ROWS_MAX:
            return _mapped(revision, generation, table)
        starts = range(0, table.num_rows, BATCH_ROWS_MAX)
        return _joined([_mapped(revision, generation, table.slice(at, BATCH_ROWS_MAX)) for at in starts])


def _joined(parts: list[MappedBatch]) -> MappedBatch:
    """The outcomes of parts of a range as that of the whole."""
    import pyarrow as pa

    return MappedBatch(
        pa.concat_batches([part.rows for part in parts]),
        [row for part in parts for row in part.refused],
        sum(part.filtered for part in parts),
        max(part.newest_ms for part in parts),
    )


def _mapped(revision: Revision, generation: int, table: Any) -> MappedBatch:
    made = prepared_revision(revision)
    if made.read_batch is not None:
        mapped = _map_batch(made.read_batch, revision.source.topic, generation, table)
        if mapped is not None:
            return mapped
    decoded = _decoded(table, revision.source.topic, made)
    newest_ms = max(decoded.records.timestamps, default=0)
    filtered = decoded.dropped + _filter(made.condition, decoded)
    overflow = _drift(revision, decoded)
    changes = decoded.changes
    if changes is None:
        coerced = coerce_all(made.plan, decoded.records)
    else:
        coerced = coerce_changes(made.plan, made.key_columns, decoded.records, changes)
    decoded.refuse([(row, str(refused)) for row, refused in coerced.refused])
    rows = with_provenance(coerced, decoded.records, generation, overflow)
    decoded.refused.sort(key=lambda row: row.offset)
    if changes is not None:
        rows = with_changes(rows, coerced.taken, changes)
    return MappedBatch(rows, decoded.refused, filtered, newest_ms)


def _map_batch(read_batch: ReadBatch, topic: str, generation: int, table: Any) -> MappedBatch | None:
    """All records at once, if all of them that pass the filter fit."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not table.num_rows:
        return None
    read = read_batch(table.column("value").combine_chunks())
    if read is None:
        return None
    partition, offsets, rows = table.column("partition")[0].as_py(), table.column("offset").combine_chunks(), read.rows
    if read.kept is not None:
        offsets = offsets.filter(read.kept)
    newest_us = pc.max(table.column("timestamp")).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).as_py()
    kept = provenance(topic, partition, generation, offsets.cast(pa.uint64()))
    named = pa.RecordBatch.from_arrays([*rows.columns, *kept.values()], names=[*rows.schema.names, *kept])
    return MappedBatch(named, (), table.num_rows - named.num_rows, (newest_us or 0) // 1_000)


def survey(revision: Revision, table: Any) -> Decision:
    """The drift decision for a range, for policies that decide before it is begun."""
    made = prepared_revision(revision)
    decoded = _decoded(table, revision.source.topic, made)
    _filter(made.condition, decoded)
    return decide(revision.drift.unknown_fields.replace("-", "_"), revision.mapping, decoded.present)


def _filter(condition: Filter | None, decoded: _DecodedRecords) -> int:
    if condition is None:
        return 0
    if decoded.changes is not None:
        failed = filter_changes(condition, decoded.records, decoded.changes)
        decoded.refuse([(row, f"filter: {reason}") for row, reason in failed])
        decoded.without(row for row, _ in failed)
        return 0
    selection = select(condition, decoded.records)
    decoded.refuse([(row, f"filter: {failed.reason}") for row, failed in selection.failed])
    decoded.keep(selection.kept)
    return len(selection.dropped)


def _drift(revision: Revision, decoded: _DecodedRecords) -> dict[int, str] | None:
    """Overflow by record; rejects what the policy rejects. Other policies were decided by `survey` before the range was begun."""
    policy = revision.drift.unknown_fields
    if policy not in _PER_RECORD_POLICIES:
        return None
    match decide(policy, revision.mapping, decoded.present):
        case Overflow(texts):
            return dict(texts)
        case DivertToDlq(refused):
            decoded.refuse([(row, str(why)) for row, why in refused])
            decoded.without(row for row, _ in refused)
        case NoDrift() | AddColumns() | StopPipeline():
            pass
    return {} if policy == "overflow" else None


def _decoded(table: Any, topic: str, made: PreparedRevision) -> _DecodedRecords:
    """Decode values by the source's format; those that are not of it are rejected with their bytes."""
    keys, payloads = table.column("key").to_pylist(), table.column("value").to_pylist()
    offsets, times = table.column("offset").to_pylist(), _milliseconds(table.column("timestamp"))
    values = made.decoder.decode(payloads)
    everything = _DecodedRecords(
        SourceRecords(
            fields=values.values,
            keys=list(map(_text, keys)) if made.keys else (),
            headers=_headers(table) if made.headers else (),
            topic=topic,
            partition=table.column("partition")[0].as_py() if table.num_rows else 0,
            offsets=offsets,
            timestamps=times,
        ),
        keys,
        payloads,
        [],
    )
    bad, dropped = values.bad, list[int]()
    if made.envelope is not None:
        found = made.envelope.read(values, payloads, keys, offsets)
        bad, dropped = found.bad, found.dropped
        everything.set_changes(found)
    if bad or dropped:
        everything.refuse(bad)
        everything.without([*dropped, *(row for row, _ in bad)])
    return everything


@contextmanager
def _without_gc() -> Iterator[None]:
    """Without garbage collection: decoded records have no cycles, and scanning hundreds of thousands takes longer than decoding."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _milliseconds(column: Any) -> list[int]:
    import pyarrow as pa

    return [
        0 if value is None else value // 1_000
        for value in column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    ]


def _text(key: bytes | None) -> str | None:
    return None if key is None else key.decode("utf-8", "replace")


def _headers(table: Any) -> list[dict[str, str | None]]:
    column = table.column("headers").to_pylist()
    return [{each["key"]: _text(each["value"]) for each in headers or ()} for headers in column]
