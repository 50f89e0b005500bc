"""`holdfast wal set-aside …`: tails that takeovers and repairs left out of their partition."""

import argparse
import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from holdfast.cli.arguments import Parser, Parsers, add_family, add_yes, confirmed, parse_int
from holdfast.cli.kafka.options import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP, bootstrap_from
from holdfast.cli.output import FAILED, OK, print_json, print_line, print_rows, print_table
from holdfast.log.batches import decode
from holdfast.log.wal.set_aside import (
    APPENDED,
    DROPPED,
    KEPT,
    SetAsideTail,
    find_tail,
    list_tails,
    read_tail,
    settle_tail,
    settling_lock,
)
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError

TAIL_COLUMNS: Final = ("name", "topic", "partition", "first_offset", "end_offset", "records", "state", "reason")
RECORD_COLUMNS: Final = ("offset", "timestamp", "key", "value")


def add_commands(commands: "Parsers[Parser]") -> None:
    """Register the commands below `wal`."""
    actions = add_family(
        commands,
        "set-aside",
        "list, show, append or drop tails that were left out",
        description="A takeover that could not wait for the WAL of an absent agent, or a repair, leaves records out. "
        "The agent that has them sets them aside, below its WAL. They are in no topic until somebody appends them.",
    )
    listing = actions.add_parser("list", help="list the tails of a WAL")
    _add_directory(listing)
    listing.add_argument("--all", action="store_true", help="also those that were appended or dropped")
    listing.add_argument("--json", action="store_true", help="one JSON object per tail")
    listing.set_defaults(run=run_list)
    show = actions.add_parser("show", help="show the records of a tail")
    _add_tail(show)
    show.add_argument("--limit", metavar="N", default="20", help="how many records at most (default: 20)")
    show.add_argument("--json", action="store_true", help="the tail as one JSON object, then one per record")
    show.set_defaults(run=run_show)
    append = actions.add_parser(
        "append",
        help="append the records of a tail to the end of their partition",
        description="The records keep their order, timestamps and headers, and get new offsets at the end. The command may "
        "be killed and run again: each record is appended once. What its producer has sent again meanwhile is in the topic "
        "twice then. Compacted topics are refused: an old value would replace a newer one.",
    )
    _add_tail(append)
    append.add_argument(
        "--bootstrap",
        metavar="HOST:PORT[,…]",
        help=f"any brokers of the cluster (default: ${BOOTSTRAP_VARIABLE}, else {DEFAULT_BOOTSTRAP})",
    )
    append.add_argument("--timeout-s", metavar="S", default="30", help="how long to wait for a response (default: 30)")
    append.add_argument("--json", action="store_true", help="one JSON object")
    append.set_defaults(run=run_append, client_config=[])
    drop = actions.add_parser("drop", help="delete the records of a tail for good")
    _add_tail(drop)
    add_yes(drop)
    drop.add_argument("--json", action="store_true", help="one JSON object")
    drop.set_defaults(run=run_drop)


def run_list(args: argparse.Namespace) -> int:
    """Print one tail per line."""
    tails = [tail for tail in list_tails(_directory(args)) if args.all or tail.state == KEPT]
    print_rows("tails set aside", map(msgspec.to_builtins, tails), TAIL_COLUMNS, as_json=args.json)
    return OK


def run_show(args: argparse.Namespace) -> int:
    """Print what is known of a tail, and its first records."""
    limit = parse_int(args.limit, "--limit", least=0)
    directory = _directory(args)
    tail = find_tail(directory, args.name)
    rows: list[dict[str, object]] = []
    for batch in read_tail(directory, tail) if tail.state == KEPT else ():
        rows += [
            {
                "offset": record.offset,
                "timestamp": record.timestamp_ms,
                "key": _text(record.key),
                "value": _text(record.value),
            }
            for record in decode(batch)
        ]
        if len(rows) >= (limit or 0):
            break
    del rows[limit:]
    if args.json:
        print_json(msgspec.to_builtins(tail))
        for row in rows:
            print_json(row)
        return OK
    when = datetime.fromtimestamp(tail.set_aside_at_ms / 1000, UTC).isoformat(timespec="seconds")
    print_line(f"{tail.name}: {tail.state}; set aside at {when}: {tail.reason}")
    print_line(f"topic {tail.topic or '(name unknown)'} ({tail.topic_id}), partition {tail.partition}, WAL {tail.wal}")
    print_table(f"the first {len(rows)} of {tail.records} records", rows, RECORD_COLUMNS)
    return OK


async def run_append(args: argparse.Namespace) -> int:
    """Append a tail, or what an earlier attempt left of it."""
    directory, bootstrap = _directory(args), bootstrap_from(args)
    tail = find_tail(directory, args.name)
    if tail.state == APPENDED:
        _print_settled(tail, args.json)
        return OK
    from holdfast.cli.kafka.connection import connect
    from holdfast.client.admin.topics import topic_settings
    from holdfast.client.producer import KafkaIdempotentProducer, TopicRef
    from holdfast.client.set_aside_append import append_tail

    timeout_ms = int(bootstrap.timeout_s * 1000)
    producer = KafkaIdempotentProducer(bootstrap.servers, timeout_ms=timeout_ms)
    try:
        topic = next((each for each in await producer.topics() if each.id == tail.topic_id), None)
        if topic is None:
            raise InvalidError(
                "topic id",
                tail.topic_id,
                f"that of a topic at {bootstrap.servers}: it was deleted, or is another cluster's",
            )
        settings = await asyncio.to_thread(lambda: topic_settings(connect(bootstrap), [topic.name])[topic.name])
        policy = next((each.value for each in settings if each.name == "cleanup.policy"), None) or ""
        if "compact" in policy:
            raise InvalidError(
                f"cleanup.policy of topic {topic.name}", policy, "delete: an old value would replace a newer one"
            )
        appended = await append_tail(
            directory, tail, TopicRef(topic.name, topic.id), producer, clock=RealClock(), timeout_ms=timeout_ms
        )
    finally:
        await producer.close()
    _print_settled(appended, args.json)
    return OK


def run_drop(args: argparse.Namespace) -> int:
    """Delete the records of a tail; its report stays."""
    directory = _directory(args)
    tail = find_tail(directory, args.name)
    if tail.state == KEPT:
        if not confirmed(
            args, f"Delete {tail.records} records of {tail.topic or tail.topic_id}:{tail.partition} for good?"
        ):
            return FAILED
        lock = settling_lock(directory)
        lock.take()
        try:
            tail = settle_tail(directory, find_tail(directory, tail.name), DROPPED, now_ms=RealClock().now_ms())
        finally:
            lock.release()
    elif tail.state != DROPPED:
        raise InvalidError(f"state of tail {tail.name}", tail.state, f"{KEPT} or {DROPPED}")
    _print_settled(tail, args.json)
    return OK


def _print_settled(tail: SetAsideTail, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(tail))
    else:
        behind = f" to the end of {tail.topic or tail.topic_id}:{tail.partition}" if tail.state == APPENDED else ""
        print_line(f"{tail.name}: {tail.records} records {tail.state}{behind}")


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")


def _add_directory(parser: Parser) -> None:
    parser.add_argument("directory", metavar="DIR", help="the WAL's directory; its server may be running")


def _add_tail(parser: Parser) -> None:
    _add_directory(parser)
    parser.add_argument("name", metavar="NAME", help="the tail, or enough of the beginning of its name")


def _directory(args: argparse.Namespace) -> Path:
    directory = Path(args.directory)
    if not directory.is_dir():
        raise InvalidError("WAL directory", str(directory), "an existing directory")
    return directory
