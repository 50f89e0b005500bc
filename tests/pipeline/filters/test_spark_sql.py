"""Filters as conditions of Spark SQL: the same records are kept, or the filter is not translated."""

import json
from typing import TYPE_CHECKING

import pytest

from holdfast.pipeline.filters.evaluation import make_filter
from holdfast.pipeline.filters.parser import parse
from holdfast.pipeline.filters.spark_sql import NotTranslatedError, filter_sql
from holdfast.pipeline.model.records import SourceRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRANSLATED = [
    "total > 10",
    "number(text_total) > 10",
    "status = 'paid' and not (total <= 3)",
    "status != 'paid' or total + 1 * 2 < 5",
    "user.name is null",
    "user.name = null",
    "exists(user.name) and lower(user.name) = 'ann'",
    "status in ('paid', 'open')",
    "total not in [1, 2, 3]",
    "startsWith(status, 'p') and endsWith(status, 'd')",
    "lines[0].sku = 'it\\'s \"a\"'",
    "abs(-total) >= 12 and -total < 0",
    "partition = 1 and offset > 1 and topic = 'orders'",
    "paid",
    "key = 'k1' or `odd key` = 1",
    "true",
]
NOT_TRANSLATED = [
    "matches(status, '^p')",
    "total = other",
    "total / 2 > 1",
    "headers.trace = 'x'",
    "time(at) > 3",
    "status in names",
    "coalesce(total, 1) = 1",
    "status in ('paid', 1)",
    '`a"b` = 1',
]
RECORDS = [
    {"total": 12.5, "text_total": "12.5", "status": "paid", "user": {"name": "Ann"}, "paid": True, "odd key": 1},
    {"total": 2, "text_total": "2", "status": "open", "lines": [{"sku": 'it\'s "a"'}], "paid": False},
    {"total": None, "status": "void", "user": {"name": None}},
    {},
]


@pytest.mark.parametrize("expression", NOT_TRANSLATED)
def test_what_spark_would_decide_otherwise_is_not_translated(expression: str) -> None:
    with pytest.raises(NotTranslatedError):
        filter_sql(parse(expression))


def test_spark_keeps_the_records_that_the_filter_keeps(spark: "SparkSession") -> None:
    rows = [("orders", n % 2, n, f"k{n}".encode(), json.dumps(record).encode()) for n, record in enumerate(RECORDS)]
    records = spark.createDataFrame(rows, "topic STRING, partition INT, offset LONG, key BINARY, value BINARY")
    parsed = records.selectExpr("*", "parse_json(CAST(value AS STRING)) AS record")
    conditions = [f"coalesce({filter_sql(parse(expression))}, false)" for expression in TRANSLATED]
    kept = [list(row) for row in parsed.orderBy("offset").selectExpr(*conditions).collect()]
    for number, expression in enumerate(TRANSLATED):
        condition = make_filter(expression)
        expected = [
            condition(SourceRecord(fields=record, key=f"k{n}", topic="orders", partition=n % 2, offset=n))
            for n, record in enumerate(RECORDS)
        ]
        assert [row[number] for row in kept] == expected, expression
