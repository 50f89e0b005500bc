"""`python -m bench.clickhouse`: rows a second into the embedded ClickHouse over HTTP, against chDB called in its own process.

Both sides insert the same ready Arrow bytes, turn by turn in one run. `input` is the way of a pipeline: through a SELECT with a
fence, under a token, into a table that remembers tokens. CPU is that of the process with the engine: it says more than the
rate on a machine that is busy with something else.
"""

import argparse
import http.client
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from statistics import median
from urllib.parse import urlencode

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from bench.kafka.processes import cpu_seconds
from holdfast.testing.clickhouse import ClickHouseServer, clickhouse_server

COLUMNS = "id Int64, at DateTime64(3), name String, kind LowCardinality(String), amount Float64, note Nullable(String)"
TABLE = f"({COLUMNS}) ENGINE = MergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 10000"
FENCED = (
    f"INSERT INTO {{}} SELECT * FROM input('{COLUMNS}') "
    "WHERE throwIf((SELECT max(epoch) FROM fence WHERE k = 'p') > 1) = 0 FORMAT ArrowStream"
)


def arrow(rows: int) -> bytes:
    """So many rows as an Arrow stream, about 70 bytes each."""
    numbers = range(rows)
    table = pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "at": pa.array([1_763_200_000_000 + number for number in numbers], pa.timestamp("ms")),
            "name": [f"customer-{number % 5000:05d}" for number in numbers],
            "kind": [("view", "click", "buy")[number % 3] for number in numbers],
            "amount": [number / 7 for number in numbers],
            "note": [None if number % 2 else f"note {number}" for number in numbers],
        }
    )
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()


def timed(insert: Callable[[], None], rows: int, seconds: float, pid: int) -> tuple[float, float]:
    """Rows a second, and CPU seconds of `pid` for a million rows."""
    insert()
    spent, began, done = cpu_seconds(pid), time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        insert()
        done += rows
    return done / (time.perf_counter() - began), (cpu_seconds(pid) - spent) / done * 1e6


def inside(directory: str) -> None:
    """The reference: chDB in this process, asked over stdin for one measurement at a time."""
    connection = import_module("chdb._chdb").connect(directory)
    connection.query("CREATE DATABASE d")
    connection.query(f"CREATE TABLE d.t {TABLE}")
    for line in sys.stdin:
        rows, seconds = json.loads(line)
        body, token = arrow(rows), iter(range(1 << 60))

        def insert(body: bytes = body, token: Iterator[int] = token, rows: int = rows) -> None:
            connection.query(f"SET insert_deduplication_token = '{rows}-{next(token)}'", "Null")
            handle = connection.send_insert("INSERT INTO d.t", "ArrowStream")
            connection.insert_append(handle, body)
            connection.insert_done(handle)

        found = timed(insert, rows, seconds, os.getpid())
        connection.query("TRUNCATE TABLE d.t")
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


class OverHttp:
    """One connection to the server, kept open."""

    def __init__(self, server: ClickHouseServer) -> None:
        self._server = server
        self._connection = http.client.HTTPConnection(server.host, server.port)
        self._headers = {"X-ClickHouse-User": server.user, "X-ClickHouse-Key": server.password}
        self._tokens = iter(range(1 << 60))
        server.query(f"CREATE TABLE t {TABLE}")
        server.query("CREATE TABLE fence (k String, epoch UInt64) ENGINE = MergeTree ORDER BY k")
        server.query("INSERT INTO fence VALUES ('p', 1)")

    def rate(self, statement: str, body: bytes, rows: int, seconds: float) -> tuple[float, float]:
        """Rows a second and CPU of inserts that bring `body`."""

        def insert() -> None:
            told = urlencode({"query": statement, "insert_deduplication_token": f"{rows}-{next(self._tokens)}"})
            self._connection.request("POST", f"/?{told}", body, self._headers)
            answer = self._connection.getresponse()
            said = answer.read()
            assert answer.status == 200, said

        found = timed(insert, rows, seconds, self._server.pid)
        self._server.query("TRUNCATE TABLE t")
        return found


def measured(sizes: list[int], rounds: int, seconds: float) -> list[dict[str, float]]:
    """A line per size: medians over the rounds."""
    with tempfile.TemporaryDirectory() as scratch, clickhouse_server(Path(scratch) / "server") as server:
        argv = [sys.executable, "-m", "bench.clickhouse", "--inside", f"{scratch}/inside"]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reference:
            assert reference.stdin is not None
            assert reference.stdout is not None
            over, lines = OverHttp(server), []
            for rows in sizes:
                body = arrow(rows)
                rates: dict[str, list[tuple[float, float]]] = {"inside": [], "http": [], "input": []}
                for _ in range(rounds):
                    reference.stdin.write(json.dumps([rows, seconds]) + "\n")
                    reference.stdin.flush()
                    rates["inside"].append(tuple(json.loads(reference.stdout.readline())))
                    rates["http"].append(over.rate("INSERT INTO t FORMAT ArrowStream", body, rows, seconds))
                    rates["input"].append(over.rate(FENCED.format("t"), body, rows, seconds))
                line = {"rows": float(rows)}
                for name, values in rates.items():
                    line[name] = median(rate for rate, _ in values)
                    line[f"{name}_cpu_s"] = median(cpu for _, cpu in values)
                lines.append(line)
            reference.stdin.close()
            return lines


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="rows an insert")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="a measurement takes")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", metavar="DIR", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        inside(args.inside)
        return
    lines = measured(args.rows, args.rounds, args.seconds)
    if args.json:
        sys.stdout.write(json.dumps(lines) + "\n")
        return
    table = Table("rows an insert", "", "rows/s", "ratio", "CPU s a million rows", "ratio")
    for line in lines:
        for name in ("inside", "http", "input"):
            rate, cpu = line[name], line[f"{name}_cpu_s"]
            ratios = f"{rate / line['inside']:.2f}", f"{line['inside_cpu_s'] / cpu:.2f}"
            table.add_row(f"{line['rows']:,.0f}", name, f"{rate:,.0f}", ratios[0], f"{cpu:.2f}", ratios[1])
    Console().print(table)


if __name__ == "__main__":
    main()
