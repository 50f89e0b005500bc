"""Every type and statement of docs/pipelines.md over HTTP, as a sink sends them."""

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from tests.support.clickhouse_values import RECORDS, TABLE, VALUES

from holdfast.clickhouse.quoting import quote_identifier, quote_literal
from holdfast.pipeline.mapping.arrow_columns import coerce_all, with_provenance
from holdfast.pipeline.mapping.coercion import make_coercion_plan
from holdfast.pipeline.mapping.ddl import TableSpec, create_table
from holdfast.pipeline.mapping.table_diff import ExistingColumn, ExistingTable, compare_table
from holdfast.pipeline.model.column_mapping import Column, Mapping
from holdfast.pipeline.model.records import SourceRecords
from holdfast.pipeline.sinks.clickhouse import statements
from holdfast.testing.clickhouse import ClickHouseServer

pa = pytest.importorskip("pyarrow")


@pytest.fixture
def clickhouse(clickhouse_server_process: ClickHouseServer) -> ClickHouseServer:
    """The server itself, where other tests of sinks have a database in it."""
    return clickhouse_server_process


# type, what a record says, what is read back; every line of the table of types
TYPES: list[tuple[str, Any, Any]] = [
    ("Bool", True, True),
    *((f"Int{bits}", -(2 ** (bits - 1)), -(2 ** (bits - 1))) for bits in (8, 16, 32, 64)),
    *((f"UInt{bits}", 2**bits - 1, 2**bits - 1) for bits in (8, 16, 32, 64)),
    ("Float32", 0.25, 0.25),
    ("Float64", -1e300, -1e300),
    ("Decimal(1, 0)", "7", 7),
    ("Decimal(18, 4)", "-12.3456", -12.3456),
    ("Decimal(76, 2)", "1.5", 1.5),
    ("Decimal64(2)", "1.25", 1.25),
    ("String", {"a": [1]}, '{"a":[1]}'),
    ("Date", "2149-06-06", "2149-06-06"),
    ("DateTime", "2106-02-07T06:28:15Z", "2106-02-07 06:28:15"),
    ("DateTime('Europe/Berlin')", "2025-07-01T10:00:00Z", "2025-07-01 12:00:00"),
    ("DateTime64(0, 'UTC')", "2025-11-15T10:00:00Z", "2025-11-15 10:00:00"),
    ("DateTime64(6, 'UTC')", "2025-11-15T10:00:00.123456Z", "2025-11-15 10:00:00.123456"),
    ("DateTime64(9, 'UTC')", "2025-11-15T10:00:00.123456789Z", "2025-11-15 10:00:00.123456789"),
    ("DateTime64(3, 'UTC')", "1900-01-01T00:00:00Z", "1900-01-01 00:00:00.000"),
    ("UUID", "61f0c4045cb311e7907ba6006ad3dba0", "61f0c404-5cb3-11e7-907b-a6006ad3dba0"),
    ("Array(Array(Nullable(UUID)))", [[None]], [[None]]),
    ("Map(String, Array(Int8))", {"k": [1, 2]}, {"k": [1, 2]}),
    ("Map(String, Nullable(String))", {"k": None}, {"k": None}),
    ("Nullable(Decimal(9, 2))", None, None),
    ("Nullable(Date)", None, None),
    ("Enum8('new' = 1, 'paid' = 2)", "paid", "paid"),
    ("Enum16('new' = 1, 'paid' = 2000)", 2000, "paid"),
    ("Nullable(Enum8('new' = 1))", None, None),
    ("IPv4", "192.0.2.1", "192.0.2.1"),
    ("IPv6", "2001:DB8::0:1", "2001:db8::1"),
    ("IPv6", "192.0.2.1", "::ffff:192.0.2.1"),
    ("Nullable(IPv4)", None, None),
    ("Date32", "1900-01-01", "1900-01-01"),
    ("Date32", "2299-12-31", "2299-12-31"),
    ("Nullable(Date32)", None, None),
    ("FixedString(3)", "abc", "abc"),
    ("FixedString(3)", "a", "a\0\0"),
    ("Nullable(FixedString(1))", None, None),
    ("Decimal32(2)", "1.25", 1.25),
    ("Decimal128(10)", "-1.5", -1.5),
    ("Decimal256(3)", "1.125", 1.125),
    ("JSON", {"a": {"b": 1}, "c": [1, None, "x"]}, {"a": {"b": 1}, "c": [1, None, "x"]}),
    ("JSON", {"a": None, "b": {}, "c": 2**64 - 1}, {"c": 2**64 - 1}),
    ("Nullable(JSON)", None, None),
    ("Array(JSON)", [{"a": 1}, {}], [{"a": 1}, {}]),
    ("Tuple(a Int64, b Nullable(String))", {"a": 1}, {"a": 1, "b": None}),
    ("Tuple(Int64, Array(String))", [1, ["x"]], [1, ["x"]]),
    ("Array(Tuple(id UUID, n UInt8))", [], []),
    ("Array(Tuple(id Nullable(UUID), n UInt8))", [{"n": 1}], [{"id": None, "n": 1}]),
    ("Tuple(a Tuple(b Map(String, IPv6)))", {"a": {"b": {"x": "::1"}}}, {"a": {"b": {"x": "::1"}}}),
    ("Map(LowCardinality(String), UInt8)", {"k": 1}, {"k": 1}),
    ("Map(UInt64, String)", {"18446744073709551615": "x"}, {"18446744073709551615": "x"}),
    ("Map(UUID, Enum8('a' = 1))", {"61f0c4045cb311e7907ba6006ad3dba0": "a"}, {"61f0c404-5cb3-11e7-907b-a6006ad3dba0": "a"}),
    ("Map(Date, Tuple(a Int8))", {"2025-11-15": {"a": 1}}, {"2025-11-15": {"a": 1}}),
    ("Map(Enum8('k' = 1), Nullable(JSON))", {"k": {"z": 1}}, {"k": {"z": 1}}),
    ("LowCardinality(String)", "few", "few"),
    ("LowCardinality(Nullable(String))", "few", "few"),
]  # fmt: skip


def _insert(server: ClickHouseServer, table: TableSpec, records: SourceRecords, token: str) -> None:
    """As a sink does: Arrow through a SELECT, under a token."""
    batch = with_provenance(coerce_all(make_coercion_plan(table.mapping), records), records, generation=1)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    kinds = {name: str(kind) for name, kind in table.columns().items()}
    structure = statements.input_structure({name: kinds[name] for name in batch.schema.names})
    names = ", ".join(map(quote_identifier, batch.schema.names))
    text = f"INSERT INTO {table.full_name} ({names}) SELECT {names} FROM input({quote_literal(structure)}) FORMAT ArrowStream"
    server.query(text, sink.getvalue(), insert_deduplication_token=token, async_insert="0")


def _rows(server: ClickHouseServer, table: TableSpec) -> list[dict[str, Any]]:
    text = server.query(
        f"SELECT * FROM {table.full_name} FORMAT JSONEachRow", output_format_json_quote_64bit_integers="0"
    )
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(("kind", "given", "stored"), TYPES, ids=[f"{kind}-{given}" for kind, given, _ in TYPES])
def test_a_type_is_made_filled_and_read(
    clickhouse: ClickHouseServer, clickhouse_database: str, kind: str, given: Any, stored: Any
) -> None:
    table = TableSpec(
        database=clickhouse_database, name="t", mapping=Mapping((Column("v", "v", kind),)), order_by=("_offset",)
    )
    clickhouse.query(create_table(table))
    records = SourceRecords(fields=[{"v": given}], topic="t", partition=0, offsets=[5])
    for _ in range(2):
        _insert(clickhouse, table, records, "once")
    place = {"_pipeline": "", "_generation": 1, "_topic": "t", "_partition": 0, "_offset": 5}
    assert _rows(clickhouse, table) == [{"v": stored, **place}]


DEFAULTS = [
    *(
        "Enum8('b' = 5, 'a' = -3)",
        "IPv4",
        "IPv6",
        "FixedString(2)",
        "Date32",
        "JSON",
        "UUID",
        "Decimal(9, 2)",
        "Date",
        "Bool",
    ),
    *(
        "Tuple(a Int8, b Nullable(String), c Array(Int8))",
        "Tuple(Enum8('x' = 1), IPv6)",
        "Map(UInt8, JSON)",
        "Array(IPv6)",
    ),
]


def test_a_null_is_stored_as_the_default_of_the_server(clickhouse: ClickHouseServer, clickhouse_database: str) -> None:
    columns = tuple(Column(f"c{n}", f"c{n}", kind, when_null="default") for n, kind in enumerate(DEFAULTS))
    table = TableSpec(database=clickhouse_database, name="t", mapping=Mapping(columns), order_by=("_offset",))
    clickhouse.query(create_table(table))
    _insert(clickhouse, table, SourceRecords(fields=[{}], topic="t", partition=0, offsets=[1]), "nulls")
    clickhouse.query(f"INSERT INTO {table.full_name} (_offset) VALUES (2)")
    given, default = sorted(_rows(clickhouse, table), key=lambda row: int(row["_offset"]))
    assert {column.column: given[column.column] for column in columns} == {
        column.column: default[column.column] for column in columns
    }


def _nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"x": 1}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


JSON_OBJECTS: list[dict[str, Any]] = [
    {"a": 1, "a.b": 2},
    {"a..b": 1, "": 2, " ": 3, "日": "日"},
    {"a": -(2**63), "b": 2**64 - 1},
    {"a": [{"b": [{"c": [1, "x", None, 1.5]}]}, 7]},
    {"a": [[[]]], "b": [{}, None]},
    {"a": 1e308, "b": 5e-324},
    {"a": "\x00\x1f\\\"'`"},
    _nested(64),
    {f"k{n}": n for n in range(2_000)},
]


def test_what_is_taken_as_json_is_stored_by_the_server(clickhouse: ClickHouseServer, clickhouse_database: str) -> None:
    mapping = Mapping((Column("v", "v", "JSON"),))
    table = TableSpec(database=clickhouse_database, name="t", mapping=mapping, order_by=("_offset",))
    clickhouse.query(create_table(table))
    fields = [{"v": given} for given in JSON_OBJECTS]
    _insert(
        clickhouse, table, SourceRecords(fields=fields, topic="t", partition=0, offsets=list(range(len(fields)))), "j"
    )
    rows = sorted(_rows(clickhouse, table), key=lambda row: int(row["_offset"]))
    assert len(rows) == len(JSON_OBJECTS)
    assert rows[2]["v"] == JSON_OBJECTS[2]
    assert rows[3]["v"] == JSON_OBJECTS[3]
    assert rows[6]["v"] == JSON_OBJECTS[6]


def test_odd_names_every_clause_and_every_type_at_once(clickhouse: ClickHouseServer) -> None:
    clickhouse.query(f"CREATE DATABASE IF NOT EXISTS {quote_identifier(TABLE.database)}")
    try:
        clickhouse.query(create_table(TABLE))
        _insert(clickhouse, TABLE, RECORDS, "all")
        (row,) = _rows(clickhouse, TABLE)
        assert {name: row[name] for name in VALUES if name != "wide"} == {
            name: value for name, (_, _, value) in VALUES.items() if name != "wide"
        }
    finally:
        clickhouse.query(f"DROP DATABASE {quote_identifier(TABLE.database)} SYNC")


@pytest.mark.parametrize("engine", ["MergeTree", "ReplacingMergeTree"])
@pytest.mark.parametrize("partition_by", ["", "toYYYYMM(at)", "toMonday(at)", "(toYear(at), id % 2)"])
def test_every_engine_and_partitioning_is_made(
    clickhouse: ClickHouseServer, clickhouse_database: str, engine: str, partition_by: str
) -> None:
    mapping = Mapping((Column("at", "at", "DateTime64(3)"), Column("id", "id", "UInt64")))
    table = TableSpec(
        database=clickhouse_database,
        name="t",
        mapping=mapping,
        order_by=("at", "id"),
        engine=engine,
        version_column="at" if engine == "ReplacingMergeTree" else None,
        partition_by=partition_by,
    )
    clickhouse.query(create_table(table))
    fields = [{"at": f"2026-{month:02d}-01T00:00:00Z", "id": 1} for month in (1, 2, 3)]
    for _ in range(2):
        _insert(clickhouse, table, SourceRecords(fields=fields, topic="t", partition=0, offsets=[1, 2, 3]), "once")
    assert len(_rows(clickhouse, table)) == 3


def test_what_a_diff_proposes_is_carried_out(clickhouse: ClickHouseServer, clickhouse_database: str) -> None:
    old = Mapping((Column("id", "id", "Int32"), Column("n", "n", "Int8"), Column("s", "s", "String")))
    new = (Column("id", "id", "Int32"), Column("n", "n", "Int64"), Column("s", "s", "Nullable(String)"))
    has = TableSpec(database=clickhouse_database, name="t", mapping=old, order_by=("id",))
    wants = replace(has, mapping=Mapping((*new, Column("m", "m", "Map(String, Int8)"))))
    clickhouse.query(create_table(has))
    _insert(
        clickhouse, has, SourceRecords(fields=[{"id": 1, "n": 2, "s": "x"}], topic="t", partition=0, offsets=[1]), "a"
    )
    found = compare_table(wants, _described(clickhouse, has))
    assert found.statements
    assert not found.blockers
    for statement in found.statements:
        clickhouse.query(statement)
    assert not compare_table(wants, _described(clickhouse, has)).statements
    (row,) = _rows(clickhouse, has)
    assert (row["n"], row["s"], row["m"]) == (2, "x", {})


def _described(server: ClickHouseServer, table: TableSpec) -> ExistingTable:
    lines = server.query(f"DESCRIBE TABLE {table.full_name} FORMAT JSONCompactEachRow").splitlines()
    columns = [ExistingColumn(name, kind, default) for name, kind, default, *_ in map(json.loads, lines)]
    return ExistingTable("MergeTree", columns, table.order_by, table.window)
