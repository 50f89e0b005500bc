"""A column of every ClickHouse type, with a value as given and as stored."""

from typing import Any

from holdfast.pipeline.mapping.ddl import TableSpec
from holdfast.pipeline.model.column_mapping import Column, Mapping
from holdfast.pipeline.model.records import SourceRecords

VALUES: dict[str, tuple[str, Any, Any]] = {
    "bool": ("Bool", "true", True),
    "int8": ("Int8", -3, -3),
    "uint64": ("UInt64", 2**64 - 1, 2**64 - 1),
    "float32": ("Float32", 1.5, 1.5),
    "decimal": ("Decimal(18, 4)", "12.3456", 12.3456),
    "wide": ("Decimal(50, 1)", "1234567890123456789012345678901234567890.5", None),
    "text": ("String", "a'b\\c\n日", "a'b\\c\n日"),
    "date": ("Date", "2025-11-15", "2025-11-15"),
    "seconds": ("DateTime('UTC')", "2025-11-15T10:00:00Z", "2025-11-15 10:00:00"),
    "ms": ("DateTime64(3, 'UTC')", "1965-01-01T00:00:00.5Z", "1965-01-01 00:00:00.500"),
    "tenths": ("DateTime64(4, 'UTC')", "2025-11-15T10:00:00.12345Z", "2025-11-15 10:00:00.1234"),
    "ns": ("DateTime64(9, 'UTC')", "2025-11-15T10:00:00.123456789Z", "2025-11-15 10:00:00.123456789"),
    "uuid": ("UUID", "61f0c404-5cb3-11e7-907b-a6006ad3dba0", "61f0c404-5cb3-11e7-907b-a6006ad3dba0"),
    "array": ("Array(Nullable(Int32))", [1, None], [1, None]),
    "arrays": ("Array(Array(String))", [["a"], []], [["a"], []]),
    "map": ("Map(String, Float64)", {"x": 1.5}, {"x": 1.5}),
    "low": ("LowCardinality(Nullable(String))", None, None),
    "maybe": ("Nullable(UUID)", None, None),
    "enum": ("Enum8('it\\'s' = -1, 'new' = 3)", "it's", "it's"),
    "enums": ("Array(Nullable(Enum16('a' = 1000)))", [1000, None, "a"], ["a", None, "a"]),
    "ipv4": ("IPv4", "192.0.2.1", "192.0.2.1"),
    "ipv6": ("IPv6", "2001:DB8:0::1", "2001:db8::1"),
    "mapped": ("Nullable(IPv6)", "192.0.2.1", "::ffff:192.0.2.1"),
    "fixed": ("FixedString(5)", "日x", "日x\0"),
    "date32": ("Date32", "1900-01-01", "1900-01-01"),
    "json": ("JSON", {"a": {"b": [1, "x"]}, "c": 1.5}, {"a": {"b": [1, "x"]}, "c": 1.5}),
    "tuple": ("Tuple(a Int64, `b c` Nullable(IPv4))", {"a": "7"}, {"a": 7, "b c": None}),
    "pair": ("Tuple(String, UInt8)", ["x", 1], ["x", 1]),
    "nested": (
        "Array(Tuple(k LowCardinality(String), v Map(UInt16, Array(Date))))",
        [{"k": "x", "v": {"5": ["2025-11-15"]}}],
        [{"k": "x", "v": {"5": ["2025-11-15"]}}],
    ),
    "low fixed": ("LowCardinality(FixedString(2))", "ab", "ab"),
    "od`d \\ na'me; DROP": ("String", "x", "x"),
}
COLUMNS = tuple(Column(f"f{n}", name, VALUES[name][0]) for n, name in enumerate(VALUES))
RECORDS = SourceRecords(
    fields=[{f"f{n}": given for n, (_, given, _) in enumerate(VALUES.values())}], topic="t", partition=1, offsets=[7]
)
TABLE = TableSpec(
    database="d`b",
    name="t\\x",
    mapping=Mapping(COLUMNS),
    order_by=("ms", "uint64"),
    engine="ReplacingMergeTree",
    version_column="ns",
    partition_by="toYYYYMM(seconds)",
    overflow=True,
)
