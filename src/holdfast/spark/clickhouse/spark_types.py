"""Types of Spark as types of ClickHouse, for tables that are created, and back, for tables that are read."""

import re
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from holdfast.clickhouse.quoting import quote_identifier
from holdfast.vocabulary.errors import InvalidError

_SCALARS: Final[dict[type[DataType], str]] = {
    BooleanType: "Bool",
    ByteType: "Int8",
    ShortType: "Int16",
    IntegerType: "Int32",
    LongType: "Int64",
    FloatType: "Float32",
    DoubleType: "Float64",
    StringType: "String",
    CharType: "String",
    VarcharType: "String",
    BinaryType: "String",
    DateType: "Date32",
    TimestampType: "DateTime64(6, 'UTC')",
    TimestampNTZType: "DateTime64(6)",
}

_SAME: Final = re.compile(r"Bool|Int8|Int16|Int32|Int64|Float32|Float64|String|Date32")
_CAST: Final = {
    "UInt8": "Int16",
    "UInt16": "Int32",
    "UInt32": "Int64",
    "UInt64": "Decimal(20, 0)",
    "Date": "Date32",
}
_TIME: Final = re.compile(r"DateTime(64)?(\(.*\))?")
_DECIMAL: Final = re.compile(r"Decimal\((\d+), \d+\)")
_WRAPPED: Final = re.compile(r"(Nullable|LowCardinality)\((.*)\)")
_LEAVES: Final = re.compile(r"[A-Za-z0-9_]+(?=[,)]|$)")
_NESTED: Final = ("Array(", "Map(")
_SPARK_DECIMAL_DIGITS: Final = 38


def clickhouse_type(kind: DataType, *, nullable: bool) -> str:
    """The type of a column for values of Spark's type. `InvalidError`: ClickHouse has none."""
    if isinstance(kind, ArrayType):
        return f"Array({clickhouse_type(kind.elementType, nullable=kind.containsNull)})"
    if isinstance(kind, MapType):
        key = clickhouse_type(kind.keyType, nullable=False)
        return f"Map({key}, {clickhouse_type(kind.valueType, nullable=kind.valueContainsNull)})"
    if isinstance(kind, StructType):
        fields = (
            f"{quote_identifier(field.name)} {clickhouse_type(field.dataType, nullable=field.nullable)}"
            for field in kind.fields
        )
        return f"Tuple({', '.join(fields)})"
    if isinstance(kind, DecimalType):
        scalar = f"Decimal({kind.precision}, {kind.scale})"
    elif type(kind) in _SCALARS:
        scalar = _SCALARS[type(kind)]
    else:
        raise InvalidError("type of a column", kind.simpleString(), "one that ClickHouse has (cast it to string)")
    return f"Nullable({scalar})" if nullable else scalar


def readable(name: str, kind: str) -> str:
    """The expression for a column in a type that Spark has, too; as text, where it has none."""
    column, plain, nullable = quote_identifier(name), kind, False
    while found := _WRAPPED.fullmatch(plain):
        nullable, plain = nullable or found[1] == "Nullable", found[2]
    wanted = _wanted(plain)
    if wanted == kind:
        return column
    if wanted.startswith(_NESTED):
        return column
    return f"CAST({column} AS {f'Nullable({wanted})' if nullable else wanted}) AS {column}"


def _wanted(plain: str) -> str:
    if _TIME.fullmatch(plain):
        return "DateTime64(6, 'UTC')"
    decimal = _DECIMAL.fullmatch(plain)
    if _SAME.fullmatch(plain) or (decimal and int(decimal[1]) <= _SPARK_DECIMAL_DIGITS):
        return plain
    if plain.startswith(_NESTED) and all(_SAME.fullmatch(leaf) for leaf in _LEAVES.findall(plain)):
        return plain
    return _CAST.get(plain, "String")
