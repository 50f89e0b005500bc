"""Batches of plain JSON objects to Arrow columns, without Python objects. Needs `pyarrow`.

The one rule: the result equals that of `coerce` on every record; where that is not certain it is None, and the records are coerced
one by one. So mapped fields are top-level integers, texts and booleans, and other fields must be plain; whatever the two JSON
parsers treat differently is left to the slow path.
"""

from typing import Any, Final

from holdfast.clickhouse.types import Scalar, is_nullable, unwrap
from holdfast.pipeline.mapping.arrow import arrow_type
from holdfast.pipeline.mapping.coercion import CoercionPlan, ColumnTarget

_BLOCK_BYTES_MAX: Final = 1 << 30
_NEWLINE: Final = ord("\n")
# Arrow's reader takes seconds for thousands of nested values and crashes the process beyond; objects with nested values are left to
# the slow path anyway, so this only has to be more than a text or two with brackets in it.
_BRACKETS_MAX: Final = 64


def schema_of(plan: CoercionPlan) -> Any | None:
    """The schema for Arrow's JSON reader; None: this mapping cannot be read in batches."""
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
    """The columns of the mapping, from an Arrow array of JSON texts; None: coerce them one by one."""
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
    """All texts as lines of an Arrow buffer, if each line is certainly one object: Arrow counts objects, not lines.

    Every newline is between a closing and an opening brace. A newline cannot be in a string, and adjacent objects without a comma
    occur at the top level only, so each line consists of whole objects; with as many objects as lines, each line is one.
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
    octets = np.frombuffer(text, np.uint8)
    if np.count_nonzero(octets == _NEWLINE) != count - 1 or _may_be_deep(octets, payloads):
        return None
    try:
        payloads.cast(pa.string())  # checks that they are UTF-8
    except pa.ArrowInvalid:
        return None
    return text


def _may_be_deep(octets: Any, payloads: Any) -> bool:
    """Whether some record has so many opening brackets that its values may be nested too deeply."""
    import numpy as np
    import pyarrow.compute as pc

    opening = np.count_nonzero(octets == ord("[")) + np.count_nonzero(octets == ord("{"))
    if opening - len(payloads) <= _BRACKETS_MAX:
        return False
    each = pc.add(pc.count_substring(payloads, b"["), pc.count_substring(payloads, b"{"))
    return bool(pc.max(each).as_py() > _BRACKETS_MAX)


def _is_plain(column: Any) -> bool:
    """Whether both parsers accept the column: Arrow's also accepts NaN, and any depth."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_floating(kind):
        return bool(pc.all(pc.is_finite(column)).as_py() is not False)
    plain = (pa.types.is_null, pa.types.is_boolean, pa.types.is_int64, pa.types.is_string, pa.types.is_timestamp)
    return any(each(kind) for each in plain)
