"""ClickHouse's HTTP interface as curl and urllib see it."""

import gzip
import json
import subprocess
import zlib
from base64 import b64encode
from typing import Any

import lz4.frame
import pytest
import zstandard
from tests.support.clickhouse_http import (
    ENDLESS_QUERY,
    BackgroundCall,
    HttpResponse,
    auth_headers,
    is_running,
    send_query,
)
from tests.support.waiting import until

from holdfast.testing.clickhouse import ClickHouseServer


@pytest.mark.parametrize("path", ["/ping", "/replicas_status", "/"])
def test_liveness_needs_no_password(clickhouse: ClickHouseServer, path: str) -> None:
    said = send_query(clickhouse, path=path, headers={})
    assert (said.status, said.body) == (200, b"Ok.\n")


def test_another_path_is_not_there(clickhouse: ClickHouseServer) -> None:
    assert send_query(clickhouse, path="/nowhere").status == 404


def test_a_query_may_be_in_the_address_or_in_the_body_or_half_in_each(clickhouse: ClickHouseServer) -> None:
    assert send_query(clickhouse, query="SELECT 1").body == b"1\n"
    assert send_query(clickhouse, b"SELECT 1").body == b"1\n"
    assert send_query(clickhouse, b"1,2\n3,4\n", query="SELECT 1").body == b"1\n"


def test_curl_can_query_it(clickhouse: ClickHouseServer) -> None:
    url = f"http://{clickhouse.host}:{clickhouse.port}/"
    argv = ["curl", "-sS", "-u", f"{clickhouse.user}:{clickhouse.password}", url]
    assert subprocess.run([*argv, "--data-binary", "SELECT 1 + 1"], capture_output=True, check=True).stdout == b"2\n"
    asked = subprocess.run([*argv, "-G", "--data-urlencode", "query=SELECT 'ä'"], capture_output=True, check=True)
    assert asked.stdout == "ä\n".encode()


def test_a_chunked_body_is_read_to_its_end(clickhouse: ClickHouseServer, clickhouse_database: str) -> None:
    send_query(clickhouse, b"CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a", database=clickhouse_database)
    url = f"http://{clickhouse.host}:{clickhouse.port}/?database={clickhouse_database}&query=INSERT%20INTO%20t%20FORMAT%20TSV"
    rows = b"".join(b"%d\n" % number for number in range(100_000))
    argv = ["curl", "-sSf", "-u", f"{clickhouse.user}:{clickhouse.password}", "-H", "Transfer-Encoding: chunked", url]
    subprocess.run([*argv, "--data-binary", "@-"], input=rows, check=True)
    assert (
        send_query(clickhouse, b"SELECT count(), sum(a) FROM t", database=clickhouse_database).body
        == b"100000\t4999950000\n"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"X-ClickHouse-User": "tester"},
        {"X-ClickHouse-User": "tester", "X-ClickHouse-Key": "wrong"},
        {"X-ClickHouse-User": "nobody", "X-ClickHouse-Key": "-"},
        {"Authorization": "Basic " + b64encode(b"tester:wrong").decode()},
        {"Authorization": "Basic %%%"},
    ],
)
def test_a_wrong_password_is_refused_as_clickhouse_does(clickhouse: ClickHouseServer, wrong: dict[str, str]) -> None:
    said = send_query(clickhouse, b"SELECT 1", headers=wrong)
    assert (said.status, said.code) == (403, "516")
    assert b"AUTHENTICATION_FAILED" in said.body


def test_a_password_is_read_from_header_basic_or_parameter(clickhouse: ClickHouseServer) -> None:
    user, password = clickhouse.user, clickhouse.password
    basic = {"Authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()}
    assert send_query(clickhouse, b"SELECT 1", headers=basic).body == b"1\n"
    assert send_query(clickhouse, b"SELECT 1", headers={}, user=user, password=password).body == b"1\n"


def test_get_only_reads(clickhouse: ClickHouseServer, clickhouse_database: str) -> None:
    clickhouse.query("CREATE TABLE t (a Int8) ENGINE = Memory", database=clickhouse_database)
    for statement in ("CREATE TABLE u (a Int8) ENGINE = Memory", "INSERT INTO t VALUES (1)", "DROP TABLE t"):
        said = send_query(clickhouse, query=statement, database=clickhouse_database, method="GET")
        assert (said.status, said.code) == (500, "164"), statement


def test_database_format_id_settings_and_parameters_are_taken(clickhouse: ClickHouseServer) -> None:
    asks = b"SELECT currentDatabase() AS d, getSetting('max_threads') AS n, {who:String} AS w, {list:Array(Int64)} AS l"
    said = send_query(
        clickhouse,
        asks,
        database="system",
        default_format="JSONEachRow",
        query_id="my id",
        max_threads="7",
        param_who="a'b\\\\c\\nd",
        param_list="[1,2]",
    )
    assert json.loads(said.body) == {"d": "system", "n": 7, "w": "a'b\\c\nd", "l": [1, 2]}
    assert said.headers["X-ClickHouse-Query-Id"] == "my id"
    assert said.headers["X-ClickHouse-Format"] == "JSONEachRow"
    assert said.headers["X-ClickHouse-Timezone"]


def test_settings_of_one_request_do_not_reach_the_next(clickhouse: ClickHouseServer) -> None:
    asks = b"SELECT getSetting('max_block_size')"
    before = send_query(clickhouse, asks).body
    assert send_query(clickhouse, asks, max_block_size="777").body == b"777\n"
    assert send_query(clickhouse, asks).body == before


@pytest.mark.parametrize(
    ("statement", "status", "code"),
    [
        (b"SELECT 1 FROM nowhere", 404, "60"),
        (b"SELECT nothing", 404, "47"),
        (b"SELEC 1 FROM (", 400, "62"),
        (b"SELECT 1; SELECT 2", 400, "62"),
        (b"", 400, "62"),
        (b"SELECT throwIf(1)", 500, "395"),
        (b"SELECT toInt8('x')", 400, "6"),
        (b"SELECT * FROM numbers(10) SETTINGS max_result_rows = 5, result_overflow_mode = 'throw'", 500, "396"),
    ],
)
def test_errors_have_clickhouses_codes(clickhouse: ClickHouseServer, statement: bytes, status: int, code: str) -> None:
    said = send_query(clickhouse, statement, method="POST")
    assert (said.status, said.code) == (status, code), said.body
    assert said.body.startswith(f"Code: {code}. DB::Exception: ".encode())


_ODD: dict[str, Any] = {"max_threads = 1, b": "1"}


def test_an_unknown_setting_or_database_is_an_error(clickhouse: ClickHouseServer) -> None:
    assert send_query(clickhouse, b"SELECT 1", no_such_setting="1").code == "115"
    assert send_query(clickhouse, b"SELECT 1", **_ODD).code == "115"
    assert send_query(clickhouse, b"SELECT 1", database="no_such").code == "81"


@pytest.mark.parametrize("format_name", ["TSV", "Native", "ArrowStream", "RowBinaryWithNamesAndTypes", "JSONEachRow"])
def test_what_is_streamed_is_what_one_piece_would_be(clickhouse: ClickHouseServer, format_name: str) -> None:
    pa = pytest.importorskip("pyarrow")
    asks = f"SELECT number AS n, toString(number) AS s FROM numbers(200000) FORMAT {format_name}".encode()
    streamed, whole = (
        send_query(clickhouse, asks, max_threads="1"),
        send_query(clickhouse, asks, wait_end_of_query="1", max_threads="1"),
    )
    assert streamed.headers["Transfer-Encoding"] == "chunked"
    assert "Transfer-Encoding" not in whole.headers
    if format_name in ("TSV", "RowBinaryWithNamesAndTypes", "JSONEachRow"):
        assert streamed.body == whole.body
    elif format_name == "ArrowStream":
        assert pa.ipc.open_stream(streamed.body).read_all() == pa.ipc.open_stream(whole.body).read_all()
    else:
        assert len(streamed.body) == pytest.approx(len(whole.body), rel=0.01)


@pytest.mark.parametrize("format_name", ["ArrowStream", "RowBinaryWithNamesAndTypes", "JSON"])
@pytest.mark.parametrize("tail", ["", " SETTINGS max_threads = 1", ";"])
def test_an_answer_without_rows_still_names_its_columns(
    clickhouse: ClickHouseServer, format_name: str, tail: str
) -> None:
    said = send_query(clickhouse, f"SELECT 1 AS lonely WHERE 0 FORMAT {format_name}{tail} -- end".encode())
    assert said.status == 200
    assert b"lonely" in said.body


def test_a_failure_in_the_middle_of_an_answer_cannot_be_taken_for_its_end(clickhouse: ClickHouseServer) -> None:
    url = f"http://{clickhouse.host}:{clickhouse.port}/"
    asks = "SELECT number, throwIf(number = 900000) FROM numbers(1000000) SETTINGS max_block_size = 1000"
    argv = ["curl", "-sS", "-u", f"{clickhouse.user}:{clickhouse.password}", url, "--data-binary", asks]
    done = subprocess.run(argv, capture_output=True)
    assert done.returncode == 18, done.stderr  # curl: a transfer that was cut off
    assert b"Code: 395." in done.stdout[-2000:]


def test_an_answer_that_cannot_be_streamed_has_a_limit(clickhouse: ClickHouseServer) -> None:
    said = send_query(clickhouse, b"SELECT repeat('x', 1000000) FROM numbers(300) FORMAT JSONCompact")
    assert (said.status, said.code) == (500, "396")


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "lz4"])
def test_answers_are_packed_if_that_is_asked_for(clickhouse: ClickHouseServer, encoding: str) -> None:
    unpack = {
        "gzip": gzip.decompress,
        "deflate": zlib.decompress,
        "lz4": lz4.frame.decompress,
        "zstd": lambda body: zstandard.ZstdDecompressor().decompressobj().decompress(body),
    }[encoding]
    asks, headers = b"SELECT number FROM numbers(200000)", auth_headers(clickhouse, **{"Accept-Encoding": encoding})
    said = send_query(clickhouse, asks, headers=headers, enable_http_compression="1")
    assert said.headers["Content-Encoding"] == encoding
    assert unpack(said.body) == b"".join(b"%d\n" % number for number in range(200_000))
    assert "Content-Encoding" not in send_query(clickhouse, asks, headers=headers).headers


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "lz4"])
def test_bodies_may_be_packed(clickhouse: ClickHouseServer, clickhouse_database: str, encoding: str) -> None:
    pack = {
        "gzip": gzip.compress,
        "deflate": zlib.compress,
        "lz4": lz4.frame.compress,
        "zstd": zstandard.ZstdCompressor().compress,
    }[encoding]
    rows, headers = (
        pack(b"".join(b"%d\n" % n for n in range(500_000))),
        auth_headers(clickhouse, **{"Content-Encoding": encoding}),
    )
    send_query(clickhouse, b"CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a", database=clickhouse_database)
    where: dict[str, Any] = {"query": "INSERT INTO t FORMAT TSV", "database": clickhouse_database}
    assert send_query(clickhouse, rows, headers=headers, **where).status == 200
    assert clickhouse.query("SELECT count(), sum(a) FROM t", database=clickhouse_database) == b"500000\t124999750000\n"
    for wrong in (rows[: len(rows) // 2], b"nonsense" * 100):
        said = send_query(clickhouse, wrong, headers=headers, **where)
        assert (said.status, said.code) == (400, "271"), said.body
    assert clickhouse.query("SELECT count() FROM t", database=clickhouse_database) == b"500000\n"


def test_an_unknown_packing_is_refused(clickhouse: ClickHouseServer) -> None:
    assert (
        send_query(clickhouse, b"x", headers=auth_headers(clickhouse, **{"Content-Encoding": "snappy"})).code == "271"
    )


def test_the_summary_counts_rows_read_and_written(clickhouse: ClickHouseServer, clickhouse_database: str) -> None:
    send_query(clickhouse, b"CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a", database=clickhouse_database)
    said = send_query(clickhouse, b"1\n2\n3\n", query="INSERT INTO t FORMAT TSV", database=clickhouse_database)
    assert json.loads(said.headers["X-ClickHouse-Summary"])["written_rows"] == "3"
    said = send_query(
        clickhouse, b"SELECT count() FROM t WHERE a > 1", database=clickhouse_database, wait_end_of_query="1"
    )
    assert {"read_rows": "3", "result_rows": "1"}.items() <= json.loads(said.headers["X-ClickHouse-Summary"]).items()


def test_a_session_keeps_its_temporary_tables_and_settings(clickhouse: ClickHouseServer) -> None:
    def inside(statement: bytes, **more: Any) -> bytes:
        return send_query(clickhouse, statement, session_id="s-1", **more).body

    inside(b"CREATE TEMPORARY TABLE mine (a Int8)")
    inside(b"INSERT INTO mine VALUES (5)")
    inside(b"SET max_block_size = 500")
    assert inside(b"SELECT a, getSetting('max_block_size') FROM mine") == b"5\t500\n"
    assert inside(b"SELECT getSetting('max_block_size')", max_block_size="9") == b"9\n"
    assert inside(b"SELECT getSetting('max_block_size')") == b"500\n"
    assert send_query(clickhouse, b"SELECT a FROM mine").code == "60"
    assert send_query(clickhouse, b"SELECT 1", session_id="s-2", session_check="1").code == "372"


def test_a_session_is_used_by_one_request_at_a_time(clickhouse: ClickHouseServer) -> None:
    busy = BackgroundCall(lambda: send_query(clickhouse, ENDLESS_QUERY, session_id="s-3", query_id="in-session"))
    until(lambda: is_running(clickhouse, "in-session"))
    assert send_query(clickhouse, b"SELECT 1", session_id="s-3").code == "373"
    send_query(clickhouse, b"KILL QUERY WHERE query_id = 'in-session' SYNC")
    assert busy.result().code == "394"
    assert send_query(clickhouse, b"SELECT 1", session_id="s-3").body == b"1\n"


def test_a_session_is_closed_when_that_is_asked_for(clickhouse: ClickHouseServer) -> None:
    assert send_query(clickhouse, b"SELECT 1", session_id="s-5", close_session="1").body == b"1\n"
    assert send_query(clickhouse, b"SELECT 1", session_id="s-5", session_check="1").code == "372"


def test_there_are_no_roles(clickhouse: ClickHouseServer) -> None:
    assert send_query(clickhouse, b"SELECT 1", role="admin").code == "511"


def test_a_client_of_http_1_0_is_answered_whole(clickhouse: ClickHouseServer) -> None:
    url = f"http://{clickhouse.host}:{clickhouse.port}/"
    argv = ["curl", "-sS", "-0", "-u", f"{clickhouse.user}:{clickhouse.password}", url]
    done = subprocess.run(
        [*argv, "--data-binary", "SELECT number FROM numbers(100000)"], capture_output=True, check=True
    )
    assert done.stdout == b"".join(b"%d\n" % number for number in range(100_000))


def test_a_session_ends_when_its_time_is_over(clickhouse: ClickHouseServer) -> None:
    assert send_query(clickhouse, b"SELECT 1", session_id="s-4", session_timeout="0").body == b"1\n"
    until(lambda: send_query(clickhouse, b"SELECT 1", session_id="s-4", session_check="1").code == "372")


@pytest.mark.parametrize("readonly", ["0", "00", "+0", " 0", "0x0", "false", "", "3", "-1", "1.0"])
def test_no_spelling_of_readonly_lets_a_get_write(
    clickhouse: ClickHouseServer, clickhouse_database: str, readonly: str
) -> None:
    clickhouse.query("CREATE TABLE r (a Int8) ENGINE = Memory", database=clickhouse_database)
    said = send_query(clickhouse, query="DROP TABLE r", database=clickhouse_database, readonly=readonly, method="GET")
    assert said.status >= 400
    assert clickhouse.query("EXISTS TABLE r", database=clickhouse_database) == b"1\n"


@pytest.mark.parametrize("readonly", ["abc", "3", "-1", "", "0x0", "1.0"])
def test_readonly_is_0_1_or_2(clickhouse: ClickHouseServer, readonly: str) -> None:
    said = send_query(clickhouse, b"SELECT 1", readonly=readonly)
    assert (said.status, said.code) == (400, "36")
    assert b"must be 0, 1 or 2" in said.body


@pytest.mark.parametrize("readonly", ["1", "2"])
def test_a_readonly_request_of_a_session_reads_and_the_next_one_writes(
    clickhouse: ClickHouseServer, clickhouse_database: str, readonly: str
) -> None:
    def send(statement: bytes, **more: Any) -> HttpResponse:
        session = f"readonly-{readonly}"
        return send_query(clickhouse, statement, session_id=session, database=clickhouse_database, **more)

    assert send(b"SELECT 1", readonly=readonly).body == b"1\n"
    refused = send(b"CREATE TABLE w (a Int8) ENGINE = Memory", readonly=readonly)
    assert refused.code == "164", refused.body
    assert send(b"CREATE TABLE w (a Int8) ENGINE = Memory").status == 200
