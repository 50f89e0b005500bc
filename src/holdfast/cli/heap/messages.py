"""`holdfast heap enqueue`, `pop`, `peek`, `reprioritise`, `cancel`."""

import argparse
import sys
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.cli.arguments import Parser, Parsers, parse_int
from holdfast.cli.heap.options import add_command, given, message_row, parse_signed
from holdfast.cli.http_commands import http_client_for
from holdfast.cli.output import OK, print_json, print_line, print_rows, print_table

_POPPED: Final = ("message_id", "priority", "attempts", "payload", "lease_deadline", "lease_token")
_PEEKED: Final = ("message_id", "partition_id", "priority", "attempts", "payload")
_TOGETHER: Final = 1_000


def add_to(actions: "Parsers[Parser]") -> None:
    """Register the subcommands."""
    made = add_command(
        actions,
        "enqueue",
        "enqueue a message, or each line of stdin",
        "holdfast heap enqueue jobs 'resize 7' --priority 5\nseq 3 | holdfast heap enqueue jobs",
    )
    made.add_argument("payload", metavar="PAYLOAD", nargs="?", help="text; without it, each line of stdin is a message")
    made.add_argument("--priority", metavar="N", default="0", help="any 64-bit number (default: 0)")
    made.add_argument("--key", metavar="KEY", default="", help="messages of one key are in one partition")
    made.add_argument("--fairness-key", metavar="KEY", default="", help="whose message it is, where the heap is fair")
    made.add_argument("--delay-ms", metavar="MS", help="cannot be popped before")
    made.add_argument("--max-retries", metavar="N", help="how often it may fail")
    made.set_defaults(run=run_enqueue)
    made = add_command(
        actions,
        "pop",
        "lease messages, the best first",
        "holdfast heap pop jobs --wait-ms 5000\nholdfast heap pop jobs --max 10 --ack",
    )
    made.add_argument("--max", metavar="N", default="1", help="how many at most (default: 1)")
    made.add_argument("--wait-ms", metavar="MS", default="0", help="how long to wait for the first one (default: 0)")
    made.add_argument("--visibility-ms", metavar="MS", help="how long the leases last (default: as the heap says)")
    made.add_argument("--ack", action="store_true", help="acknowledge them once they are printed")
    made.set_defaults(run=run_pop)
    made = add_command(actions, "peek", "show what would be popped next", "holdfast heap peek jobs --limit 3")
    made.add_argument("--limit", metavar="N", default="10", help="how many at most (default: 10)")
    made.add_argument("--partition", metavar="N", help="of this partition only")
    made.add_argument("--dlq", action="store_true", help="dead letters after them")
    made.set_defaults(run=run_peek)
    made = add_command(
        actions, "reprioritise", "give a message another priority", "holdfast heap reprioritise jobs ID --priority 1"
    )
    made.add_argument("message_id", metavar="ID", help="of an enqueue, pop or peek")
    made.add_argument("--priority", metavar="N", required=True, help="any 64-bit number")
    made.set_defaults(run=run_reprioritise)
    made = add_command(actions, "cancel", "withdraw a message, leased or not", "holdfast heap cancel jobs ID")
    made.add_argument("message_id", metavar="ID", help="of an enqueue, pop or peek")
    made.set_defaults(run=run_cancel)


def run_enqueue(args: argparse.Namespace) -> int:
    """Enqueue, and print what became of each message."""
    client = http_client_for(args)
    settings = {
        "priority": parse_signed(args.priority, "--priority"),
        **given(
            partition_key=args.key,
            fairness_key=args.fairness_key,
            delay_ms=parse_int(args.delay_ms, "--delay-ms"),
            max_retries=parse_int(args.max_retries, "--max-retries"),
        ),
    }
    if args.payload is not None:
        _print_enqueued(args, [client.post("/v1/enqueue", {"topic": args.name, "payload": args.payload, **settings})])
        return OK
    lines = [line.rstrip(b"\r\n") for line in sys.stdin.buffer]
    for at in range(0, len(lines), _TOGETHER):
        some = [{"payload_base64": b64encode(line).decode(), **settings} for line in lines[at : at + _TOGETHER]]
        _print_enqueued(args, client.post("/v1/enqueue:batch", {"topic": args.name, "messages": some})["results"])
    return OK


def _print_enqueued(args: argparse.Namespace, results: Sequence[Mapping[str, Any]]) -> None:
    for each in results:
        if args.json:
            print_json(each)
        else:
            print_line(f"{each['message_id']} in partition {each['partition_id']}")


def run_pop(args: argparse.Namespace) -> int:
    """Print messages with their leases."""
    client = http_client_for(args)
    body = {
        "topic": args.name,
        "max": parse_int(args.max, "--max", least=1),
        "wait_ms": parse_int(args.wait_ms, "--wait-ms"),
        **given(visibility_timeout_ms=parse_int(args.visibility_ms, "--visibility-ms", least=1)),
    }
    items = client.post("/v1/pop", body)["items"]
    if args.json:
        print_rows("messages", items, _POPPED, as_json=True)
    else:
        print_table("messages", map(message_row, items), _POPPED)
    if args.ack and items:
        tokens = [each["lease_token"] for each in items]
        client.post("/v1/ack", {"topic": args.name, "lease_tokens": tokens})
    return OK


def run_peek(args: argparse.Namespace) -> int:
    """Print messages that wait."""
    found = http_client_for(args).get(
        "/v1/peek",
        topic=args.name,
        limit=parse_int(args.limit, "--limit", least=1),
        partition=parse_int(args.partition, "--partition"),
        include_dlq=args.dlq,
    )
    if args.json:
        print_rows("messages", found["items"], _PEEKED, as_json=True)
    else:
        print_table("messages", map(message_row, found["items"]), _PEEKED)
    return OK


def run_reprioritise(args: argparse.Namespace) -> int:
    """Give a message another priority."""
    priority = parse_signed(args.priority, "--priority")
    body = {"topic": args.name, "message_id": args.message_id, "priority": priority}
    return _print_changed(args, http_client_for(args).post("/v1/reprioritise", body), f"has priority {priority}")


def run_cancel(args: argparse.Namespace) -> int:
    """Withdraw a message."""
    body = {"topic": args.name, "message_id": args.message_id}
    return _print_changed(args, http_client_for(args).post("/v1/cancel", body), "is withdrawn")


def _print_changed(args: argparse.Namespace, done: Mapping[str, Any], what: str) -> int:
    if args.json:
        print_json(done)
    else:
        print_line(f"{args.message_id} {what}")
    return OK
