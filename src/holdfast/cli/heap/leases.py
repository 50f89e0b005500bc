"""`holdfast heap ack`, `nack`, `release`, `extend`: what is done with leases, by their tokens."""

import argparse
from collections.abc import Mapping
from typing import Any

from holdfast.cli.arguments import Parser, Parsers, parse_int
from holdfast.cli.heap.options import add_command, given
from holdfast.cli.http_commands import http_client_for
from holdfast.cli.output import FAILED, OK, print_json, print_line, print_warning


def add_to(actions: "Parsers[Parser]") -> None:
    """Register the subcommands."""
    for name, does in (
        ("ack", "acknowledge messages: they are done"),
        ("nack", "refuse messages: they are tried again, or become dead letters"),
        ("release", "give messages back: they wait again, and it does not count"),
        ("extend", "extend leases, from now"),
    ):
        more = {"nack": " --reason 'no space'", "extend": " --ms 60000"}.get(name, "")
        made = add_command(actions, name, does, f"holdfast heap {name} jobs TOKEN{more}")
        made.add_argument("tokens", metavar="TOKEN", nargs="+", help="lease_token of a pop")
        made.set_defaults(run=run_settle)
        if name == "nack":
            made.add_argument("--reason", metavar="TEXT", default="", help="why")
            made.add_argument("--backoff-ms", metavar="MS", help="the pause (default: as the heap says)")
        if name == "extend":
            made.add_argument("--ms", metavar="MS", required=True, help="how long from now")


def run_settle(args: argparse.Namespace) -> int:
    """Settle leases; 1 if one of them was lost."""
    body: dict[str, object] = {"topic": args.name, "lease_tokens": args.tokens}
    if args.action == "nack":
        body |= given(reason=args.reason, backoff_ms=parse_int(args.backoff_ms, "--backoff-ms"))
    if args.action == "extend":
        body["extension_ms"] = parse_int(args.ms, "--ms", least=1)
    done: Mapping[str, Any] = http_client_for(args).post(f"/v1/{args.action}", body)
    if args.json:
        print_json(done)
    else:
        for each in done["lost"]:
            print_warning(f"lease {each['lease_token']} is lost: {each['reason']}")
        print_line(f"{done['settled']} of {len(args.tokens)} leases: {args.action}")
    return FAILED if done["lost"] else OK
