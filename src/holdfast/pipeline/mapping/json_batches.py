"""Whole batches of plain JSON objects to Arrow columns, without a Python object for any of them. Needs `pyarrow`.

The one rule: what is answered is what `coerce` makes of every record, one by one; wherever that is not certain the answer is None,
and the records go the slow way. So it takes top-level fields of integers, texts and truths, and others only if they are plain; what
does not fit, and what one parser takes and the other does not, is for the slow way.
"""

from typing import Any, Final

from holdfast.clickhouse.types import Scalar, is_nullable, unwrap
from holdfast.pipeline.mapping.arrow import arrow_type
from holdfast.pipeline.mapping.coercion import CoercionPlan, ColumnTarget

_BLOCK_BYTES_MAX: Final = 1 << 30
_NEWLINE: Final = ord("\n")


def schema_of(plan: CoercionPlan) -> Any | None:
    """The fields to be read, as Arrow's JSON reader wants them; None: this mapping is not for it."""
    import pyarrow as pa

    fields: dict[str, Any] = {}
    for target in plan.targets:
        name = _field(target)
        kind = arrow_type(target.kind)
        if name is None or fields.get(name, kind) != kind:
            return None
        fields[name] = kind
    return pa.schema(list(fields.items())) if fields else None


def _field(target: ColumnTarget) -> str | None:
    path, kind = target.path, unwrap(target.kind)
    plain = isinstance(kind, Scalar) and (kind.name in ("String", "Bool") or "Int" in kind.name)
    if not plain or path.root != "fields" or len(path.steps) != 1:
        return None
    step = path.steps[0]
    return step if isinstance(step, str) else None


def read_json_batch(plan: CoercionPlan, schema: Any, payloads: Any) -> Any | None:
    """The columns of the mapping, from an Arrow array of JSON texts; None: look at them one by one."""
    import pyarrow as pa
    from pyarrow import json

    text = _joined(payloads)
    if text is None:
        return None
    try:
        table = json.read_json(
            pa.BufferReader(text),
            read_options=json.ReadOptions(use_threads=False, block_size=text.size + 1),
            parse_options=json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="infer"),
        )
    except (pa.ArrowException, OSError):
        return None
    names = set(schema.names)
    others = [column for name, column in zip(table.column_names, table.columns, strict=True) if name not in names]
    if table.num_rows != len(payloads) or not all(map(_is_plain, others)):
        return None
    columns = []
    for target in plan.targets:
        column = table.column(str(target.path.steps[0])).combine_chunks()
        if column.null_count and not is_nullable(target.kind):
            return None
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=[target.name for target in plan.targets])


def _joined(payloads: Any) -> Any | None:
    """All texts in lines, as an Arrow buffer, if it is certain that each line is one object: Arrow counts objects, not lines.

    Every newline stands between a closing and an opening brace. A newline cannot be in a string, and two objects beside each other
    without a comma are so at the top only, so that each line is whole objects; if there are as many of them as lines, one each.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    count = len(payloads)
    if not count or payloads.null_count or payloads.nbytes > _BLOCK_BYTES_MAX:
        return None
    if not (pc.all(pc.starts_with(payloads, b"{")).as_py() and pc.all(pc.ends_with(payloads, b"}")).as_py()):
        return None
    lines = pa.LargeListArray.from_arrays(pa.array([0, count], pa.int64()), payloads)
    text = pc.binary_join(lines, b"\n")[0].as_buffer()
    if np.count_nonzero(np.frombuffer(text, np.uint8) == _NEWLINE) != count - 1:
        return None
    try:
        payloads.cast(pa.string())  # which looks whether they are UTF-8
    except pa.ArrowInvalid:
        return None
    return text


def _is_plain(column: Any) -> bool:
    """Whether both parsers take all of it: Arrow's also takes NaN, and any depth."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_floating(kind):
        return bool(pc.all(pc.is_finite(column)).as_py() is not False)
    plain = (pa.types.is_null, pa.types.is_boolean, pa.types.is_int64, pa.types.is_string, pa.types.is_timestamp)
    return any(each(kind) for each in plain)
