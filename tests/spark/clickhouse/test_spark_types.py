import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from holdfast.spark.clickhouse.spark_types import clickhouse_type, readable
from holdfast.vocabulary.errors import InvalidError


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (LongType(), "Nullable(Int64)"),
        (DecimalType(20, 3), "Nullable(Decimal(20, 3))"),
        (TimestampType(), "Nullable(DateTime64(6, 'UTC'))"),
        (ArrayType(LongType(), containsNull=False), "Array(Int64)"),
        (MapType(StringType(), LongType()), "Map(String, Nullable(Int64))"),
        (StructType([StructField("a b", LongType(), nullable=False)]), "Tuple(`a b` Int64)"),
    ],
)
def test_sparks_types_become_clickhouses(kind: DataType, expected: str) -> None:
    assert clickhouse_type(kind, nullable=True) == expected


def test_a_type_that_clickhouse_lacks_is_refused() -> None:
    with pytest.raises(InvalidError, match="invalid type of a column 'variant'"):
        clickhouse_type(VariantType(), nullable=True)


@pytest.mark.parametrize(
    ("kind", "expression"),
    [
        ("Int64", "`c`"),
        ("Decimal(38, 2)", "`c`"),
        ("Decimal(76, 2)", "CAST(`c` AS String) AS `c`"),
        ("UInt64", "CAST(`c` AS Decimal(20, 0)) AS `c`"),
        ("Nullable(UInt8)", "CAST(`c` AS Nullable(Int16)) AS `c`"),
        ("LowCardinality(Nullable(String))", "CAST(`c` AS Nullable(String)) AS `c`"),
        ("DateTime('Europe/Berlin')", "CAST(`c` AS DateTime64(6, 'UTC')) AS `c`"),
        ("Array(Nullable(Int64))", "`c`"),
        ("Map(String, Array(Int64))", "`c`"),
        ("Array(UInt64)", "CAST(`c` AS String) AS `c`"),
        ("UUID", "CAST(`c` AS String) AS `c`"),
    ],
)
def test_columns_are_read_in_types_that_spark_has(kind: str, expression: str) -> None:
    assert readable("c", kind) == expression
