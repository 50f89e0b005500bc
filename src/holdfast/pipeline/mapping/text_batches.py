"""Batches of CSV rows and raw texts to Arrow columns, without Python objects per record. Needs `pyarrow`.

The one rule: that of `json_batches`: the result equals that of `coerce` on every record; where that is not certain it is None.
"""

from typing import Any, Final

from holdfast.clickhouse.types import Scalar, is_nullable, unwrap
from holdfast.pipeline.formats.csv_rows import CsvDecoder
from holdfast.pipeline.formats.decoders import RAW_FIELD
from holdfast.pipeline.mapping import arrow
from holdfast.pipeline.mapping.coercion import CoercionPlan, ColumnTarget

_WHOLE: Final = r"^-?[0-9]{1,18}$"
_FRACTION: Final = r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$"


def is_readable(plan: CoercionPlan) -> bool:
    """Whether every column of the mapping is a field of the row."""
    return all(_field(target) is not None for target in plan.targets)


def _field(target: ColumnTarget) -> str | None:
    steps = target.path.steps
    if target.path.root != "fields" or len(steps) != 1 or target.column.when_null != "refuse":
        return None
    return steps[0] if isinstance(steps[0], str) else None


def read_csv_batch(plan: CoercionPlan, decoder: CsvDecoder, payloads: Any) -> Any | None:
    """The columns of the mapping, from an Arrow array of CSV rows; None: coerce them one by one."""
    table = decoder.table(payloads.to_pylist())
    return None if table is None else _columns(plan, table)


def read_raw_batch(plan: CoercionPlan, payloads: Any) -> Any | None:
    """The same of raw texts."""
    import pyarrow as pa

    if payloads.null_count:
        return None
    try:
        return _columns(plan, pa.table({RAW_FIELD: payloads.cast(pa.string())}))
    except pa.ArrowInvalid:
        return None


def _columns(plan: CoercionPlan, table: Any) -> Any | None:
    import pyarrow as pa

    columns = []
    for target in plan.targets:
        name = _field(target)
        texts = table.column(name).combine_chunks() if name in table.column_names else pa.nulls(len(table), pa.string())
        column = _converted(target, texts)
        if column is None:
            return None
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=[target.name for target in plan.targets])


def _converted(target: ColumnTarget, texts: Any) -> Any | None:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = unwrap(target.kind)
    if texts.null_count and not is_nullable(target.kind):
        return None
    if kind == Scalar("String"):
        return texts
    pattern = (
        _FRACTION if kind == Scalar("Float64") else _WHOLE if isinstance(kind, Scalar) and "Int" in kind.name else ""
    )
    if not pattern:
        return arrow.quick(target.kind, texts.to_pylist())
    if pc.all(pc.match_substring_regex(texts, pattern)).as_py() is False:
        return None
    try:
        return texts.cast(arrow.arrow_type(target.kind))
    except pa.ArrowInvalid:
        return None
