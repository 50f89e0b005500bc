"""Coercion of a batch to Arrow columns, with the rejected records. Needs `pyarrow` (extra `arrow`).

The one rule: the outcome equals that of `coerce` on every record. It is faster: Arrow converts a column whose values are all of the
expected kind, and only the other columns are converted value by value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.pipeline.mapping import arrow
from holdfast.pipeline.mapping.coercion import CoercionPlan, ColumnTarget, RejectedRecord, ValueRejection, not_an_object
from holdfast.pipeline.mapping.text_scalars import ConversionError
from holdfast.pipeline.model.column_mapping import OVERFLOW_COLUMN
from holdfast.pipeline.model.field_paths import EACH, Path, Step, follow
from holdfast.pipeline.model.records import SourceRecords


@dataclass(frozen=True, slots=True)
class CoercedBatch:
    """The rows of a batch as a `pyarrow.RecordBatch`, the record of each row, and the rejected records."""

    batch: Any
    taken: Sequence[int]
    refused: Sequence[tuple[int, RejectedRecord]]


def coerce_all(plan: CoercionPlan, records: SourceRecords) -> CoercedBatch:
    """Apply a mapping to a batch."""
    import pyarrow as pa

    refusals: dict[int, list[ValueRejection]] = {}
    objects = _objects(records, refusals)
    found = _PathValues(records, objects)
    arrays = []
    for target in plan.targets:
        values = found.at(target.path)
        column = arrow.quick(target.kind, values)
        arrays.append(_one_by_one(target, values, refusals) if column is None else column)
    names = [target.name for target in plan.targets]
    batch = pa.RecordBatch.from_arrays(arrays, names=names)
    if not refusals:
        return CoercedBatch(batch, range(len(records)), ())
    taken = [row for row in range(len(records)) if row not in refusals]
    refused = [(row, RejectedRecord(tuple(refusals[row]))) for row in sorted(refusals)]
    return CoercedBatch(batch.take(pa.array(taken, pa.int64())), taken, refused)


def with_provenance(
    coerced: CoercedBatch, records: SourceRecords, generation: int, overflow: Mapping[int, str] | None = None
) -> Any:
    """The batch with the overflow column, if there is one, and the provenance of each row."""
    import pyarrow as pa

    offsets = records.column("offset")
    taken = pa.array([offsets[row] for row in coerced.taken], pa.uint64())
    values = provenance(records.topic, records.partition, generation, taken)
    if overflow is not None:
        texts = [overflow.get(row, "") for row in coerced.taken]
        values = {OVERFLOW_COLUMN: pa.array(texts, pa.string()), **values}
    names = [*coerced.batch.schema.names, *values]
    return pa.RecordBatch.from_arrays([*coerced.batch.columns, *values.values()], names=names)


def provenance(topic: str, partition: int, generation: int, offsets: Any) -> dict[str, Any]:
    """The provenance columns by name; `offsets` is an Arrow array."""
    import pyarrow as pa

    rows = len(offsets)
    return {
        "_generation": pa.repeat(pa.scalar(generation, pa.uint32()), rows),
        "_topic": pa.repeat(pa.scalar(topic, pa.string()), rows),
        "_partition": pa.repeat(pa.scalar(partition, pa.uint32()), rows),
        "_offset": offsets,
    }


def _objects(records: SourceRecords, refusals: dict[int, list[ValueRejection]]) -> list[Any]:
    """The values of the records; one that is no object is rejected and replaced by an empty one."""
    values = list(records.fields)
    if set(map(type, values)) <= {dict}:
        return values
    for row, value in enumerate(values):
        if not isinstance(value, dict):
            refusals[row] = [not_an_object(value)]
            values[row] = {}
    return values


class _PathValues:
    """Values by path; a shared prefix of two paths is followed once."""

    def __init__(self, records: SourceRecords, objects: list[Any]) -> None:
        self._records = records
        self._known: dict[tuple[str, tuple[Step, ...]], list[Any]] = {("fields", ()): objects}

    def at(self, path: Path) -> list[Any]:
        return self._at(path.root, path.steps)

    def _at(self, root: str, steps: tuple[Step, ...]) -> list[Any]:
        known = self._known.get((root, steps))
        if known is None:
            known = self._known[root, steps] = self._take(root, steps)
        return known

    def _take(self, root: str, steps: tuple[Step, ...]) -> list[Any]:
        if not steps:
            return self._records.column(root)
        if EACH in steps:
            first = steps.index(EACH)
            return [follow(steps[first:], value) for value in self._at(root, steps[:first])]
        before, step = self._at(root, steps[:-1]), steps[-1]
        if root == "headers":
            return [value.get(step) for value in before]
        if isinstance(step, str):
            return [value.get(step) if type(value) is dict else None for value in before]
        return [follow((step,), value) for value in before]


def _one_by_one(target: ColumnTarget, values: list[Any], refusals: dict[int, list[ValueRejection]]) -> Any:
    """A column value by value. A value that does not fit is null until its row is removed."""
    import pyarrow as pa

    out: list[Any] = []
    keep, convert = out.append, target.convert
    for row, value in enumerate(values):
        try:
            keep(convert(value))
        except ConversionError as unfit:
            keep(None)
            if row not in refusals or refusals[row][0].column:
                refusals.setdefault(row, []).append(target.refusal(value, unfit.rule))
    return pa.array(out, arrow.arrow_type(target.kind))
