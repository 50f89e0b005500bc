"""`holdfast heap dlq`: list, look at, replay and delete dead letters, and move a message there."""

import argparse
from collections.abc import Mapping
from typing import Any, Final

from holdfast.cli.arguments import Parser, Parsers, add_family, add_yes, confirmed, parse_int
from holdfast.cli.heap.options import add_command, given, message_row
from holdfast.cli.http_commands import http_client_for
from holdfast.cli.output import OK, USAGE, print_json, print_line, print_rows, print_table
from holdfast.vocabulary.errors import InvalidError

_LISTED: Final = ("message_id", "priority", "attempts", "reason", "payload_bytes", "enqueued_time")
_PEEKED: Final = ("message_id", "priority", "attempts", "reason", "payload")


def add_to(commands: "Parsers[Parser]") -> None:
    """Register the subcommands."""
    actions = add_family(commands, "dlq", "list, replay and delete dead letters")
    made = add_command(actions, "list", "list dead letters", "holdfast heap dlq list jobs --reason timeout")
    _add_filter(made, limit="100")
    made.set_defaults(run=run_list)
    made = add_command(actions, "peek", "show dead letters with payloads", "holdfast heap dlq peek jobs --id ID")
    _add_filter(made, limit="10")
    made.add_argument("--id", metavar="ID", default="", help="this one only")
    made.set_defaults(run=run_peek)
    made = add_command(
        actions,
        "replay",
        "send dead letters back",
        "holdfast heap dlq replay jobs --dry-run\nholdfast heap dlq replay jobs --rate 50",
    )
    _add_filter(made)
    made.add_argument("--id", metavar="ID", action="append", default=[], help="these only")
    made.add_argument("--dry-run", action="store_true", help="only count them")
    made.add_argument("--rate", metavar="N", help="at most so many a second")
    made.set_defaults(run=run_replay)
    made = add_command(actions, "delete", "delete dead letters", "holdfast heap dlq delete jobs --reason timeout --yes")
    _add_filter(made)
    made.add_argument("--id", metavar="ID", action="append", default=[], help="these only")
    made.add_argument("--dry-run", action="store_true", help="only count them")
    add_yes(made)
    made.set_defaults(run=run_delete)
    made = add_command(
        actions, "move", "make a message a dead letter", "holdfast heap dlq move jobs ID --reason 'not now'"
    )
    made.add_argument("message_id", metavar="ID", help="of a pop or peek")
    made.add_argument("--reason", metavar="TEXT", default="", help="why")
    made.set_defaults(run=run_move)


def _add_filter(parser: Parser, *, limit: str | None = None) -> None:
    shown = f" (default: {limit})" if limit else " (default: all)"
    parser.add_argument("--limit", metavar="N", default=limit, help="how many at most" + shown)
    parser.add_argument("--reason", metavar="TEXT", default="", help="whose reason contains TEXT")
    parser.add_argument("--attempts-min", metavar="N", help="that failed so often")


def run_list(args: argparse.Namespace) -> int:
    """Print dead letters without payloads."""
    items = http_client_for(args).get("/v1/dlq", **_query(args))["items"]
    print_rows("dead letters", items, _LISTED, as_json=args.json)
    return OK


def run_peek(args: argparse.Namespace) -> int:
    """Print dead letters with payloads."""
    items = http_client_for(args).get("/v1/dlq/peek", message_id=args.id, **_query(args))["items"]
    if args.json:
        print_rows("dead letters", items, _PEEKED, as_json=True)
    else:
        print_table("dead letters", map(message_row, items), _PEEKED)
    return OK


def run_replay(args: argparse.Namespace) -> int:
    """Replay dead letters, a page after the other where there is a rate."""
    client, body = http_client_for(args), _body(args)
    if args.rate is not None:
        try:
            body["rate_per_s"] = float(args.rate)
        except ValueError:
            raise InvalidError("--rate", args.rate, "a number") from None
    limit = parse_int(args.limit, "--limit", least=1)
    matched = changed = 0
    while True:
        left = given(limit=None if limit is None else limit - matched)
        page = client.post("/v1/dlq/replay", {**body, **left})
        matched, changed = matched + page["matched"], changed + page["changed"]
        if not page["more"] or not page["changed"] or (limit is not None and matched >= limit):
            break
    return _print_report(args, {"matched": matched, "changed": changed, "dry_run": args.dry_run}, "replayed")


def run_delete(args: argparse.Namespace) -> int:
    """Delete dead letters after asking."""
    client = http_client_for(args)
    if not args.dry_run and not confirmed(args, f"Delete dead letters of heap {args.name}?"):
        print_line("Nothing was deleted.")
        return USAGE
    body = {**_body(args), **given(limit=parse_int(args.limit, "--limit", least=1))}
    if not args.dry_run:
        made = client.post("/v1/confirmations", {"action": "heap.dlq.delete", "resource": args.name})
        body |= {"force": True, "confirmation_token": made["confirmationToken"]}
    return _print_report(args, client.post("/v1/dlq/delete", body), "deleted")


def run_move(args: argparse.Namespace) -> int:
    """Make a message a dead letter."""
    body = {"topic": args.name, "message_id": args.message_id, **given(reason=args.reason)}
    done = http_client_for(args).post("/v1/dlq/move", body)
    if args.json:
        print_json(done)
    else:
        print_line(f"{args.message_id} is a dead letter")
    return OK


def _query(args: argparse.Namespace) -> dict[str, object]:
    return {
        "topic": args.name,
        "reason_contains": args.reason,
        "limit": parse_int(args.limit, "--limit", least=1),
        "attempts_min": parse_int(args.attempts_min, "--attempts-min"),
    }


def _body(args: argparse.Namespace) -> dict[str, object]:
    chosen = given(
        message_ids=args.id or None,
        reason_contains=args.reason,
        attempts_min=parse_int(args.attempts_min, "--attempts-min"),
    )
    return {"topic": args.name, "dry_run": args.dry_run, **chosen}


def _print_report(args: argparse.Namespace, report: Mapping[str, Any], done: str) -> int:
    if args.json:
        print_json(report)
    else:
        print_line(f"{report['matched']} match, {report['changed']} {done}")
    return OK
