"""Statements that are killed, too many, too long or repeated; and what a killed one may still do (nothing)."""

import socket
from pathlib import Path

import pytest
from tests.support.clickhouse_http import ENDLESS_QUERY, BackgroundCall, auth_headers, is_running, send_query
from tests.support.waiting import until

from holdfast.testing.clickhouse import ClickHouseServer, clickhouse_server

EVEN_MORE = b"SELECT number, randomPrintableASCII(1000) FROM numbers(100000000) FORMAT TSV"


def test_a_kill_returns_when_the_statement_no_longer_runs(clickhouse: ClickHouseServer) -> None:
    running = BackgroundCall(lambda: send_query(clickhouse, ENDLESS_QUERY, query_id="forever-1"))
    until(lambda: is_running(clickhouse, "forever-1"))
    killed = send_query(
        clickhouse, b"KILL QUERY WHERE query_id LIKE 'forever-%' AND user = 'tester' SYNC FORMAT JSONEachRow"
    )
    assert b'"kill_status":"finished","query_id":"forever-1"' in killed.body
    assert not is_running(clickhouse, "forever-1")
    assert (running.result().status, running.result().code) == (500, "394")


def test_a_kill_in_test_mode_kills_nothing(clickhouse: ClickHouseServer) -> None:
    running = BackgroundCall(lambda: send_query(clickhouse, ENDLESS_QUERY, query_id="forever-2"))
    until(lambda: is_running(clickhouse, "forever-2"))
    assert b"forever-2" in send_query(clickhouse, b"KILL QUERY WHERE query_id = 'forever-2' TEST").body
    assert is_running(clickhouse, "forever-2")
    assert b"forever-2" in send_query(clickhouse, b"KILL QUERY WHERE query_id = 'forever-2'").body
    assert running.result().code == "394"


def test_a_kill_that_matches_nothing_returns_no_rows(clickhouse: ClickHouseServer) -> None:
    assert send_query(clickhouse, b"KILL QUERY WHERE query_id = 'no such' SYNC").body == b""
    assert send_query(clickhouse, b"KILL QUERY WHERE no_such_column = 1 SYNC").code in (None, "47")
    assert send_query(clickhouse, b"KILL QUERY").code == "62"


def test_a_kill_reaches_an_insert_whose_body_is_still_coming(
    clickhouse: ClickHouseServer, clickhouse_database: str
) -> None:
    clickhouse.query("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a", database=clickhouse_database)
    with _half_an_insert(clickhouse, clickhouse_database, "slow-insert") as half:
        killed = until(lambda: send_query(clickhouse, b"KILL QUERY WHERE query_id = 'slow-insert' SYNC").body)
        assert b"slow-insert" in killed
        half.settimeout(20)
        assert b"394" in half.recv(65536)
    assert clickhouse.query("SELECT count() FROM t", database=clickhouse_database) == b"0\n"


def test_a_kill_does_not_wait_for_a_client_that_does_not_read(clickhouse: ClickHouseServer) -> None:
    with _connected(clickhouse, EVEN_MORE, "query_id=unread"):
        until(lambda: is_running(clickhouse, "unread"))
        assert b"unread" in send_query(clickhouse, b"KILL QUERY WHERE query_id = 'unread' SYNC").body
        assert not is_running(clickhouse, "unread")


def test_an_insert_with_a_truncated_body_stores_nothing(clickhouse: ClickHouseServer, clickhouse_database: str) -> None:
    clickhouse.query("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a", database=clickhouse_database)
    with _half_an_insert(clickhouse, clickhouse_database, "cut-off"):
        pass
    until(lambda: not send_query(clickhouse, b"KILL QUERY WHERE query_id = 'cut-off' TEST").body)
    assert clickhouse.query("SELECT count() FROM t", database=clickhouse_database) == b"0\n"


def test_an_id_is_used_by_one_statement_at_a_time(clickhouse: ClickHouseServer) -> None:
    running = BackgroundCall(lambda: send_query(clickhouse, ENDLESS_QUERY, query_id="the-one"))
    until(lambda: is_running(clickhouse, "the-one"))
    assert send_query(clickhouse, b"SELECT 1", query_id="the-one").code == "216"
    send_query(clickhouse, b"KILL QUERY WHERE query_id = 'the-one' SYNC")
    running.result()
    for _ in range(50):
        assert send_query(clickhouse, b"SELECT 1", query_id="the-one").body == b"1\n"


def test_an_id_is_taken_over_if_that_is_asked_for(clickhouse: ClickHouseServer) -> None:
    running = BackgroundCall(lambda: send_query(clickhouse, ENDLESS_QUERY, query_id="taken-over"))
    until(lambda: is_running(clickhouse, "taken-over"))
    assert send_query(clickhouse, b"SELECT 1", query_id="taken-over", replace_running_query="1").body == b"1\n"
    assert running.result().code == "394"


def test_a_statement_ends_when_its_time_is_over(clickhouse: ClickHouseServer) -> None:
    said = send_query(clickhouse, ENDLESS_QUERY, max_execution_time="0.5")
    assert (said.status, said.code) == (408, "159")


def test_the_longest_time_is_the_operators_to_set(clickhouse: ClickHouseServer) -> None:
    assert send_query(clickhouse, b"SELECT 1", max_execution_time="0").code == "452"
    assert send_query(clickhouse, b"SELECT 1 SETTINGS max_execution_time = 1000000").code == "452"


def test_writers_do_not_hold_readers_up(clickhouse: ClickHouseServer, clickhouse_database: str) -> None:
    clickhouse.query("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a", database=clickhouse_database)
    with _half_an_insert(clickhouse, clickhouse_database, "writer"):
        for number in range(20):
            clickhouse.query(f"INSERT INTO t VALUES ({number})", database=clickhouse_database)
        assert clickhouse.query("SELECT count() FROM t", database=clickhouse_database) == b"20\n"


def test_too_many_at_once_wait_and_are_then_refused(tmp_path: Path) -> None:
    pytest.importorskip("chdb")
    limits = ["--queries-max", "1", "--queue-ms", "5000", "--body-bytes-max", "100000", "--query-bytes-max", "5000"]
    with clickhouse_server(tmp_path, options=limits) as server:
        running = BackgroundCall(lambda: send_query(server, ENDLESS_QUERY, query_id="only"))
        until(lambda: is_running(server, "only"))
        second = BackgroundCall(lambda: send_query(server, b"SELECT 1", query_id="waits"))
        assert until(lambda: is_running(server, "waits")), "one that waits for its turn is listed too"
        assert (second.result().status, second.result().code) == (503, "202")
        third = BackgroundCall(lambda: send_query(server, b"SELECT 1", query_id="waits too"))
        until(lambda: send_query(server, b"KILL QUERY WHERE query_id = 'waits too' ASYNC").body)
        assert third.result().code == "394"
        assert b"only" in send_query(server, b"KILL QUERY WHERE query_id = 'only' SYNC").body
        running.result()
        assert send_query(server, b"SELECT 1").body == b"1\n"
        said = send_query(server, b"x" * 200_000, query="INSERT INTO FUNCTION null('a String') FORMAT TSV")
        assert (said.status, said.code) == (413, "307")


def _connected(server: ClickHouseServer, body: bytes, parameters: str, length: int | None = None) -> socket.socket:
    made = socket.create_connection((server.host, server.port))
    headers = "".join(f"{name}: {value}\r\n" for name, value in auth_headers(server).items())
    length = len(body) if length is None else length
    made.sendall(
        f"POST /?{parameters} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {length}\r\n\r\n".encode() + body
    )
    return made


def _half_an_insert(server: ClickHouseServer, database: str, query_id: str) -> socket.socket:
    statement = f"database={database}&query_id={query_id}&query=INSERT+INTO+t+FORMAT+TSV"
    return _connected(server, b"1\n2\n3\n", statement, length=1000)
