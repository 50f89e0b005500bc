"""What a user with the password may not reach: files, other hosts, this process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.clickhouse_http import send_query

from holdfast.testing.clickhouse import ClickHouseServer, clickhouse_server

FORBIDDEN = [
    "SELECT * FROM file('/etc/passwd', 'LineAsString')",
    "SELECT file('/etc/passwd')",
    "SELECT `file`('/etc/passwd')",
    "SELECT \"file\"('/etc/passwd')",
    "SELECT file/**/('/etc/passwd')",
    "SELECT arrayMap(file, ['/etc/passwd'])",
    "SELECT arrayMap(`file`, ['/etc/passwd'])",
    "SELECT arrayMap(x -> file(x), ['/etc/passwd'])",
    "SELECT 1 AS foo$x$, file('/etc/passwd') AS bar$x$",
    "SELECT $a$'$a$, file('/etc/passwd')",
    "SELECT “file”('/etc/passwd')",
    "SELECT file\u00a0('/etc/passwd')",
    "SELECT file\ufeff('/etc/passwd')",
    "SELECT ‘a’, file('/etc/passwd')",
    "SELECT 1 # '\n , file('/etc/passwd')",
    "SELECT * FROM `/etc/passwd`",
    "SELECT * FROM default.`/etc/passwd`",
    "SELECT * FROM _files.`/etc/passwd`",
    "SELECT 1 INTO OUTFILE '{there}'",
    "SELECT 1 INTO/**/OUTFILE '{there}' FORMAT CSV",
    "INSERT INTO FUNCTION file('{there}', 'CSV', 'a Int8') VALUES (1)",
    "INSERT INTO t FROM INFILE '/etc/passwd' FORMAT CSV",
    "SELECT * FROM url('http://127.0.0.1:1/', 'CSV', 'a String')",
    "SELECT * FROM s3('http://127.0.0.1:1/b/x.csv', 'CSV', 'a String')",
    "SELECT * FROM remote('127.0.0.1:1', 'system', 'one')",
    "SELECT * FROM mysql('127.0.0.1:1', 'a', 'b', 'c', 'd')",
    "SELECT * FROM postgresql('127.0.0.1:1', 'a', 'b', 'c', 'd')",
    "SELECT * FROM sqlite('{there}', 'x')",
    "SELECT * FROM executable('id', 'LineAsString', 'a String')",
    "SELECT * FROM python(settings)",
    "SELECT * FROM Python(settings)",
    "SELECT * FROM hdfs('hdfs://127.0.0.1:1/x', 'CSV', 'a String')",
    "SELECT * FROM icebergLocal('{there}')",
    "SELECT * FROM deltaLakeLocal('{there}')",
    "CREATE TABLE f (a String) ENGINE = File('CSV', '/etc/passwd')",
    "CREATE TABLE f (a String) ENGINE = URL('http://127.0.0.1:1/', 'CSV')",
    "CREATE TABLE f (a String) ENGINE = Executable('id', 'CSV')",
    "CREATE TABLE f (a String) ENGINE = Kafka('127.0.0.1:1', 't', 'g', 'CSV')",
    "CREATE TABLE f ENGINE = MergeTree ORDER BY tuple() AS SELECT * FROM file('/etc/passwd', 'LineAsString')",
    "CREATE TABLE f (a Int8) ENGINE = MergeTree ORDER BY a SETTINGS disk = disk(type = local, path = '{there}')",
    "CREATE VIEW f AS SELECT * FROM file('/etc/passwd', 'LineAsString')",
    "CREATE DATABASE f ENGINE = Filesystem('/etc')",
    "CREATE DATABASE f ENGINE = SQLite('{there}')",
    "CREATE DATABASE f ENGINE = MySQL('127.0.0.1:1', 'd', 'u', 'p')",
    "CREATE DICTIONARY f (k UInt64) PRIMARY KEY k SOURCE(FILE(path '/etc/passwd' format 'TSV')) LAYOUT(FLAT()) LIFETIME(0)",
    "CREATE DICTIONARY f (k UInt64) PRIMARY KEY k SOURCE(EXECUTABLE(command 'id' format 'TSV')) LAYOUT(FLAT()) LIFETIME(0)",
    "CREATE DICTIONARY f (k UInt64) PRIMARY KEY k SOURCE(HTTP(url 'http://127.0.0.1:1' format 'TSV')) LAYOUT(FLAT()) LIFETIME(0)",
    "ATTACH TABLE f FROM '{there}' (a Int8) ENGINE = MergeTree ORDER BY a",
    "SELECT * FROM eval('SELECT file(''/etc/passwd'')')",
    "SELECT aiGenerate('x', 'y')",
    "DESCRIBE TABLE file('/etc/passwd', 'LineAsString')",
    "SELECT 1 FORMAT Template SETTINGS format_template_row = '/etc/passwd'",
    "SET format_template_row = '/etc/passwd'",
    "SELECT * FROM format(Avro, 'x') SETTINGS format_avro_schema_registry_url = 'http://127.0.0.1:1'",
    "SELECT * FROM format(Protobuf, 'x') SETTINGS format_schema = '/etc/passwd:X'",
    "BACKUP TABLE system.one TO File('{there}')",
    "RESTORE TABLE system.one FROM File('{there}')",
    "CREATE USER f IDENTIFIED WITH no_password",
    "GRANT ALL ON *.* TO default",
    "CREATE NAMED COLLECTION f AS a = 1",
    "SYSTEM SHUTDOWN",
    "SYSTEM KILL",
    "SYSTEM RELOAD CONFIG",
    "DROP DATABASE default",
    "DETACH DATABASE default",
    "DROP DATABASE IF EXISTS `default` SYNC",
    "RENAME DATABASE default TO f",
    "EXISTS TABLE _files.`/etc/passwd`",
    "SHOW CREATE TABLE _files.`/etc/passwd`",
    "DROP DATABASE _files",
    # What a second parser of SQL let through.
    "SELECT * APPLY(file) FROM (SELECT '/etc/passwd')",
    "SELECT * APPLY file FROM (SELECT '/etc/passwd')",
    "SELECT COLUMNS('.*') APPLY(x -> `\\x66ile`(x)) FROM (SELECT '/etc/passwd')",
    "SELECT arrayMap((file), ['/etc/passwd'])",
    "SELECT `\\x66ile`('/etc/passwd')",
    "SELECT \"fil\\x65\"('/etc/passwd')",
    "SELECT * FROM `\\x73qlite`('{there}', 'x')",
    "DESCRIBE TABLE `\\x73qlite`('{there}', 'x')",
    "EXPLAIN SELECT * FROM `\\x73qlite`('{there}', 'x')",
    "EXPLAIN AST SELECT 1 INTO OUTFILE '{there}'",
    "SHOW PROCESSLIST INTO OUTFILE '{there}'",
    "CREATE TABLE f (k UInt64, v String) ENGINE = EmbeddedRocksDB(0, '{there}') PRIMARY KEY k",
    "CREATE TABLE f (query String, database String, settings Map(String, String)) ENGINE = QueryRunner()",
    "CREATE TABLE f (a String) ENGINE = `\\x45xecutable`('id', 'CSV')",
    "CREATE DATABASE f ENGINE = Atomic SETTINGS disk = `\\x64isk`(type = local, path = '{there}/')",
    "CREATE DICTIONARY f (k UInt64) PRIMARY KEY k SOURCE(CLICKHOUSE(HOST '127.0.0.1' PORT 1 TABLE 'x')) LAYOUT(FLAT()) LIFETIME(0)",
    "CREATE DICTIONARY f (k UInt64) PRIMARY KEY k SOURCE(`\\x63lickhouse`(HOST '127.0.0.1' PORT 1)) LAYOUT(FLAT()) LIFETIME(0)",
    "CREATE OR REPLACE DICTIONARY f (k UInt64) PRIMARY KEY k SOURCE(NULL()) LAYOUT(FLAT()) LIFETIME(0)",
    "INSERT INTO t SELECT a FROM input('a String) ENGINE = Memory AS SELECT `\\\\x66ile`(\\'/etc/passwd\\') --') FORMAT TSV\n",
    "INSERT INTO t SELECT a FROM input('a String) AS SELECT * FROM numbers(1) --') FORMAT TSV\n",
    "INSERT INTO t VALUES (`\\x66ile`('/etc/passwd'))",
    "INSERT INTO t VALUES ((SELECT * FROM `\\x73qlite`('{there}', 'x')))",
    "KILL QUERY WHERE 1) FROM `\\x73qlite`('{there}', 'x') -- SYNC",
    "SELECT * FROM eval('SELECT 1') SETTINGS allow_experimental_eval_table_function = 1",
]


@pytest.fixture(scope="module")
def unconfined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseServer]:
    """As on a kernel without Landlock."""
    pytest.importorskip("chdb")
    with clickhouse_server(tmp_path_factory.mktemp("unconfined"), options=["--confined", "false"]) as server:
        yield server


@pytest.fixture(params=["clickhouse", "unconfined"])
def server(request: pytest.FixtureRequest) -> ClickHouseServer:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, ClickHouseServer)
    return found


@pytest.mark.parametrize("statement", FORBIDDEN)
def test_a_forbidden_statement_is_refused_and_the_server_keeps_running(
    server: ClickHouseServer, tmp_path: Path, statement: str
) -> None:
    there = tmp_path / "there"
    for left in ("DATABASE", "DICTIONARY", "TABLE"):
        send_query(server, f"DROP {left} IF EXISTS f SYNC".encode())
    server.query("CREATE OR REPLACE TABLE t (a String) ENGINE = Memory")
    said = send_query(
        server, statement.replace("{there}", str(there)).encode(), connect_timeout="1", http_max_tries="1"
    )
    assert said.status >= 400, said.body
    assert said.code not in (None, "1002"), said.body
    assert b"root:" not in said.body
    assert not there.exists()
    assert server.query("SELECT count() FROM t") == b"0\n"


def test_a_function_named_by_a_parameter_is_refused(server: ClickHouseServer) -> None:
    said = send_query(server, b"SELECT arrayMap({f:Identifier}, ['/etc/passwd'])", param_f="file")
    assert (said.status, said.code) == (403, "497"), said.body
    assert b"root:" not in said.body


def test_a_refusal_does_not_name_files_of_the_server(server: ClickHouseServer) -> None:
    said = send_query(server, b"SELECT * APPLY(file) FROM (SELECT '/etc/passwd')")
    assert (said.status, said.code) == (403, "497")
    assert b".py" not in said.body


@pytest.mark.parametrize("body", [b"(file('/etc/passwd'))", b"(arrayMap(file, ['/etc/passwd'])[1])", b"(toString(1))"])
@pytest.mark.parametrize("statement", ["INSERT INTO v FORMAT Values", "INSERT INTO v VALUES", "INSERT INTO v"])
def test_rows_are_data_and_not_computed(server: ClickHouseServer, statement: str, body: bytes) -> None:
    server.query("CREATE TABLE IF NOT EXISTS v (a String) ENGINE = Memory")
    server.query("TRUNCATE TABLE v")
    assert send_query(server, body, query=statement).status >= 400
    assert server.query("SELECT count() FROM v") == b"0\n"
    assert send_query(server, b"('x'), ('y')", query=statement).status == 200
    assert server.query("SELECT count() FROM v") == b"2\n"


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT url, file FROM (SELECT 'a' AS url, 'b' AS file)",
        "SELECT 'file(''/etc/passwd'')' AS text",
        "SELECT 1 -- file('/etc/passwd')",
        "SELECT source FROM (SELECT 1 AS source)",
        "SELECT path('http://a/b'), domain('http://a/b') FROM format(JSONEachRow, '{\"a\": 1}')",
    ],
)
def test_harmless_statements_with_forbidden_names_are_accepted(clickhouse: ClickHouseServer, statement: str) -> None:
    assert send_query(clickhouse, statement.encode()).status == 200


def test_a_table_may_have_the_name_of_a_function(clickhouse: ClickHouseServer, clickhouse_database: str) -> None:
    for name in ("url", "file", "`remote`"):
        for statement in (
            f"CREATE TABLE {name} (a Int8) ENGINE = MergeTree ORDER BY a",
            f"INSERT INTO {name} (a) VALUES (1)",
            f"INSERT INTO {clickhouse_database}.{name} (a) SELECT 2",
            f"SELECT count() FROM {name}",
        ):
            assert send_query(clickhouse, statement.encode(), database=clickhouse_database).status == 200, statement
