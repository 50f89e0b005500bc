"""`holdfast demo`: send events to a topic, create a pipeline for them, and watch rows arrive in ClickHouse."""

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast.cli.arguments import Parser, Parsers, parse_int
from holdfast.cli.demo.display import live_display, print_verdict
from holdfast.cli.demo.monitor import DemoMonitor
from holdfast.cli.demo.row_count import CountedTable
from holdfast.cli.demo.server import DemoServer, demo_server
from holdfast.cli.output import FAILED, OK, print_error, print_line
from holdfast.client.http_client import HttpClient, ProblemError, pipeline_path
from holdfast.vocabulary.errors import HoldfastError, UnavailableError

_PARTITIONS: Final = 2
_SAMPLE: Final = 200
_POLL_S: Final = 0.5
_ARRIVAL_TIMEOUT_S: Final = 240.0  # Spark has to start, perhaps on a busy machine
_STOP_TIMEOUT_S: Final = 60.0

EPILOG: Final = """\
examples:
  holdfast demo                              until Ctrl-C, on a server of its own
  holdfast demo --rate 20000 --seconds 30
  holdfast demo --http 127.0.0.1:8080        on a running server; its ClickHouse is found in ./holdfast-data
  holdfast demo --http 127.0.0.1:8080 --bootstrap 127.0.0.1:9092 --clickhouse http://default:PASSWORD@127.0.0.1:8123
"""


def add_commands(commands: "Parsers[Parser]") -> None:
    """Register this family's commands."""
    made = commands.add_parser(
        "demo",
        help="send events, create a pipeline for them, and watch rows arrive in ClickHouse",
        description="Starts a server of its own on free ports, with a worker and an embedded ClickHouse, and stops it at the end; "
        "or uses the running server that --http or HOLDFAST_HTTP_URL names, and deletes its topic, pipeline and tables at the end.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--seconds", metavar="N", help="how long to send events (default: until Ctrl-C)")
    made.add_argument("--rate", metavar="N", default="1000", help="events per second (default: 1000)")
    made.add_argument(
        "--data",
        metavar="DIR",
        default="",
        help="its own server's data directory, kept at the end; with --http that of the running server",
    )
    made.add_argument("--own", action="store_true", help="a server of its own, even if HOLDFAST_HTTP_URL is set")
    made.add_argument(
        "--keep", action="store_true", help="do not delete topic, pipeline and tables on a running server"
    )
    made.add_argument("--http", metavar="URL", default="", help="a running server")
    made.add_argument("--bootstrap", metavar="HOST:PORT", default="", help="the Kafka address of that server")
    made.add_argument("--clickhouse", metavar="URL", default="", help="the ClickHouse to write to and count in")
    made.add_argument("--json", action="store_true", help="one JSON object per snapshot, and one at the end")
    made.set_defaults(run=run_demo)


def run_demo(args: argparse.Namespace) -> int:
    """Run the whole demo; 0 if every event was stored exactly once."""
    seconds = parse_int(args.seconds, "--seconds", least=1)
    rate = parse_int(args.rate, "--rate", least=1) or 1_000
    try:
        with demo_server(args, note=lambda text: _note(args, text)) as server:
            return _Demo(args, server, rate).run(seconds)
    except KeyboardInterrupt:
        return OK


@dataclass(slots=True)
class _Created:
    """What the demo has created on the server so far."""

    topic: bool = False
    pipeline: bool = False


class _Demo:
    """One run on a server."""

    def __init__(self, args: argparse.Namespace, server: DemoServer, rate: int) -> None:
        self._args, self._server, self._rate = args, server, rate
        self._name = f"demo-{os.getpid()}-{int(time.time())}"
        self._client = HttpClient(server.http, timeout_s=60)
        self._table = CountedTable(server.clickhouse, self._table_name)
        self._created = _Created()

    @property
    def _table_name(self) -> str:
        return self._name.replace("-", "_")

    def run(self, seconds: int | None) -> int:
        """Events, pipeline, rows, verdict; then remove what was created."""
        try:
            return self._run(seconds)
        finally:
            if not self._server.own and not self._args.keep:
                self._remove()
            elif self._created.pipeline:
                self._attempt(lambda: self._client.post(pipeline_path(self._name, "stop")))

    def _run(self, seconds: int | None) -> int:
        from holdfast.cli.demo.events import EventStream

        self._create_topic()
        stream = EventStream(self._server.bootstrap, self._name, rate=self._rate)
        stream.start()
        first = min(_SAMPLE, self._rate)
        _wait_until(lambda: stream.acknowledged >= first, "the first events are not acknowledged", within_s=30)
        path = self._create_pipeline()
        _note(self._args, f"topic {self._name} → pipeline {self._name} → table {self._table_name}")
        monitor = DemoMonitor(self._client, path, stream, self._table.count)
        interrupted = self._watch(monitor, seconds)
        stream.finish()
        if interrupted:
            _note(self._args, "no more events; waiting for the rest to arrive (Ctrl-C: do not wait)")
        return self._await_all_rows(monitor)

    def _create_topic(self) -> None:
        from holdfast.cli.kafka.connection import connect
        from holdfast.client.addresses import Bootstrap
        from holdfast.client.admin.topics import create_topic

        connection = connect(Bootstrap(servers=self._server.bootstrap, timeout_s=30))
        create_topic(connection, self._name, partitions=_PARTITIONS, replication_factor=-1, config={})
        self._created.topic = True

    def _create_pipeline(self) -> str:
        """Created, its mapping inferred from the topic, and started: what a person would do by hand."""
        from holdfast.cli.pipeline.infer import infer_mapping

        created = self._client.post("/api/pipelines", {"name": self._name, "description": "created by holdfast demo"})
        self._created.pipeline = True
        path = pipeline_path(created["id"])
        dsn = "" if self._server.own else self._args.clickhouse
        sink = {"kind": "clickhouse", "dsn": dsn, "table": self._table_name, "batchFlushIntervalMs": 500}
        self._client.put(f"{path}/parts", {"source": {"topic": self._name}, "sink": sink})
        infer_mapping(self._client, path, limit=_SAMPLE, save=True)
        self._client.post(f"{path}/start")
        return path

    def _watch(self, monitor: DemoMonitor, seconds: int | None) -> bool:
        """Show snapshots until the time is up; whether Ctrl-C came first."""
        deadline = None if seconds is None else time.monotonic() + seconds
        try:
            with live_display(as_json=self._args.json) as show:
                while deadline is None or time.monotonic() < deadline:
                    show(monitor.snapshot(), monitor.reasons)
                    time.sleep(_POLL_S)
        except KeyboardInterrupt:
            return True
        return False

    def _await_all_rows(self, monitor: DemoMonitor) -> int:
        """Wait until every acknowledged event is stored, and print the verdict."""
        deadline = time.monotonic() + _ARRIVAL_TIMEOUT_S
        with live_display(as_json=self._args.json) as show:
            while True:
                snapshot = monitor.snapshot()
                show(snapshot, monitor.reasons)
                if snapshot.stored >= snapshot.produced or snapshot.state == "failed" or time.monotonic() > deadline:
                    break
                time.sleep(_POLL_S)
        print_verdict(snapshot, monitor.reasons, as_json=self._args.json)
        return OK if snapshot.exact else FAILED

    def _remove(self) -> None:
        """Delete pipeline, tables and topic; each on its own, so that one failure leaves only that."""
        if self._created.pipeline:
            self._attempt(self._delete_pipeline)
            self._attempt(self._table.drop)
        if self._created.topic:
            self._attempt(self._delete_topic)
        _note(self._args, f"deleted pipeline, tables and topic {self._name}")

    def _delete_pipeline(self) -> None:
        path = pipeline_path(self._name)
        self._client.post(f"{path}/stop")
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while True:
            try:
                self._client.delete(path)
            except ProblemError:  # its slots are still being released
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_S)
            else:
                return

    def _delete_topic(self) -> None:
        from holdfast.cli.kafka.connection import connect
        from holdfast.client.addresses import Bootstrap
        from holdfast.client.admin.topics import delete_topics

        connection = connect(Bootstrap(servers=self._server.bootstrap, timeout_s=30))
        for error in delete_topics(connection, [self._name]).values():
            if error is not None:
                raise error

    @staticmethod
    def _attempt(step: Callable[[], object]) -> None:
        try:
            step()
        except HoldfastError as error:
            print_error(error)


def _wait_until(condition: Callable[[], bool], failure: str, *, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise UnavailableError("the demo", f"{failure} within {within_s:g} s")
        time.sleep(0.05)


def _note(args: argparse.Namespace, text: str) -> None:
    if not args.json:
        print_line(text)
