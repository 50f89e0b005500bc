"""The client production uses, against the embedded server: handshake, parameters, types of a pipeline, tokens, errors, threads."""

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from holdfast.testing.clickhouse import ClickHouseServer

pa = pytest.importorskip("pyarrow")
clickhouse_connect = pytest.importorskip("clickhouse_connect")

TYPES: dict[str, tuple[str, Any]] = {
    "bool": ("Bool", True),
    "i8": ("Int8", -8),
    "u64": ("UInt64", 2**64 - 1),
    "f32": ("Float32", 1.5),
    "f64": ("Float64", -0.1),
    "dec": ("Decimal(18, 4)", Decimal("12.3456")),
    "wide": ("Decimal(50, 1)", Decimal("1234567890123456789012345678901234567890.5")),
    "text": ("String", "a'b\\c\n日"),
    "day": ("Date", date(2025, 11, 15)),
    "seconds": ("DateTime('UTC')", datetime(2025, 11, 15, 10, 0, 0, tzinfo=UTC)),
    "ms": ("DateTime64(3, 'UTC')", datetime(2025, 11, 15, 10, 0, 0, 125000, tzinfo=UTC)),
    "us": ("DateTime64(6, 'UTC')", datetime(1965, 1, 1, 0, 0, 0, 5, tzinfo=UTC)),
    "id": ("UUID", UUID("61f0c404-5cb3-11e7-907b-a6006ad3dba0")),
    "list": ("Array(Nullable(Int32))", [1, None]),
    "map": ("Map(String, Float64)", {"x": 1.5}),
    "low": ("LowCardinality(String)", "few"),
    "lownull": ("LowCardinality(Nullable(String))", None),
    "maybe": ("Nullable(UUID)", None),
    "maybetime": ("Nullable(DateTime64(3, 'UTC'))", None),
}
COLUMNS = ", ".join(f"`{name}` {kind}" for name, (kind, _) in TYPES.items())
ROW = [value for _, value in TYPES.values()]


@pytest.fixture(params=[False, "lz4", "zstd", "gzip"], ids=["plain", "lz4", "zstd", "gzip"])
def client(request: pytest.FixtureRequest, clickhouse: ClickHouseServer, clickhouse_database: str) -> Iterator[Any]:
    with _client(clickhouse, clickhouse_database, compress=request.param) as made:
        yield made


@pytest.fixture
def plain(clickhouse: ClickHouseServer, clickhouse_database: str) -> Iterator[Any]:
    with _client(clickhouse, clickhouse_database) as made:
        yield made


def _client(server: ClickHouseServer, database: str, **options: Any) -> Any:
    return clickhouse_connect.get_client(
        dsn=f"{server.url}/{database}", autogenerate_session_id=False, tz_mode="aware", **options
    )


def test_the_handshake_tells_version_and_zone(client: Any, clickhouse_database: str) -> None:
    assert client.server_version.startswith("26.")
    assert client.ping()
    assert client.command("SELECT currentDatabase()") == clickhouse_database


def test_a_wrong_password_is_a_database_error(clickhouse: ClickHouseServer) -> None:
    with pytest.raises(clickhouse_connect.driver.exceptions.DatabaseError, match="516"):
        clickhouse_connect.get_client(host=clickhouse.host, port=clickhouse.port, username="tester", password="no")


def test_every_type_of_a_pipeline_survives_the_way_there_and_back(client: Any) -> None:
    client.command(f"CREATE TABLE t ({COLUMNS}) ENGINE = MergeTree ORDER BY tuple()")
    summary = client.insert("t", [ROW] * 3, column_names=list(TYPES))
    assert summary.written_rows == 3
    assert [list(row) for row in client.query("SELECT * FROM t").result_rows] == [ROW] * 3


def test_arrow_goes_both_ways(client: Any) -> None:
    client.command("CREATE TABLE t (a Int64, b Nullable(String), c Array(Int32)) ENGINE = MergeTree ORDER BY a")
    rows = pa.table({"a": range(100_000), "b": ["x", None] * 50_000, "c": [[1, 2]] * 100_000})
    client.insert_arrow("t", rows)
    read = client.query_arrow("SELECT * FROM t ORDER BY a", use_strings=True)
    assert read.column("a").to_pylist() == rows.column("a").to_pylist()
    assert read.column("b").to_pylist() == rows.column("b").to_pylist()
    with client.query_arrow_stream("SELECT a FROM t") as stream:
        assert sum(batch.num_rows for batch in stream) == 100_000


def test_frames_go_both_ways(plain: Any) -> None:
    pandas = pytest.importorskip("pandas")
    plain.command("CREATE TABLE t (a Int64, b String) ENGINE = MergeTree ORDER BY a")
    plain.insert_df("t", pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]}))
    assert plain.query_df("SELECT * FROM t ORDER BY a").to_dict("list") == {"a": [1, 2], "b": ["x", "y"]}


def test_parameters_are_bound_by_the_server(client: Any) -> None:
    asks = "SELECT {text:String}, {number:UInt64}, {list:Array(String)}, {at:DateTime64(3, 'UTC')}"
    at = datetime(2025, 11, 15, 10, 0, 0, 125000, tzinfo=UTC)
    given = {"text": "a'b\\c\n\t日", "number": 2**63, "list": ["x", "y'z"], "at": at}
    assert client.query(asks, parameters=given).result_rows == [(given["text"], given["number"], given["list"], at)]


def test_an_answer_without_rows_has_its_columns(client: Any) -> None:
    assert client.query("SELECT 1 AS a WHERE 0").result_rows == []
    assert client.query("SELECT 1 AS a, 'x' AS b LIMIT 0").column_names == ("a", "b")
    assert client.query_arrow("SELECT 1 AS a WHERE 0").column_names == ["a"]


def test_large_answers_come_in_blocks(plain: Any) -> None:
    with plain.query_row_block_stream("SELECT number FROM numbers(1000000)") as stream:
        sizes = [len(block) for block in stream]
    assert sum(sizes) == 1_000_000
    assert len(sizes) > 1


FORMATS = {
    "TSV": b"1\tx\n2\ty\n",
    "TabSeparated": b"1\tx\n2\ty\n",
    "CSV": b'1,"x"\n2,"y"\n',
    "CSVWithNames": b'a,b\n1,"x"\n2,"y"\n',
    "JSONEachRow": b'{"a": 1, "b": "x"}\n{"a": "2", "b": "y"}\n',
    "JSONCompactEachRow": b'[1, "x"]\n[2, "y"]\n',
    "Values": b"(1, 'x'), (2, 'y')",
    "RowBinary": b"\x01\0\0\0\0\0\0\0\x01x\x02\0\0\0\0\0\0\0\x01y",
}


@pytest.mark.parametrize("format_name", [*FORMATS, "Arrow", "ArrowStream", "Parquet", "Native"])
def test_rows_come_in_every_format(plain: Any, format_name: str) -> None:
    plain.command("CREATE TABLE t (a Int64, b String) ENGINE = MergeTree ORDER BY a")
    plain.raw_insert("t", column_names=["a", "b"], insert_block=_rows(plain, format_name), fmt=format_name)
    assert plain.query("SELECT * FROM t ORDER BY a").result_rows == [(1, "x"), (2, "y")]


@pytest.mark.parametrize("format_name", [*FORMATS, "Arrow", "ArrowStream", "Native"])
def test_rows_go_through_a_select_on_their_way_in(
    clickhouse: ClickHouseServer, clickhouse_database: str, plain: Any, format_name: str
) -> None:
    plain.command("CREATE TABLE t (a Int64, b String) ENGINE = MergeTree ORDER BY a")
    rows = _rows(plain, format_name)
    text = (
        f"INSERT INTO t (a, b) SELECT a + 10, upper(b) FROM input('a Int64, b String') WHERE a > 1 FORMAT {format_name}"
    )
    clickhouse.query(text, rows, database=clickhouse_database)
    assert plain.query("SELECT * FROM t").result_rows == [(12, "Y")]
    clickhouse.query(text.encode() + b"\n" + rows, database=clickhouse_database)
    assert plain.query("SELECT * FROM t").result_rows == [(12, "Y")] * 2


def _rows(client: Any, format_name: str) -> bytes:
    if format_name in FORMATS:
        return FORMATS[format_name]
    if format_name == "Native":
        return bytes(
            client.raw_query("SELECT toInt64(number + 1) AS a, ['x', 'y'][a] AS b FROM numbers(2)", fmt="Native")
        )
    table, sink = pa.table({"a": [1, 2], "b": ["x", "y"]}), io.BytesIO()
    if format_name == "Parquet":
        pytest.importorskip("pyarrow.parquet").write_table(table, sink)
    else:
        make = pa.ipc.new_stream if format_name == "ArrowStream" else pa.ipc.new_file
        with make(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue()


@pytest.mark.parametrize("through", ["plain", "input"])
@pytest.mark.parametrize("threads", ["1", "4"])
def test_a_token_is_stored_once(
    clickhouse: ClickHouseServer, clickhouse_database: str, through: str, threads: str
) -> None:
    def ask(*args: Any, **parameters: Any) -> bytes:
        return bytes(clickhouse.query(*args, database=clickhouse_database, **parameters))

    ask("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a SETTINGS non_replicated_deduplication_window = 100")
    rows = b"".join(b"%d\n" % number for number in range(150_000))
    source = " SELECT a FROM input('a Int64') WHERE throwIf((SELECT 1) > 2) = 0" if through == "input" else ""
    for token in ("one", "one", "two", "one", "two"):
        ask(f"INSERT INTO t (a){source} FORMAT TSV", rows, insert_deduplication_token=token, max_threads=threads)
    assert ask("SELECT count(), sum(a) FROM t") == b"300000\t22499850000\n"
    ask(f"INSERT INTO t (a){source} FORMAT TSV", b"7\n", insert_deduplication_token="two")
    assert ask("SELECT count() FROM t") == b"300000\n", "a known token stores nothing, whatever it brings"


def test_a_token_is_the_same_whichever_way_its_rows_come(
    clickhouse: ClickHouseServer, clickhouse_database: str
) -> None:
    where: dict[str, Any] = {"database": clickhouse_database, "insert_deduplication_token": "same"}
    clickhouse.query(
        "CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a SETTINGS non_replicated_deduplication_window = 100",
        database=clickhouse_database,
    )
    clickhouse.query("INSERT INTO t SELECT a FROM input('a Int64') FORMAT TSV", b"1\n2\n", **where)
    clickhouse.query("INSERT INTO t FORMAT TSV", b"1\n2\n", **where)
    assert clickhouse.query("SELECT count() FROM t", database=clickhouse_database) == b"2\n"


def test_a_fence_refuses_an_older_epoch_and_stores_nothing(
    clickhouse: ClickHouseServer, clickhouse_database: str
) -> None:
    def ask(*args: Any, **parameters: Any) -> bytes:
        return bytes(clickhouse.query(*args, database=clickhouse_database, **parameters))

    ask("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a SETTINGS non_replicated_deduplication_window = 100")
    ask("CREATE TABLE fence (k String, epoch UInt64) ENGINE = MergeTree ORDER BY k")
    ask("INSERT INTO fence VALUES ('p', 4)")
    fenced = (
        "INSERT INTO t (a) SELECT a FROM input('a Int64') "
        "WHERE throwIf((SELECT max(epoch) FROM fence WHERE k = 'p') > {epoch:UInt64}) = 0 FORMAT TSV"
    )
    ask(fenced, b"1\n", param_epoch="4", insert_deduplication_token="r")
    ask("INSERT INTO fence VALUES ('p', 5)")
    with pytest.raises(Exception, match="500"):
        ask(fenced, b"2\n", param_epoch="4", insert_deduplication_token="s")
    ask(fenced, b"1\n", param_epoch="5", insert_deduplication_token="r")
    assert ask("SELECT groupArray(a) FROM t") == b"[1]\n"


@pytest.mark.parametrize("through", ["plain", "input"])
def test_an_insert_is_one_part_however_its_rows_are_cut(
    clickhouse: ClickHouseServer, clickhouse_database: str, through: str
) -> None:
    clickhouse.query("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY tuple()", database=clickhouse_database)
    clickhouse.query("SYSTEM STOP MERGES t", database=clickhouse_database)
    table, sink = pa.table({"a": range(100_000)}), io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=1_000)
    source = " SELECT a FROM input('a Int64')" if through == "input" else ""
    clickhouse.query(f"INSERT INTO t (a){source} FORMAT ArrowStream", sink.getvalue(), database=clickhouse_database)
    where = "WHERE database = currentDatabase() AND table = 't' AND active"
    parts = clickhouse.query(f"SELECT count(), sum(rows) FROM system.parts {where}", database=clickhouse_database)
    assert parts == b"1\t100000\n"
    stored = clickhouse.query("SELECT a FROM t SETTINGS max_threads = 1", database=clickhouse_database)
    assert stored == b"".join(b"%d\n" % number for number in range(100_000)), "in the order in which they came"


def test_errors_name_their_code(client: Any) -> None:
    errors = clickhouse_connect.driver.exceptions
    with pytest.raises(errors.DatabaseError, match="UNKNOWN_TABLE"):
        client.query("SELECT * FROM nowhere")
    client.command("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a")
    with pytest.raises(errors.DatabaseError, match="CANNOT_PARSE"):
        client.raw_insert("t", insert_block=b"x\n", fmt="TSV")
    with (
        pytest.raises(errors.Error, match="395"),
        client.query_row_block_stream(
            "SELECT number, throwIf(number = 900000) FROM numbers(1000000) SETTINGS max_block_size = 10000"
        ) as stream,
    ):
        for _ in stream:
            pass


def test_threads_share_a_client(plain: Any) -> None:
    plain.command("CREATE TABLE t (a Int64, b Int64) ENGINE = MergeTree ORDER BY a")

    def work(number: int) -> int:
        plain.insert("t", [[number, row] for row in range(100)], column_names=["a", "b"])
        return int(plain.query("SELECT count() FROM t WHERE a = {a:Int64}", parameters={"a": number}).result_rows[0][0])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(60))) == [100] * 60
    assert plain.query("SELECT count(), uniqExact(a) FROM t").result_rows == [(6000, 60)]
