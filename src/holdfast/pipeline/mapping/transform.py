"""Records of a range to rows, and to refusals of those that are none. On an executor, from Arrow to Arrow.

The one rule: the outcome depends on the records and the recipe alone, so that a range that is written again is the same rows. Every
record is a row, refused with a reason, or dropped by the filter: none gets lost between.
"""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec

from holdfast.pipeline.filters.config import condition_of
from holdfast.pipeline.filters.evaluation import Filter, select
from holdfast.pipeline.mapping.arrow_columns import coerce_all, provenance, with_provenance
from holdfast.pipeline.mapping.coercion import CoercionPlan, make_coercion_plan
from holdfast.pipeline.mapping.drift import AddColumns, Decision, DivertToDlq, NoDrift, Overflow, StopPipeline, decide
from holdfast.pipeline.mapping.json_batches import read_json_batch, schema_of
from holdfast.pipeline.model.definition import Revision
from holdfast.pipeline.model.field_paths import parse_path
from holdfast.pipeline.model.records import DeadLetterRow, SourceRecords

RECIPES_KEPT: Final = 32
REASON_CHARS_MAX: Final = 2_000
NO_VALUE: Final = "the record has no value"
_LOOKS_AT_FIELDS: Final = ("overflow", "dlq")
"""Policies about unknown fields that are carried out record by record."""

_decode: Final = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class PreparedRevision:
    """A recipe made ready, in this process."""

    plan: CoercionPlan
    condition: Filter | None
    keys: bool
    headers: bool
    """Whether anything looks at them."""
    whole: Any
    """What `read_json_batch` needs to take a batch at once; None: records are looked at one by one."""


@dataclass(frozen=True, slots=True)
class MappedBatch:
    """What became of a range's records. `rows` is a `pyarrow.RecordBatch` in the order of offsets, with provenance."""

    rows: Any
    refused: Sequence[DeadLetterRow]
    filtered: int
    newest_ms: int
    """The time of the last record."""


@lru_cache(maxsize=RECIPES_KEPT)
def prepared_revision(recipe: Revision) -> PreparedRevision:
    """Made once per process and version."""
    paths = [parse_path(column.field_path) for column in recipe.mapping.columns]
    roots = {path.root for path in paths} | {word for word in ("key", "headers") if word in recipe.filters.expression}
    plan, condition = make_coercion_plan(recipe.mapping), condition_of(recipe.filters)
    one_by_one = condition is not None or recipe.drift.unknown_fields in _LOOKS_AT_FIELDS
    return PreparedRevision(
        plan, condition, "key" in roots, "headers" in roots, None if one_by_one else schema_of(plan)
    )


@dataclass(slots=True)
class _DecodedRecords:
    """Records that were decoded, and beside them those that are refused so far."""

    records: SourceRecords
    keys: list[bytes | None]
    payloads: list[bytes | None]
    refused: list[DeadLetterRow]

    def refuse(self, rows: Sequence[tuple[int, str]]) -> None:
        """Set records aside, with the reason."""
        offsets = self.records.offsets
        self.refused.extend(
            DeadLetterRow(
                offset=offsets[row], key=self.keys[row], payload=self.payloads[row], reason=reason[:REASON_CHARS_MAX]
            )
            for row, reason in rows
        )

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with some of them."""
        if len(rows) == len(self.records):
            return
        self.records = self.records.take(rows)
        self.keys = [self.keys[row] for row in rows]
        self.payloads = [self.payloads[row] for row in rows]


def map_records(recipe: Revision, generation: int, table: Any) -> MappedBatch:
    """Decode, filter and map the records of one range (a table shaped as Spark's Kafka source has it)."""
    with _without_cycles():
        return _mapped(recipe, generation, table)


def _mapped(recipe: Revision, generation: int, table: Any) -> MappedBatch:
    made = prepared_revision(recipe)
    if made.whole is not None and (mapped := _whole(made, recipe.source.topic, generation, table)) is not None:
        return mapped
    decoded = _decoded(table, recipe.source.topic, made)
    newest_ms = max(decoded.records.timestamps, default=0)
    filtered = _filter(made.condition, decoded)
    overflow = _drift(recipe, decoded)
    coerced = coerce_all(made.plan, decoded.records)
    decoded.refuse([(row, str(refused)) for row, refused in coerced.refused])
    rows = with_provenance(coerced, decoded.records, generation, overflow)
    decoded.refused.sort(key=lambda row: row.offset)
    return MappedBatch(rows, decoded.refused, filtered, newest_ms)


def _whole(made: PreparedRevision, topic: str, generation: int, table: Any) -> MappedBatch | None:
    """All records at once, if all of them are rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = read_json_batch(made.plan, made.whole, table.column("value").combine_chunks())
    if rows is None:
        return None
    partition, offsets = table.column("partition")[0].as_py(), table.column("offset").combine_chunks()
    newest_us = pc.max(table.column("timestamp")).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).as_py()
    kept = provenance(topic, partition, generation, offsets.cast(pa.uint64()))
    named = pa.RecordBatch.from_arrays([*rows.columns, *kept.values()], names=[*rows.schema.names, *kept])
    return MappedBatch(named, (), 0, (newest_us or 0) // 1_000)


def survey(recipe: Revision, table: Any) -> Decision:
    """What the records of a range ask of the mapping, for policies that decide before a range is begun."""
    made = prepared_revision(recipe)
    decoded = _decoded(table, recipe.source.topic, made)
    _filter(made.condition, decoded)
    return decide(recipe.drift.unknown_fields.replace("-", "_"), recipe.mapping, decoded.records.fields)


def _filter(condition: Filter | None, decoded: _DecodedRecords) -> int:
    if condition is None:
        return 0
    selection = select(condition, decoded.records)
    decoded.refuse([(row, f"filter: {failed.reason}") for row, failed in selection.failed])
    decoded.keep(selection.kept)
    return len(selection.dropped)


def _drift(recipe: Revision, decoded: _DecodedRecords) -> dict[int, str] | None:
    """Overflow by record; refusals are set aside. What needs a decision before the range is begun was decided by `survey`."""
    policy = recipe.drift.unknown_fields
    if policy not in _LOOKS_AT_FIELDS:
        return None
    match decide(policy, recipe.mapping, decoded.records.fields):
        case Overflow(texts):
            return dict(texts)
        case DivertToDlq(refused):
            decoded.refuse([(row, str(why)) for row, why in refused])
            gone = {row for row, _ in refused}
            decoded.keep([row for row in range(len(decoded.records)) if row not in gone])
        case NoDrift() | AddColumns() | StopPipeline():
            pass
    return {} if policy == "overflow" else None


def _decoded(table: Any, topic: str, made: PreparedRevision) -> _DecodedRecords:
    """Values as JSON. One that is none is refused with its bytes."""
    keys, payloads = table.column("key").to_pylist(), table.column("value").to_pylist()
    offsets, times = table.column("offset").to_pylist(), _milliseconds(table.column("timestamp"))
    fields, bad = _parsed(payloads)
    everything = _DecodedRecords(
        SourceRecords(
            fields=fields,
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
    if bad:
        everything.refuse(bad)
        gone = {row for row, _ in bad}
        everything.keep([row for row in range(len(payloads)) if row not in gone])
    return everything


def _parsed(payloads: list[bytes | None]) -> tuple[list[Any], list[tuple[int, str]]]:
    """The values, and which of them are none. Nearly always all are good, so that is tried first."""
    try:
        return list(map(_decode, payloads)), []  # type: ignore[arg-type]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError):
        pass
    fields: list[Any] = [None] * len(payloads)
    bad = []
    for row, payload in enumerate(payloads):
        try:
            if payload is None:
                bad.append((row, NO_VALUE))
            else:
                fields[row] = _decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            bad.append((row, f"not JSON: {error}"))
    return fields, bad


@contextmanager
def _without_cycles() -> Iterator[None]:
    """Decoded records have no cycles, and looking for some in hundreds of thousands of them takes longer than decoding does."""
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
