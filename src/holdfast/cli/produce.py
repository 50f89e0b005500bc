"""`holdfast produce`: lines of text into a topic of any Kafka cluster."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from holdfast.cli.arguments import parse_int, parse_number, parse_pairs
from holdfast.cli.kafka.connection import connect
from holdfast.cli.kafka.options import add_command, bootstrap_from
from holdfast.cli.kafka.record_parser import JSON_LINE, line_parser
from holdfast.cli.kafka.signals import StopFlag, stop_on_signals
from holdfast.cli.output import OK, exit_code, print_error, print_json
from holdfast.vocabulary.errors import InvalidError

if TYPE_CHECKING:
    from holdfast.cli.kafka.producer import SendReport

ACKS = ("all", "1", "0")
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
LONG_S = 1.0  # an input that takes longer gets a progress bar
SHOW_EVERY_S = 0.1


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register this family's commands."""
    produce = add_command(
        commands,
        "produce",
        "send lines of text as records to a topic of any Kafka cluster",
        "  echo 'hello' | holdfast produce greetings\n"
        "  holdfast produce users --key-separator : --null-marker NULL --file users.txt\n"
        "  holdfast consume orders --json | holdfast produce orders-copy --json-lines\n\n" + JSON_LINE,
        about="Sends each line of standard input as a record, waits until all are acknowledged, and prints how many were. "
        "Idempotent unless --acks is less than all: a retry never writes a record twice. The exit code is 0 only if every "
        "record was acknowledged. Ctrl-C stops reading and waits for the records already sent.",
    )
    produce.add_argument("topic", metavar="TOPIC")
    produce.add_argument("--file", metavar="FILE", help="read from it instead of standard input")
    form = produce.add_mutually_exclusive_group()
    form.add_argument("--key-separator", metavar="SEP", help=r"a line is key, SEP, value; \t is a tab")
    form.add_argument("--json-lines", action="store_true", help="a line is a JSON object, see below")
    produce.add_argument("--null-marker", metavar="STR", help="a key or value that is exactly STR is sent as null")
    produce.add_argument(
        "--partition",
        metavar="N",
        help="send everything to this partition (default: by key, as in Java)",
    )
    produce.add_argument("--header", action="append", default=[], metavar="KEY=VALUE", help="may be repeated")
    produce.add_argument("--acks", choices=ACKS, default="all", help="default: all")
    produce.add_argument("--compression", choices=COMPRESSIONS, default="none", help="default: none")
    produce.add_argument("--rate", metavar="N", help="at most N records per second")
    produce.add_argument("--count", metavar="N", help="at most N records")
    produce.add_argument(
        "--delivery-timeout-s",
        metavar="S",
        default="30",
        help="how long a record may take to be acknowledged (default: 30)",
    )
    produce.add_argument("--json", action="store_true", help="the report as one JSON object on standard output")
    produce.set_defaults(run=run_produce)


def run_produce(args: argparse.Namespace) -> int:
    """Send the lines; report on stderr."""
    bootstrap = bootstrap_from(args)
    parse = line_parser(
        json_lines=args.json_lines,
        key_separator=args.key_separator,
        null_marker=args.null_marker,
        headers=parse_pairs(args.header, "--header"),
    )
    rate = None if args.rate is None else parse_number(args.rate, "--rate", above=0, most=1e9)
    timeout_s = parse_number(args.delivery_timeout_s, "--delivery-timeout-s", above=0, most=86_400)
    count, partition = parse_int(args.count, "--count"), parse_int(args.partition, "--partition")
    from holdfast.cli.kafka.producer import SendOptions, send

    sending = SendOptions(
        topic=args.topic,
        partition=partition,
        acks=args.acks,
        compression=args.compression,
        rate=rate,
        count=count,
        delivery_timeout_s=timeout_s,
    )
    connection = connect(bootstrap)
    with _input(args.file) as lines, stop_on_signals() as stop_flag, _progress(lines) as progress:
        sent = send(connection, sending, lines, parse, stop_flag, progress=progress)
    return _report(sent, args.topic, stop_flag, as_json=args.json)


def _report(sent: "SendReport", topic: str, stop_flag: StopFlag, *, as_json: bool) -> int:
    failed = sum(sent.failures.values())
    if as_json:
        report = {"topic": topic, "acknowledged": sent.acknowledged, "failed": failed, "errors": sent.failures}
        print_json(
            {**report, "error": None if sent.error is None else str(sent.error), "took_s": round(sent.took_s, 3)}
        )
    else:
        for text, count in sent.failures.items():
            print(f"holdfast: {count} not acknowledged: {text}", file=sys.stderr)
        if sent.error is not None and str(sent.error) not in sent.failures:
            print_error(sent.error)
        plural = "s" if sent.acknowledged != 1 else ""
        print(
            f"{sent.acknowledged} record{plural} acknowledged in {sent.took_s:.1f} s, {failed} failed", file=sys.stderr
        )
    if sent.error is not None:
        return exit_code(sent.error)
    return stop_flag.exit_code if stop_flag.asked else OK


@contextmanager
def _input(file: str | None) -> Iterator[BinaryIO]:
    if file is None:
        yield sys.stdin.buffer
        return
    try:
        with Path(file).open("rb") as lines:
            yield lines
    except OSError as error:
        raise InvalidError("--file", file, f"a file that can be read ({error.strerror})") from None


@contextmanager
def _progress(lines: BinaryIO) -> Iterator[Callable[["SendReport"], None]]:
    """A progress bar on stderr if it is a terminal and the input takes a while; otherwise nothing."""
    if not sys.stderr.isatty() or lines.isatty():
        yield lambda sent: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.fields[records]} records"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)
    size = os.fstat(lines.fileno()).st_size or None
    task = bar.add_task("", total=size, records=0)
    began = shown_at = time.monotonic()

    def show(sent: "SendReport") -> None:
        nonlocal shown_at
        now = time.monotonic()
        if now - began < LONG_S or now - shown_at < SHOW_EVERY_S:
            return
        shown_at = now
        bar.start()
        bar.update(task, completed=sent.read_bytes, records=sent.read, refresh=True)

    try:
        yield show
    finally:
        bar.stop()
