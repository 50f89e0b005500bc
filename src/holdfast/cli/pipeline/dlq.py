"""`holdfast pipeline dlq`: list, count and replay dead letters."""

import argparse
from collections.abc import Mapping
from typing import Any, Final

from holdfast.cli.arguments import Parser, Parsers, parse_int
from holdfast.cli.http_commands import http_client_for
from holdfast.cli.output import OK, print_json, print_line, print_rows, print_table
from holdfast.cli.pipeline.options import add_command
from holdfast.client.http_client import HttpClient, pipeline_path

_COLUMNS: Final = ("generation", "partition", "offset", "reason", "payload", "replayed")
_PAYLOAD_CHARS: Final = 80


def add_to(actions: "Parsers[Parser]") -> None:
    """Register the subcommand."""
    made = add_command(
        actions,
        "dlq",
        "list, count or replay dead letters: refused records",
        "holdfast pipeline dlq orders --reason Decimal\nholdfast pipeline dlq orders --replay",
    )
    made.add_argument("--limit", metavar="N", default="100", help="how many to list (default: 100)")
    made.add_argument("--partition", metavar="N", help="of this partition only")
    made.add_argument("--reason", metavar="TEXT", default="", help="whose reason contains TEXT")
    made.add_argument("--waiting", action="store_true", help="only those not replayed yet")
    made.add_argument("--count", action="store_true", help="how many, by reason")
    made.add_argument("--replay", action="store_true", help="process those not replayed yet with the newest revision")
    made.set_defaults(run=run_dlq)


def run_dlq(args: argparse.Namespace) -> int:
    """Print dead letters, their counts, or replay them."""
    client, path = http_client_for(args), pipeline_path(args.name, "dlq")
    partition = parse_int(args.partition, "--partition", least=0)
    if args.replay:
        return _replay(client, path, args, partition)
    if args.count:
        return _print_count(args, client.get(f"{path}/count"))
    limit = parse_int(args.limit, "--limit", least=1) or 100
    page = client.get(path, limit=limit, partition=partition, reason=args.reason, waiting=args.waiting)
    if args.json:
        print_rows("refused", page["letters"], _COLUMNS, as_json=True)
        return OK
    print_table("refused", map(dead_letter_row, page["letters"]), _COLUMNS)
    if page["after"]:
        print_line("There are more: raise --limit.")
    return OK


def _print_count(args: argparse.Namespace, count: Mapping[str, Any]) -> int:
    if args.json:
        print_json(count)
        return OK
    print_line(f"{count['total']} refused, {count['replayed']} replayed, {count['waiting']} waiting")
    if count["reasons"]:
        print_table("reasons", count["reasons"], ("count", "reason"))
    return OK


def _replay(client: HttpClient, path: str, args: argparse.Namespace, partition: int | None) -> int:
    """Page by page, until none is waiting or a page changed nothing."""
    body = {
        name: value for name, value in (("partition", partition), ("reason", args.reason)) if value not in (None, "")
    }
    sums = {"stored": 0, "filtered": 0, "refused": 0}
    while True:
        page = client.post(f"{path}/replay", body)
        for name in sums:
            sums[name] += page[name]
        if not page["more"] or not (page["stored"] or page["filtered"]):
            break
    if args.json:
        print_json({**sums, "recipe": page["recipe"]})
    else:
        print_line(", ".join(f"{value} {name}" for name, value in sums.items()))
    return OK


def dead_letter_row(letter: Mapping[str, Any]) -> dict[str, object]:
    """A dead letter in a table: its payload shortened."""
    payload = str(letter.get("payload") or "")
    shown = payload if len(payload) <= _PAYLOAD_CHARS else payload[:_PAYLOAD_CHARS] + "…"
    return {**letter, "payload": shown}
