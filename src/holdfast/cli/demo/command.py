"""`holdfast demo`: events go into a topic, a pipeline is made for them, and rows arrive in ClickHouse while one watches."""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.kafka.options import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP, parse_int
from holdfast.cli.output import FAILED, OK, console, print_json
from holdfast.cli.server_url import ADDRESS_VARIABLE, server_url
from holdfast.client.http_client import HttpClient, pipeline_path
from holdfast.vocabulary.errors import HoldfastError, UnavailableError

if TYPE_CHECKING:
    from rich.table import Table as Shown

    from holdfast.cli.demo.events import EventStream
    from holdfast.cli.demo.row_count import RowCount
    from holdfast.cli.demo.server import DemoServer

_PARTITIONS: Final = 2
_SAMPLE: Final = 200
_POLL_S: Final = 0.5
_ARRIVAL_TIMEOUT_S: Final = 240.0  # for the first rows, and for the last: Spark has to start, perhaps on a busy machine

EPILOG: Final = """\
examples:
  holdfast demo                              until Ctrl-C, on a server of its own
  holdfast demo --rate 20000 --seconds 30
  holdfast demo --http http://127.0.0.1:8080 --bootstrap 127.0.0.1:9092 --clickhouse http://default:PASSWORD@127.0.0.1:8123
"""


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register this family's commands."""
    made = commands.add_parser(
        "demo",
        help="send events, make a pipeline for them, and watch rows arrive in ClickHouse",
        description="Uses the server that --http or HOLDFAST_HTTP names, or the local one if it is ready; otherwise it starts one "
        "of its own, with a worker and an embedded ClickHouse on free ports, and ends it again.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--seconds", metavar="N", help="how long events are sent (default: until Ctrl-C)")
    made.add_argument("--rate", metavar="N", default="1000", help="events a second (1000)")
    made.add_argument(
        "--data", metavar="DIR", default="", help="where its own server keeps everything (default: removed at the end)"
    )
    made.add_argument("--own", action="store_true", help="a server of its own, whatever runs")
    made.add_argument("--http", metavar="URL", default="", help="a server that runs")
    made.add_argument("--bootstrap", metavar="HOST:PORT", default="", help="where that server speaks Kafka")
    made.add_argument("--clickhouse", metavar="URL", default="", help="the ClickHouse to write to and to count in")
    made.add_argument("--json", action="store_true", help="one JSON object per look, and one at the end")
    made.set_defaults(run=run_demo)


@dataclass(slots=True)
class DemoSnapshot:
    """The demo at one moment."""

    seconds: float
    produced: int
    stored: int = 0
    distinct: int | None = None
    lag_rows: int | None = None
    rows_per_second: float = 0.0
    state: str = "starting"
    refused: int = 0


def run_demo(args: argparse.Namespace) -> int:
    """Everything, from a server to a count that is exact."""
    seconds = parse_int(args.seconds, "--seconds", least=1)
    rate = parse_int(args.rate, "--rate", least=1) or 1_000
    with ExitStack() as stack:
        try:
            reached = stack.enter_context(_server(args))
            return _run_demo_on(args, reached, seconds=seconds, rate=rate)
        except KeyboardInterrupt:
            return OK


@contextmanager
def _server(args: argparse.Namespace) -> Iterator["DemoServer"]:
    from holdfast.cli.demo.server import DemoServer, is_ready, own_server

    named = args.http or os.environ.get(ADDRESS_VARIABLE, "")
    if args.own or not (named or is_ready(server_url(""))):
        _print_note(args, "no server is ready here: starting one, with a worker and an embedded ClickHouse")
        with own_server(args.data) as reached:
            yield reached
        return
    url = server_url(named)
    if not is_ready(url):
        raise UnavailableError(f"Holdfast at {url}", "it is not ready")
    bootstrap = args.bootstrap or os.environ.get(BOOTSTRAP_VARIABLE, "") or DEFAULT_BOOTSTRAP
    yield DemoServer(http=url, bootstrap=bootstrap, clickhouse=args.clickhouse)


def _run_demo_on(args: argparse.Namespace, reached: "DemoServer", *, seconds: int | None, rate: int) -> int:
    from holdfast.cli.demo.events import EventStream

    name = f"demo-{os.getpid()}-{int(time.time())}"
    client = HttpClient(reached.http, timeout_s=60)
    _make_topic(reached.bootstrap, name)
    stream = EventStream(reached.bootstrap, name, rate=rate)
    stream.start()
    made = False
    try:
        _wait_until(lambda: stream.acknowledged >= min(_SAMPLE, rate), "the first events are acknowledged", within_s=30)
        path = _make_pipeline(client, name, "" if reached.own else args.clickhouse)
        made = True
        _print_note(args, f"events go to topic {name}, pipeline {name} writes them to table {_table(name)}")
        watching = DemoMonitor(client, path, stream, _row_counter(reached, _table(name)))
        interrupted = _watch(args, watching, seconds)
        stream.finish()
        if interrupted:
            _print_note(args, "no more events; waiting for the rest to arrive (Ctrl-C: do not wait)")
        return _await_all_rows(args, watching)
    finally:
        if made:
            _stop_pipeline(client, name)


def _make_topic(bootstrap: str, name: str) -> None:
    from holdfast.cli.kafka.topics import create_topic
    from holdfast.client.addresses import Bootstrap
    from holdfast.client.librdkafka import KafkaClient

    create_topic(
        KafkaClient(Bootstrap(servers=bootstrap, timeout_s=30)),
        name,
        partitions=_PARTITIONS,
        replication_factor=-1,
        config={},
    )


def _make_pipeline(client: HttpClient, name: str, dsn: str) -> str:
    """Made, proposed from what is in the topic, saved and started: what a person would do by hand."""
    from holdfast.cli.pipeline.lifecycle import infer_mapping

    made = client.post("/api/pipelines", {"name": name, "description": "made by holdfast demo"})
    path = pipeline_path(made["id"])
    sink = {"kind": "clickhouse", "dsn": dsn, "table": _table(name), "batchFlushIntervalMs": 500}
    client.put(f"{path}/parts", {"source": {"topic": name}, "sink": sink})
    infer_mapping(client, path, limit=_SAMPLE, save=True)
    client.post(f"{path}/start")
    return path


def _table(name: str) -> str:
    return name.replace("-", "_")


def _row_counter(reached: "DemoServer", table: str) -> "Callable[[dict[str, Any]], RowCount]":
    from holdfast.cli.demo.row_count import CountedTable, count_from_status

    if not reached.clickhouse:
        return count_from_status
    counted = CountedTable(reached.clickhouse, table)
    return lambda _: counted.arrived()


class DemoMonitor:
    """What is asked again and again."""

    def __init__(
        self, client: HttpClient, path: str, stream: "EventStream", count: "Callable[[dict[str, Any]], RowCount]"
    ) -> None:
        self._client, self._path, self._stream, self._count = client, path, stream, count
        self._began = time.monotonic()
        self._seen: list[tuple[float, int]] = []
        self.reasons: tuple[str, ...] = ()

    def look(self) -> DemoSnapshot:
        """Once."""
        produced = self._stream.acknowledged
        status = self._client.get(f"{self._path}/status")
        arrived = self._count(status)
        now = time.monotonic()
        self._seen = [*(seen for seen in self._seen if now - seen[0] < 3), (now, arrived.rows)]
        first = self._seen[0]
        rate = (arrived.rows - first[1]) / (now - first[0]) if now > first[0] else 0.0
        self.reasons = tuple(status["reasons"])
        return DemoSnapshot(
            seconds=round(now - self._began, 1),
            produced=produced,
            stored=arrived.rows,
            distinct=arrived.distinct,
            lag_rows=max(0, produced - arrived.rows),
            rows_per_second=round(max(0.0, rate), 1),
            state=status["state"],
            refused=status["dlqRows"],
        )


def _watch(args: argparse.Namespace, watching: DemoMonitor, seconds: int | None) -> bool:
    """Show looks until the time is up; whether Ctrl-C came first."""
    deadline = None if seconds is None else time.monotonic() + seconds
    try:
        with _live_display(args) as show:
            while deadline is None or time.monotonic() < deadline:
                show(watching.look(), watching.reasons)
                time.sleep(_POLL_S)
    except KeyboardInterrupt:
        return True
    return False


def _await_all_rows(args: argparse.Namespace, watching: DemoMonitor) -> int:
    """Wait until everything that was acknowledged has arrived, and say whether it has, exactly once."""
    deadline = time.monotonic() + _ARRIVAL_TIMEOUT_S
    with _live_display(args) as show:
        while True:
            look = watching.look()
            show(look, watching.reasons)
            if look.stored >= look.produced or look.state == "failed" or time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
    exact = look.stored == look.produced and look.distinct in (None, look.produced)
    if args.json:
        print_json({**asdict(look), "exact": exact, "reasons": watching.reasons})
    else:
        times = "each exactly once" if exact and look.distinct is not None else "as its status says"
        console().print(
            f"{look.stored:,} of {look.produced:,} events are in ClickHouse, {times}"
            if exact
            else f"{look.stored:,} rows of {look.distinct} different events, {look.produced:,} were sent: "
            + "; ".join(watching.reasons),
            markup=False,
            style="green" if exact else "red",
        )
    return OK if exact else FAILED


@contextmanager
def _live_display(args: argparse.Namespace) -> Iterator[Callable[[DemoSnapshot, tuple[str, ...]], None]]:
    if args.json:
        yield lambda look, _: print_json(asdict(look))
        return
    from rich.live import Live

    screen = console()
    with Live(console=screen, auto_refresh=False) as live:
        yield lambda look, reasons: live.update(_snapshot_table(look, reasons), refresh=True)
    if not screen.is_terminal:
        screen.print()  # elsewhere the last look is printed without an end of its line


def _snapshot_table(look: DemoSnapshot, reasons: tuple[str, ...]) -> "Shown":
    from rich.table import Table

    made = Table(
        "produced",
        "in ClickHouse",
        "distinct offsets",
        "lag",
        "rows/s",
        "refused",
        "pipeline",
        caption="; ".join(reasons),
    )
    distinct = "–" if look.distinct is None else f"{look.distinct:,}"
    lag = "–" if look.lag_rows is None else f"{look.lag_rows:,}"
    made.add_row(
        f"{look.produced:,}",
        f"{look.stored:,}",
        distinct,
        lag,
        f"{look.rows_per_second:,.0f}",
        f"{look.refused:,}",
        look.state,
    )
    return made


def _stop_pipeline(client: HttpClient, name: str) -> None:
    """Stop the pipeline; what it made stays for whoever wants to look."""
    try:
        client.post(pipeline_path(name, "stop"))
    except HoldfastError as error:
        from holdfast.cli.output import print_error

        print_error(error)


def _wait_until(condition: Callable[[], bool], what: str, *, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise UnavailableError("the demo", f"not within {within_s:g} s: {what}")
        time.sleep(0.02)


def _print_note(args: argparse.Namespace, text: str) -> None:
    if not args.json:
        console().print(text, markup=False)
