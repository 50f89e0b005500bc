"""`holdfast consume`: records of topics of any Kafka cluster, printed as they come."""

import argparse
import select
import sys
from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING

from holdfast.cli.arguments import parse_int
from holdfast.cli.kafka.connection import connect
from holdfast.cli.kafka.options import add_command, bootstrap_from
from holdfast.cli.kafka.record_format import (
    FORMAT,
    ConsumedRecord,
    RecordFormatter,
    format_json,
    format_raw,
    line_formatter,
    template_formatter,
)
from holdfast.cli.kafka.record_parser import unescape
from holdfast.cli.kafka.signals import StopFlag, stop_on_signals
from holdfast.cli.output import OK
from holdfast.client.admin.positions import POSITIONS, Beginning, EndPosition, Position, parse_position
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import UsageError

if TYPE_CHECKING:
    from holdfast.client.librdkafka import KafkaClient


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register this family's commands."""
    consume = add_command(
        commands,
        "consume",
        "print records of topics of any Kafka cluster",
        "  holdfast consume orders                           everything, then stop\n"
        "  holdfast consume orders --tail 10 -f              the last ten, then follow\n"
        "  holdfast consume orders --from -1h --json\n"
        "  holdfast consume orders --partition 3 --from 1000 --until 2000\n"
        "  holdfast consume orders --group billing --commit  continue as the group\n"
        "  holdfast consume orders --format '%p:%o %k=%v'\n\n" + POSITIONS + "\n" + FORMAT,
        about="Prints records and stops at the end unless --follow is given. Control characters and invalid UTF-8 are "
        "shown as \\xNN. Ctrl-C leaves the group and exits with 130.",
    )
    consume.add_argument("topics", metavar="TOPIC", nargs="+")
    consume.add_argument("--partition", action="append", default=[], metavar="N", help="default: all; may be repeated")
    consume.add_argument("--from", dest="start", metavar="POSITION", help="where to start (default: earliest)")
    consume.add_argument("--until", metavar="POSITION", help="stop before it (default: the current end)")
    consume.add_argument(
        "--tail", metavar="N", help="only the last N records, by time where there are several partitions"
    )
    consume.add_argument("--count", metavar="N", help="stop after N records")
    consume.add_argument(
        "-f", "--follow", action="store_true", help="wait for more at the end (default with --from latest)"
    )
    consume.add_argument("--group", metavar="G", help="read as a member of this group, from its committed offsets")
    consume.add_argument("--commit", action="store_true", help="commit what was printed; needs --group")
    shown = consume.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="one JSON object per record; invalid UTF-8 as *_base64")
    shown.add_argument("--format", metavar="FORMAT", help="placeholders are listed below")
    shown.add_argument("--raw", action="store_true", help="values as they are, control characters included")
    consume.add_argument("--keys", action="store_true", help="print keys before values")
    consume.add_argument("--headers", action="store_true", help="print headers before keys and values")
    consume.add_argument("--key-separator", metavar="SEP", default="\\t", help=r"between them (default: \t)")
    consume.add_argument("--null-marker", metavar="STR", default="null", help="how null is printed (default: null)")
    consume.set_defaults(run=run_consume)


def run_consume(args: argparse.Namespace) -> int:
    """Print records until the end, the count, or Ctrl-C."""
    bootstrap, show = bootstrap_from(args), _formatter(args)
    _check_options(args)

    connection = connect(bootstrap)
    with stop_on_signals() as stop_flag, closing(_batches(args, connection, stop_flag)) as batches:
        out = sys.stdout.buffer
        for batch in batches:
            out.writelines(map(show, batch))
            out.flush()
            if not batch and _stdout_closed():
                raise BrokenPipeError
    return stop_flag.exit_code if stop_flag.asked else OK


def _formatter(args: argparse.Namespace) -> RecordFormatter:
    if (args.json or args.format or args.raw) and (args.keys or args.headers):
        raise UsageError("--keys and --headers do not go with --json, --format or --raw")
    if args.json:
        return format_json
    if args.raw:
        return format_raw
    if args.format is not None:
        return template_formatter(args.format, null=args.null_marker)
    separator = unescape(args.key_separator, "--key-separator")
    return line_formatter(keys=args.keys, headers=args.headers, separator=separator, null=args.null_marker)


def _check_options(args: argparse.Namespace) -> None:
    if args.commit and args.group is None:
        raise UsageError("--commit needs --group")
    if args.group is not None and (args.partition or args.until or args.tail):
        raise UsageError("--group does not go with --partition, --until or --tail: the group assigns partitions")
    if args.group is not None and args.start not in (None, "beginning", "earliest", "end", "latest"):
        raise UsageError("with --group, --from is earliest or latest; `holdfast group reset` moves a group")
    if args.tail is not None and (args.start or args.until):
        raise UsageError("--tail does not go with --from or --until")
    if args.follow and args.until:
        raise UsageError("--until does not go with --follow")


def _batches(
    args: argparse.Namespace, connection: "KafkaClient", stop_flag: StopFlag
) -> Generator[list[ConsumedRecord], None, None]:
    """What the arguments ask for."""
    from holdfast.cli.kafka.group_reader import read_group
    from holdfast.cli.kafka.partition_reader import ConsumeRequest, read_partitions

    start, until, count = (
        _position(args.start, "--from"),
        _position(args.until, "--until"),
        parse_int(args.count, "--count"),
    )
    partitions = [parse_int(number, "--partition") or 0 for number in args.partition]
    tail = parse_int(args.tail, "--tail", least=1)
    follow = args.follow or (isinstance(start, EndPosition) and until is None)
    if count == 0:
        return
    if args.group is not None:
        from_end = isinstance(start, EndPosition)
        yield from read_group(
            connection,
            args.group,
            args.topics,
            stop_flag,
            from_end=from_end,
            follow=follow,
            commit=args.commit,
            count=count,
        )
        return
    reading = ConsumeRequest(
        topics=args.topics,
        partitions=partitions,
        start=start or Beginning(),
        until=until or EndPosition(),
        tail=tail,
        follow=follow,
        count=count,
    )
    yield from read_partitions(connection, reading, stop_flag)


def _position(text: str | None, option: str) -> Position | None:
    return None if text is None else parse_position(text, option=option, now_ms=RealClock().now_ms())


def _stdout_closed() -> bool:
    """Whether the other end of our pipe is closed: then it is no use to wait for more to print."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return False
    watched = select.poll()
    watched.register(descriptor, select.POLLERR)
    return any(event & select.POLLERR for _, event in watched.poll(0))
