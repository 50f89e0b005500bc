"""One statement over HTTP with the standard library: the result, or the server's own error."""

import pickle
import socket

import pytest
from tests.support.clickhouse_http import send_query

from holdfast.clickhouse.error_codes import ClickHouseErrorCode
from holdfast.clickhouse.errors import ClickHouseError, ClickHouseUnreachableError
from holdfast.clickhouse.http_query import query
from holdfast.testing.clickhouse import ClickHouseServer
from holdfast.vocabulary.errors import InvalidError


def ask(server: ClickHouseServer, sql: str, *, format: str = "TSV", path: str = "", password: str = "") -> bytes:  # noqa: A002
    url = f"http://{server.host}:{server.port}{path}"
    return query(url, sql, user=server.user, password=password or server.password, format=format, timeout_s=30)


def test_a_result_has_the_format_that_was_asked_for(clickhouse: ClickHouseServer) -> None:
    assert ask(clickhouse, "SELECT 1, 'ä'") == "1\tä\n".encode()
    assert ask(clickhouse, "SELECT 1 AS n", format="JSONEachRow") == b'{"n":1}\n'
    assert ask(clickhouse, "SELECT 1 AS n FORMAT CSV", format="JSONEachRow") == b"1\n"


def test_the_path_of_the_url_is_the_database(clickhouse: ClickHouseServer, clickhouse_database: str) -> None:
    assert ask(clickhouse, "SELECT currentDatabase()", path=f"/{clickhouse_database}").decode().strip() == (
        clickhouse_database
    )


def test_an_error_carries_the_servers_code_and_text(clickhouse: ClickHouseServer) -> None:
    with pytest.raises(ClickHouseError, match="nowhere") as raised:
        ask(clickhouse, "SELECT * FROM nowhere")
    assert raised.value.code == ClickHouseErrorCode.UNKNOWN_TABLE
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.code) == (str(raised.value), raised.value.code)
    with pytest.raises(ClickHouseError) as raised:
        ask(clickhouse, "SELECT 1", password="wr0ng")
    assert raised.value.code == ClickHouseErrorCode.AUTHENTICATION_FAILED
    assert "wr0ng" not in str(raised.value)


def test_an_error_late_in_a_statement_is_an_error_and_not_a_part_of_the_result(clickhouse: ClickHouseServer) -> None:
    with pytest.raises(ClickHouseError) as raised:
        ask(clickhouse, "SELECT throwIf(number = 3000000) FROM numbers(4000000)")
    assert raised.value.code == ClickHouseErrorCode.FUNCTION_THROW_IF_VALUE_IS_NON_ZERO


def test_an_address_without_a_server_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ClickHouseUnreachableError, match=f"127.0.0.1:{port} does not answer"):
        query(f"http://127.0.0.1:{port}", "SELECT 1", user="u", password="p", format="TSV", timeout_s=5)


def test_another_scheme_is_refused() -> None:
    with pytest.raises(InvalidError, match="http"):
        query("tcp://localhost:9000", "SELECT 1", user="u", password="p", format="TSV", timeout_s=5)


def test_every_code_has_the_name_the_engine_gives_it(clickhouse: ClickHouseServer) -> None:
    codes = ", ".join(str(code.value) for code in ClickHouseErrorCode)
    names = send_query(clickhouse, f"SELECT errorCodeToName(arrayJoin([{codes}]))".encode()).body.decode().split()
    assert names == [code.name for code in ClickHouseErrorCode]
