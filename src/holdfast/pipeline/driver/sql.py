"""A pipeline's SQL: what is allowed, how rows keep their offsets through it, and which columns result.

The one rule: SQL is row by row and deterministic (`sql_plan`). A row depends on its own record alone, so that a range written again
is the same rows whatever else is in the batch.
"""

import re
from typing import TYPE_CHECKING, Any, Final

from holdfast.clickhouse.quoting import invalid_name_reason
from holdfast.clickhouse.types import NO_NULL, Array, Map, Tuple, Type, is_nullable, nullable, parse_type
from holdfast.pipeline.driver.sql_plan import check_text
from holdfast.pipeline.mapping.arrow import arrow_type
from holdfast.pipeline.model.column_mapping import PROVENANCE, Column, make_column
from holdfast.pipeline.sinks.lake import lake_type
from holdfast.vocabulary.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

VIEW: Final = "rows"
PARTITION: Final = "__hf_partition"
OFFSET: Final = "__hf_offset"
STATS: Final = "__hf_stats"
CARRIED: Final = (PARTITION, OFFSET, STATS)

_SELECT: Final = re.compile(r"\s*(?:(?:--[^\n]*\n|/\*.*?\*/)\s*)*select\b(?!\s+distinct\b)", re.IGNORECASE | re.DOTALL)
_SCALARS: Final = {
    "boolean": "Bool",
    "tinyint": "Int8",
    "smallint": "Int16",
    "int": "Int32",
    "bigint": "Int64",
    "float": "Float32",
    "double": "Float64",
    "string": "String",
    "date": "Date",
    "timestamp": "DateTime64(6)",
}


def carrying(sql: str) -> str:
    """The SQL with the carried columns in front of its own."""
    check_text(sql)
    found = _SELECT.match(sql)
    if found is None:
        raise InvalidError("sql", sql[:200], "one SELECT over `rows`, without DISTINCT and without WITH")
    carried = f" `_partition` AS {PARTITION}, `_offset` AS {OFFSET}, {STATS},"
    return sql[: found.end()] + carried + sql[found.end() :].rstrip().rstrip(";")


def view_schema(columns: tuple[Column, ...], *, overflow: bool) -> "StructType":
    """The mapped view as Spark has it: signed integers, microseconds, at most 38 digits."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema

    fields = [
        pa.field(column.column, lake_type(arrow_type(column.kind)), is_nullable(column.kind)) for column in columns
    ]
    if overflow:
        fields.append(pa.field("_overflow", pa.string(), False))
    fields += [
        pa.field("_generation", pa.int64(), False),
        pa.field("_topic", pa.string(), False),
        pa.field("_partition", pa.int64(), False),
        pa.field("_offset", pa.int64(), False),
        pa.field(STATS, pa.string(), False),
    ]
    return from_arrow_schema(pa.schema(fields))


def selected(session: "SparkSession", rows: "DataFrame", sql: str) -> "DataFrame":
    """The SQL's result over the mapped view: carried columns, then its own. `InvalidError`: Spark rejects it."""
    rows.createOrReplaceTempView(VIEW)
    try:
        frame = session.sql(carrying(sql))
        names = frame.columns
    except InvalidError:
        raise
    except Exception as error:  # classic Spark and Spark Connect raise different classes
        raise InvalidError("sql", sql[:200], f"valid Spark SQL ({first_line(error)})") from None
    own = [(at, name) for at, name in enumerate(names) if at >= len(CARRIED) and not _internal(name)]
    _check_names(own)
    numbered = frame.toDF(*(f"c{at}" for at in range(len(names))))
    kept = [*enumerate(CARRIED), *own]
    return numbered.select(*(numbered[f"c{at}"].alias(name) for at, name in kept))


def columns_of(frame: "DataFrame", mapped: tuple[Column, ...]) -> tuple[Column, ...]:
    """The columns of the SQL's result. An unchanged one keeps the mapping's type."""
    by_name = {column.column: column for column in mapped}
    view = {field.name: field for field in view_schema(mapped, overflow=False).fields}
    found = []
    for field in frame.schema.fields[len(CARRIED) :]:
        known = by_name.get(field.name)
        same = known is not None and view[field.name].dataType == field.dataType
        if known is not None and same and (is_nullable(known.kind) or not field.nullable):
            found.append(known)
        else:
            found.append(column_of(field.name, field.dataType, field.nullable))
    return tuple(found)


def column_of(name: str, kind: "DataType", null: bool) -> Column:
    """The column of a field of a frame. `InvalidError`: pipelines do not write its type."""
    made = _type(name, kind)
    empty = isinstance(made, NO_NULL)
    return make_column(
        _escaped(name), name, _with_null(made) if null else made, when_null="default" if empty else "refuse"
    )


def _type(name: str, kind: Any) -> Type:
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

    if isinstance(kind, DecimalType):
        return parse_type(f"Decimal({kind.precision}, {kind.scale})")
    if isinstance(kind, ArrayType):
        inner = _type(name, kind.elementType)
        return Array(_with_null(inner) if kind.containsNull else inner)
    if isinstance(kind, MapType) and kind.keyType.simpleString() == "string":
        inner = _type(name, kind.valueType)
        return Map(_with_null(inner) if kind.valueContainsNull else inner)
    if isinstance(kind, StructType) and kind.fields:
        inside = [(_type(name, field.dataType), field.nullable) for field in kind.fields]
        names = tuple(field.name for field in kind.fields)
        return Tuple(tuple(_with_null(inner) if null else inner for inner, null in inside), names)
    text = kind.simpleString()
    if text not in _SCALARS:
        raise InvalidError(
            f"sql: column {name}",
            text,
            "one of " + ", ".join([*_SCALARS, "decimal", "array", "map of string", "struct"]),
        )
    return parse_type(_SCALARS[text])


def _with_null(kind: Type) -> Type:
    """The type with null allowed; a null struct is a Tuple of nulls."""
    if isinstance(kind, Tuple):
        return Tuple(tuple(map(_with_null, kind.elements)), kind.names)
    return nullable(kind)


def _escaped(name: str) -> str:
    return "".join(f"\\{letter}" if letter in ".[]\\$" else letter for letter in name)


def _internal(name: str) -> bool:
    return name in PROVENANCE or name.startswith("__hf_")


def _check_names(own: list[tuple[int, str]]) -> None:
    names = [name for _, name in own]
    if not names:
        raise InvalidError("sql", "no columns", "a SELECT of at least one column")
    for name in names:
        if names.count(name) > 1:
            raise InvalidError("sql: column", name, "unique")
        if (allowed := invalid_name_reason(name)) is not None:
            raise InvalidError("sql: column", name, allowed)


def first_line(error: Exception) -> str:
    """Of an error's text, the first line that says something."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
