"""Batches of JSON objects to Arrow columns, filtered and mapped without Python objects. Needs `pyarrow`.

The one rule: the result equals that of `coerce` and the filter on every record; where that is not certain it is None, and the
records are read one by one. So mapped fields are integers, floats, texts, booleans and times at paths of names, other fields must
be plain, and whatever the two JSON parsers treat differently is left to the slow path.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from holdfast.clickhouse.types import DateTime, DateTime64, Decimal, Scalar, Type, is_nullable, unwrap
from holdfast.pipeline.filters.columnar import ColumnarFilter, Steps, columnar
from holdfast.pipeline.filters.evaluation import Filter
from holdfast.pipeline.formats.wire_format import PREFIX_BYTES
from holdfast.pipeline.mapping.arrow import arrow_type, from_column
from holdfast.pipeline.mapping.coercion import CoercionPlan, ColumnTarget, zero_of
from holdfast.pipeline.mapping.json_lines import joined_lines
from holdfast.pipeline.model.field_paths import follow

SAMPLE_ROWS: Final = 512
OTHER_COLUMNS_MAX: Final = 256
NEW_COLUMNS_MAX: Final = 4
"""Arrow's reader makes a column of every field, as long as the batch: objects whose keys differ from record to record would fill
the memory. So a sample of the whole batch has few fields, and in its second half hardly any that the first does not have."""
_GOLDEN: Final = 0.6180339887498949  # multiples of it fall evenly between 0 and 1, in no order

_decode: Final = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A mapping and a filter, ready to be applied to batches. `leaves`: the fields they use, and as what they are read.

    None: a time, which is read as text or as a number, whichever the first record has.
    """

    plan: CoercionPlan
    condition: ColumnarFilter | None
    leaves: dict[Steps, Any]


@dataclass(frozen=True, slots=True)
class BatchRows:
    """The columns of the mapping. `kept`: which records passed the filter; None: all."""

    rows: Any
    kept: Any | None


def make_batch_plan(plan: CoercionPlan, condition: Filter | None) -> BatchPlan | None:
    """None: this mapping, or this filter, is applied record by record."""
    leaves: dict[Steps, Any] = {}
    for target in plan.targets:
        steps = _steps(target)
        if steps is None or not _is_readable(unwrap(target.kind)):
            return None
        kind = _read_type(unwrap(target.kind))
        if leaves.setdefault(steps, kind) != kind:
            return None
    compiled = None
    if condition is not None:
        compiled = columnar(condition.node)
        if compiled is None or not _add_fields(leaves, compiled):
            return None
    inside = any(steps[:count] in leaves for steps in leaves for count in range(1, len(steps)))
    return None if inside or not leaves else BatchPlan(plan, compiled, leaves)


def _steps(target: ColumnTarget) -> Steps | None:
    steps = tuple(step for step in target.path.steps if isinstance(step, str))
    return steps if target.path.root == "fields" and steps and steps == target.path.steps else None


def _is_readable(kind: Type) -> bool:
    return isinstance(kind, Scalar | DateTime | Decimal) or (isinstance(kind, DateTime64) and kind.scale % 3 == 0)


def _read_type(kind: Type) -> Any | None:
    import pyarrow as pa

    match kind:
        case DateTime() | DateTime64():
            return None
        case Scalar("Float32" | "Float64"):
            return pa.float64()
        case Scalar("Bool"):
            return pa.bool_()
        case Scalar(name) if "Int" in name:
            return arrow_type(kind)
    return pa.string()


def _add_fields(leaves: dict[Steps, Any], condition: ColumnarFilter) -> bool:
    """Add the filter's fields. One that is mapped is read as the mapping needs it."""
    import pyarrow as pa

    kinds = {"number": pa.float64(), "text": pa.string(), "bool": pa.bool_()}
    for steps, kind in condition.fields.items():
        if steps not in leaves:
            if kind == "any":
                return False
            leaves[steps] = kinds[kind]
    return True


def read_json_batch(made: BatchPlan, payloads: Any) -> BatchRows | None:
    """The rows of an Arrow array of JSON texts; None: read them one by one."""
    text = None if payloads is None else joined_lines(payloads)
    schema = None if text is None else _schema(made, payloads[0].as_py())
    if schema is None or (len(payloads) > 2 * SAMPLE_ROWS and not _has_few_columns(made, schema, payloads)):
        return None
    read = _read(schema, text)
    if read is None or read.num_rows != len(payloads) or not _is_json(made, read):
        return None
    kept = None
    if made.condition is not None:
        kept = made.condition.kept(lambda steps: _at(read, steps))
        if kept is None:
            return None
        read = read.filter(kept)
    return _mapped(made.plan, read, kept)


def without_schema_ids(payloads: Any) -> Any | None:
    """The texts behind the ids of their schemas; None: some value does not begin with one."""
    import pyarrow.compute as pc

    framed = not payloads.null_count and pc.all(pc.starts_with(payloads, b"\0")).as_py()
    return pc.binary_slice(payloads, PREFIX_BYTES) if framed else None


def _mapped(plan: CoercionPlan, read: Any, kept: Any | None) -> BatchRows | None:
    import pyarrow as pa

    columns = []
    for target in plan.targets:
        column = _column(target, _at(read, tuple(map(str, target.path.steps))))
        if column is None:
            return None
        columns.append(column)
    return BatchRows(pa.RecordBatch.from_arrays(columns, names=[target.name for target in plan.targets]), kept)


def _column(target: ColumnTarget, read: Any) -> Any | None:
    import pyarrow as pa

    column = from_column(target.kind, read)
    if column is None or not column.null_count or is_nullable(target.kind):
        return column
    if target.column.when_null != "default":
        return None
    return column.fill_null(pa.array([zero_of(target.kind)()], column.type)[0])


def _schema(made: BatchPlan, first: bytes) -> Any | None:
    """The schema for Arrow's reader; None: the first record is no object."""
    import pyarrow as pa

    try:
        record = _decode(first)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    nested: dict[str, Any] = {}
    for steps, kind in made.leaves.items():
        if kind is None:
            kind = pa.int64() if type(follow(steps, record)) is int else pa.string()
        level = nested
        for step in steps[:-1]:
            level = level.setdefault(step, {})
        level[steps[-1]] = kind
    return pa.schema(_fields(nested))


def _fields(nested: dict[str, Any]) -> list[Any]:
    import pyarrow as pa

    return [
        pa.field(name, pa.struct(_fields(kind)) if isinstance(kind, dict) else kind) for name, kind in nested.items()
    ]


def _has_few_columns(made: BatchPlan, schema: Any, payloads: Any) -> bool:
    """Whether records from everywhere in the batch have few fields, and few of them are new."""
    import numpy as np

    rows = (np.arange(SAMPLE_ROWS) * _GOLDEN % 1 * len(payloads)).astype(np.int64)
    sample = joined_lines(payloads.take(rows))
    read = None if sample is None else _read(schema, sample)
    if read is None:
        return False
    half, others = SAMPLE_ROWS // 2, list(_others(made, (), read))
    new = [column for column in others if column.slice(0, half).null_count == half]
    return len(others) <= OTHER_COLUMNS_MAX and len(new) <= NEW_COLUMNS_MAX


def _others(made: BatchPlan, around: Steps, read: Any) -> Iterator[Any]:
    """The columns of fields that neither mapping nor filter uses."""
    import pyarrow as pa

    names = [field.name for field in (read.type if around else read.schema)]
    for name in names:
        steps, column = (*around, name), read.field(name) if around else read.column(name)
        if pa.types.is_struct(column.type):
            yield from _others(made, steps, column)
        elif steps not in made.leaves:
            yield column


def _read(schema: Any, text: Any) -> Any | None:
    import pyarrow as pa
    from pyarrow import json

    try:
        read = json.read_json(
            pa.BufferReader(text),
            read_options=json.ReadOptions(use_threads=False, block_size=text.size + 1),
            parse_options=json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="infer"),
        )
    except (pa.ArrowException, OSError):
        return None
    return read.combine_chunks().to_batches()[0] if read.num_rows else None


def _at(read: Any, steps: Steps) -> Any:
    """The column of a field; null where an object around it is."""
    import pyarrow.compute as pc

    column = read.column(steps[0])
    return pc.struct_field(column, list(steps[1:])) if len(steps) > 1 else column


def _is_json(made: BatchPlan, read: Any) -> bool:
    """Whether both parsers accept every record, those that the filter drops included."""
    return all(_is_plain(made, (name,), at) for name, at in zip(read.schema.names, read.columns, strict=True))


def _is_plain(made: BatchPlan, steps: Steps, column: Any) -> bool:
    """Whether both parsers accept the column: Arrow's also accepts NaN, numbers of any length, and any depth."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_floating(kind):
        return bool(pc.all(pc.is_finite(column)).as_py() is not False)
    if steps in made.leaves:
        return True
    if pa.types.is_struct(kind):
        return all(_is_plain(made, (*steps, field.name), column.field(at)) for at, field in enumerate(kind))
    if pa.types.is_list(kind):
        return _is_plain(made, (*steps, ""), column.flatten())
    plain = (pa.types.is_null, pa.types.is_boolean, pa.types.is_int64, pa.types.is_string, pa.types.is_timestamp)
    return any(each(kind) for each in plain)
