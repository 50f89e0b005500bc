"""The log over HTTP and gRPC: requests and events a second, against a handler of the same server that does nothing (`/live`).

One real server on its defaults, 16 connections that send a request as soon as the one before is answered. Events a second and core
are events over the processor time of the server. Then single records with an API key, at a server with logins, in turns with
anonymous ones: the ratio is the median of the turns. `--quick` is a smoke run.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import uvloop

from bench import grpc_produce

CONNECTIONS = 16
EVENT = {"user": "ann", "page": "/catalogue/shoes", "ms": 12.5, "tags": ["a", "b"], "session": "5f3a9c1b7d"}
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_JSON, _NDJSON = "application/json", "application/x-ndjson"


class Served(NamedTuple):
    """A running server: where it listens, its process, and its data."""

    host: str
    port: int
    pid: int
    data: str
    grpc: str

    def cpu_s(self) -> float:
        """The processor time it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Figure(NamedTuple):
    """One kind of request: how many a second, and how many events a second and core of the server."""

    requests: float
    events: float
    events_per_core: float


def request(method: str, path: str, body: bytes = b"", media: str = _JSON, key: str = "") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
    head += f"authorization: Bearer {key}\r\n" if key else ""
    return (head + (f"content-type: {media}\r\n" if body else "") + "\r\n").encode() + body


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sent: bytes) -> bytes:
    """The body of the answer."""
    writer.write(sent)
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 2"):
        raise SystemExit(f"refused: {head!r}")
    found = _LENGTH.search(head)
    return await reader.readexactly(int(found[1])) if found else b""


async def measure(served: Served, sent: bytes, events: int, seconds: float) -> Figure:
    streams = [await asyncio.open_connection(served.host, served.port) for _ in range(CONNECTIONS)]
    done, began, cpu_s = 0, time.perf_counter(), served.cpu_s()

    async def work(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal done
        while time.perf_counter() < began + seconds:
            await ask(reader, writer, sent)
            done += 1

    await asyncio.gather(*(work(*stream) for stream in streams))
    took, used_s = time.perf_counter() - began, served.cpu_s() - cpu_s
    for _, writer in streams:
        writer.close()
    return Figure(done / took, done * events / took, done * events / max(used_s, 0.01))


@contextmanager
def serving(*options: str) -> Iterator[Served]:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-rest-") as folder:
        addresses = Path(folder) / "addresses.json"
        argv = [
            *(sys.executable, "-m", "holdfast", "serve", "--data", f"{folder}/data", "--kafka", "127.0.0.1:0"),
            *("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--roles", "api,agent", "--log-level", "error"),
            *("--print-addresses", str(addresses), *options),
        ]
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
        try:
            while not addresses.exists():
                if process.poll() is not None:
                    raise SystemExit(f"the server ended with {process.returncode}")
                time.sleep(0.02)
            told = json.loads(addresses.read_text())
            host, _, port = told["http"].rpartition(":")
            yield Served(host, int(port), process.pid, f"{folder}/data", told["grpc"])
        finally:
            process.terminate()
            process.wait()


async def figures_of(served: Served, seconds: float) -> dict[str, Figure]:
    stream = await asyncio.open_connection(served.host, served.port)
    await ask(*stream, request("POST", "/api/v1/topics", b'{"name": "bench", "partitions": 8}'))
    one = json.dumps({"topic": "bench", "value": EVENT}).encode()
    batch = json.dumps({"topic": "bench", "records": [{"key": str(n), "value": EVENT} for n in range(100)]}).encode()
    lines = (json.dumps(EVENT) + "\n").encode() * 1_000
    consume = "/api/v1/consume?topic=bench&partition=0&offset=0&maxRecords=500&maxBytes=1000000"
    found = {"empty": await measure(served, request("GET", "/live"), 0, seconds)}
    found["single"] = await measure(served, request("POST", "/api/v1/produce", one), 1, seconds)
    found["JSON, 100"] = await measure(served, request("POST", "/api/v1/produce/batch", batch), 100, seconds)
    ndjson = request("POST", "/api/v1/topics/bench/messages", lines, _NDJSON)
    found["NDJSON, 1,000"] = await measure(served, ndjson, 1_000, seconds)
    read = len(json.loads(await ask(*stream, request("GET", consume)))["records"])
    found["consume, 500"] = await measure(served, request("GET", consume), read, seconds)
    stream[1].close()
    over_grpc = await grpc_produce.figures(served.grpc, "bench", json.dumps(EVENT).encode(), seconds, served.cpu_s)
    found |= {name: Figure(*figure) for name, figure in over_grpc.items()}
    return found


def key_of(served: Served) -> str:
    """A key of somebody who may do everything."""
    told = [sys.executable, "-m", "holdfast", "key", "create", "bench", "--scopes", "read,write,admin", "--json"]
    made = subprocess.run([*told, "--data", served.data], check=True, capture_output=True)
    return str(json.loads(made.stdout)["secret"])


async def authenticated(anonymous: Served, secured: Served, seconds: float, turns: int) -> list[tuple[Figure, Figure]]:
    """Single records without and with a key, turn by turn."""
    one = json.dumps({"topic": "bench", "value": EVENT}).encode()
    key = key_of(secured)
    sent = {
        anonymous: request("POST", "/api/v1/produce", one),
        secured: request("POST", "/api/v1/produce", one, key=key),
    }
    for served in sent:
        stream = await asyncio.open_connection(served.host, served.port)
        given = key if served is secured else ""
        await ask(*stream, request("POST", "/api/v1/topics", b'{"name": "bench", "partitions": 8}', key=given))
        stream[1].close()
        await measure(served, sent[served], 1, seconds / 4)
    found = []
    for _ in range(turns):
        without = await measure(anonymous, sent[anonymous], 1, seconds)
        found.append((without, await measure(secured, sent[secured], 1, seconds)))
    return found


def run_authenticated(seconds: float, turns: int, say: Callable[[str], None]) -> float:
    """The share of anonymous requests a second that authenticated ones reach."""
    logins = ("--sasl", "SCRAM-SHA-512", "--super-users", "User:bench", "--audit", "off")
    with serving() as anonymous, serving(*logins) as secured:
        found = uvloop.run(authenticated(anonymous, secured, seconds, turns))
    ratio = median(with_key.requests / without.requests for without, with_key in found)
    per_core = median(with_key.events_per_core / without.events_per_core for without, with_key in found)
    figure = median(with_key.requests for _, with_key in found)
    say(f"{'with a key':14s} {figure:8,.0f} requests/s  {ratio:5.2f} of anonymous, {per_core:.2f} a core")
    return ratio


def run(seconds: float, say: Callable[[str], None]) -> dict[str, Figure]:
    """Every figure, also told as lines."""
    with serving() as served:
        found = uvloop.run(figures_of(served, seconds))
    empty = found["empty"].requests
    for name, figure in found.items():
        events = f"  {figure.events:10,.0f} events/s  {figure.events_per_core:10,.0f}/s/core" if figure.events else ""
        say(f"{name:14s} {figure.requests:8,.0f} requests/s  {figure.requests / empty:5.2f} of empty{events}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    arguments = parser.parse_args()
    run(0.3 if arguments.quick else 5.0, print)
    run_authenticated(0.3 if arguments.quick else 3.0, 1 if arguments.quick else 5, print)


if __name__ == "__main__":
    main()
