"""The process: what is answered survives SIGKILL, SIGTERM finishes what runs, and a directory has one owner."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError

import pytest
from tests.support.clickhouse_http import ENDLESS_QUERY, BackgroundCall, is_running, send_query
from tests.support.waiting import until

from holdfast.testing.clickhouse import ClickHouseServer, clickhouse_server

pytest.importorskip("chdb")

TABLE = "CREATE TABLE t (a Int64, b Int64) ENGINE = MergeTree ORDER BY a SETTINGS non_replicated_deduplication_window = 10000"
ROWS = 500


def _insert_until_it_dies(server: ClickHouseServer, writer: int, answered: list[int], tried: list[int]) -> None:
    for number in range(writer * 1_000_000, (writer + 1) * 1_000_000):
        tried.append(number)
        try:
            server.query("INSERT INTO t FORMAT TSV", _rows(number), insert_deduplication_token=str(number))
        except (URLError, HTTPException, OSError):
            return
        answered.append(number)


@pytest.mark.parametrize("after", [60, *(pytest.param(n, marks=pytest.mark.long) for n in (20, *range(70, 270, 10)))])
def test_acknowledged_inserts_survive_a_sigkill_and_none_is_stored_in_part(tmp_path: Path, after: int) -> None:
    with clickhouse_server(tmp_path) as server:
        server.query(TABLE)
        answered: list[int] = []
        tried: list[int] = []
        with ThreadPoolExecutor(4) as pool:
            for writer in range(4):
                pool.submit(_insert_until_it_dies, server, writer, answered, tried)
            until(lambda: len(answered) >= after)
            server.kill()
        server.start()
        stored = _stored(server)
        assert set(answered) <= stored
        assert stored <= set(tried)
        for number in tried:  # as whoever did not get an answer does: the same again, under the same token
            server.query("INSERT INTO t FORMAT TSV", _rows(number), insert_deduplication_token=str(number))
        for number in set(tried) - _stored(server):  # ClickHouse notes a token before its rows, and was killed between
            assert number not in answered
            server.query("INSERT INTO t FORMAT TSV", _rows(number), insert_deduplication_token=f"{number}:1")
        assert _stored(server) == set(tried)


def _rows(number: int) -> bytes:
    return b"".join(b"%d\t%d\n" % (number, row) for row in range(ROWS))


def _stored(server: ClickHouseServer) -> set[int]:
    lines = server.query("SELECT a, count(), uniqExact(b) FROM t GROUP BY a").decode().splitlines()
    rows = [tuple(map(int, line.split("\t"))) for line in lines]
    assert all(row[1:] == (ROWS, ROWS) for row in rows), "an insert is there whole and once, or not at all"
    return {row[0] for row in rows}


def test_sigterm_lets_a_statement_finish_and_exits_well(tmp_path: Path) -> None:
    with clickhouse_server(tmp_path) as server:
        server.query(TABLE)
        slow = b"INSERT INTO t SELECT number, sleepEachRow(0.2) FROM numbers(6) SETTINGS max_block_size = 1, max_threads = 1"
        running = BackgroundCall(lambda: send_query(server, slow, query_id="slow"))
        until(lambda: is_running(server, "slow"))
        assert server.stop() == 0
        assert running.result().status == 200
        server.start()
        assert server.query("SELECT count() FROM t") == b"6\n"


def test_sigterm_does_not_wait_for_ever(tmp_path: Path) -> None:
    with clickhouse_server(tmp_path, options=["--stop-ms", "300"]) as server:
        running = BackgroundCall(lambda: send_query(server, ENDLESS_QUERY, query_id="forever"))
        until(lambda: is_running(server, "forever"))
        assert server.stop() == 0
        assert running.result().code == "394"


def test_sigterm_stops_it_whichever_thread_the_kernel_gives_it_to(tmp_path: Path) -> None:
    with clickhouse_server(tmp_path) as server:
        [other, *_] = [
            int(each.name) for each in Path(f"/proc/{server.pid}/task").iterdir() if int(each.name) != server.pid
        ]
        tgkill = ctypes.CDLL(None, use_errno=True).tgkill
        assert tgkill(server.pid, other, signal.SIGTERM) == 0
        until(lambda: Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")


def test_a_second_process_on_the_directory_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    with clickhouse_server(tmp_path) as server:
        argv = [sys.executable, "-m", "holdfast", "clickhouse", "--data", str(server.data), "--listen", "127.0.0.1:0"]
        second = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        assert second.returncode == 3
        assert f"process {server.pid} uses it" in second.stderr
        assert server.query("SELECT 1") == b"1\n"


def test_a_frozen_server_continues_after_a_thaw(tmp_path: Path) -> None:
    with clickhouse_server(tmp_path) as server:
        server.query(TABLE)
        server.freeze()
        waiting = BackgroundCall(lambda: send_query(server, b"INSERT INTO t VALUES (1, 1)"))
        server.thaw()
        assert waiting.result().status == 200
        server.restart()
        assert server.query("SELECT count() FROM t") == b"1\n"


def test_databases_and_tables_are_there_after_many_starts(tmp_path: Path) -> None:
    with clickhouse_server(tmp_path) as server:
        server.query("CREATE DATABASE d")
        server.query("CREATE TABLE d.t (a Int8) ENGINE = MergeTree ORDER BY a")
        server.query(TABLE)
        for number in range(3):
            server.query(f"INSERT INTO d.t VALUES ({number})")
            server.query(f"INSERT INTO t VALUES ({number}, 0)")
            assert server.stop() == 0
            server.start()
        assert server.query("SELECT (SELECT count() FROM d.t), (SELECT count() FROM t)") == b"3\t3\n"


def test_it_prints_its_address_and_never_its_password(tmp_path: Path) -> None:
    told = tmp_path / "addresses.json"
    argv = [sys.executable, "-m", "holdfast", "clickhouse", "--data", str(tmp_path / "d"), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen([*argv, "--print-addresses", str(told)], stdout=subprocess.PIPE, start_new_session=True)
    try:
        until(told.exists)
        address = json.loads(told.read_text())
        kept = tmp_path / "d" / "password"
        assert kept.stat().st_mode & 0o777 == 0o600
        server = ClickHouseServer(tmp_path, user="default")
        server.port, server.password = int(address["clickhouse"].rpartition(":")[2]), kept.read_text().strip()
        assert server.query("SELECT 1") == b"1\n"
        assert send_query(server, b"SELECT 1", headers={}).code == "516"
        os.kill(process.pid, signal.SIGTERM)
        output = process.communicate(timeout=60)[0].decode()
        assert process.returncode == 0
        assert address["clickhouse"] in output
        assert server.password not in output
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--listen", "0.0.0.0:0"], 2, "--insecure"),
        (["--listen", "nonsense"], 2, "HOST:PORT"),
        (["--queries-max", "0"], 2, "between 1 and"),
        (["--queries-max", "many"], 2, "queries_max"),
        (["--password-file", "/nonexistent"], 2, "password file"),
        (["--user", "a:b"], 2, "colon"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, options: list[str], code: int, says: str) -> None:
    argv = [
        sys.executable,
        "-m",
        "holdfast",
        "clickhouse",
        "--data",
        str(tmp_path),
        "--listen",
        "127.0.0.1:0",
        *options,
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert (done.returncode, says in done.stderr) == (code, True), done.stderr


def test_many_connections_are_answered_and_too_many_refused(tmp_path: Path) -> None:
    with clickhouse_server(tmp_path, options=["--connections-max", "4"]) as server:
        gate, inside = threading.Event(), []

        def hold() -> None:
            inside.append(send_query(server, b"SELECT sleep(1)").status)
            gate.set()

        for _ in range(3):
            BackgroundCall(hold)
        assert until(lambda: len(inside) == 3)
        assert server.query("SELECT 1") == b"1\n"
