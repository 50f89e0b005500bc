"""Changes of rows: filtered, coerced and written with a version, as a table that replaces rows needs them.

The one rule: the table has exactly the rows that the source has and the filter keeps. So a row that the filter drops is deleted,
since it may have been kept before; and a delete passes the filter, since it may have nothing but its key.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.clickhouse.types import is_nullable
from holdfast.pipeline.filters.evaluation import Filter, select
from holdfast.pipeline.mapping.arrow_columns import CoercedBatch, coerce_all
from holdfast.pipeline.mapping.coercion import CoercionPlan, ColumnTarget, converter, zero_of
from holdfast.pipeline.mapping.text_scalars import ConversionError
from holdfast.pipeline.model.column_mapping import DELETED_COLUMN, VERSION_COLUMN
from holdfast.pipeline.model.records import SourceRecords


@dataclass(slots=True)
class RowChanges:
    """By record: whether its row is deleted, and the version of the change."""

    deleted: list[bool]
    versions: list[int]

    def take(self, rows: Sequence[int]) -> "RowChanges":
        """Some of them, in that order."""
        return RowChanges([self.deleted[row] for row in rows], [self.versions[row] for row in rows])

    def present(self, fields: Sequence[Any]) -> list[Any]:
        """The values of rows that stay; nothing of those that go is unknown."""
        return [{} if deleted else value for value, deleted in zip(fields, self.deleted, strict=True)]

    def rows(self, *, deleted: bool) -> list[int]:
        """The numbers of records that delete, or of the others."""
        return [row for row, gone in enumerate(self.deleted) if gone is deleted]


def filter_changes(condition: Filter, records: SourceRecords, changes: RowChanges) -> list[tuple[int, str]]:
    """Make deletes of the rows that the filter drops; those that it cannot decide, and why."""
    upserts = changes.rows(deleted=False)
    selection = select(condition, records.take(upserts))
    for at in selection.dropped:
        changes.deleted[upserts[at]] = True
    return [(upserts[at], failed.reason) for at, failed in selection.failed]


def coerce_changes(
    plan: CoercionPlan, key_columns: frozenset[str], records: SourceRecords, changes: RowChanges
) -> CoercedBatch:
    """Apply a mapping to rows that stay, and to what is known of those that go; in the order of the records."""
    import pyarrow as pa

    parts = [(changes.rows(deleted=False), plan), (changes.rows(deleted=True), _delete_plan(plan, key_columns))]
    coerced = [(rows, coerce_all(each, records.take(rows))) for rows, each in parts if rows]
    if len(coerced) == 1 and len(coerced[0][0]) == len(records):
        return coerced[0][1]
    if not coerced:
        return coerce_all(plan, records)
    taken = [rows[at] for rows, each in coerced for at in each.taken]
    refused = sorted((rows[at], why) for rows, each in coerced for at, why in each.refused)
    order = sorted(range(len(taken)), key=taken.__getitem__)
    batch = pa.Table.from_batches([each.batch for _, each in coerced]).combine_chunks().to_batches()
    whole = batch[0] if batch else coerced[0][1].batch
    return CoercedBatch(whole.take(pa.array(order, pa.int64())), [taken[at] for at in order], refused)


def with_changes(rows: Any, taken: Sequence[int], changes: RowChanges) -> Any:
    """The rows with the version of each, and whether it is deleted."""
    import pyarrow as pa

    versions = pa.array([changes.versions[row] for row in taken], pa.uint64())
    deleted = pa.array([changes.deleted[row] for row in taken], pa.bool_()).cast(pa.uint8())
    return rows.append_column(VERSION_COLUMN, versions).append_column(DELETED_COLUMN, deleted)


def _delete_plan(plan: CoercionPlan, key_columns: frozenset[str]) -> CoercionPlan:
    """The key must fit; of the other columns there may be nothing, or what a former type left."""
    return CoercionPlan(
        plan.mapping,
        tuple(_key(target) if target.name in key_columns else _lenient(target) for target in plan.targets),
    )


def _key(target: ColumnTarget) -> ColumnTarget:
    convert = converter(target.kind)

    def needed(value: Any) -> Any:
        try:
            return convert(value)
        except ConversionError as unfit:
            raise ConversionError(f"a delete needs the key of its row: {unfit.rule}") from None

    return replace(target, convert=needed)


def _lenient(target: ColumnTarget) -> ColumnTarget:
    convert, zero = target.convert, (lambda: None) if is_nullable(target.kind) else zero_of(target.kind)

    def fitting(value: Any) -> Any:
        try:
            return convert(value)
        except ConversionError:
            return zero()

    return replace(target, convert=fitting)
