"""`holdfast pipeline validate`: checks of source and sink, of every kind."""

import argparse
from typing import Final

from holdfast.cli.arguments import Parser, Parsers
from holdfast.cli.http_commands import http_client_for
from holdfast.cli.output import FAILED, OK, print_json, print_table
from holdfast.cli.pipeline.options import add_command
from holdfast.client.http_client import pipeline_path

_CHECKED: Final = ("kafka", "clickhouse", "clickhouse-table")
_CHECKED_OF_OTHERS: Final = ("kafka", "sink")


def add_to(actions: "Parsers[Parser]") -> None:
    """Register the subcommand."""
    made = add_command(
        actions,
        "validate",
        "check source, server and table, or the sink of another kind",
        "holdfast pipeline validate orders",
    )
    made.set_defaults(run=run_validate)


def run_validate(args: argparse.Namespace) -> int:
    """Print every check; exit with 1 if one failed."""
    client, ok = http_client_for(args), True
    sink = client.get(pipeline_path(args.name, "parts")).get("sink", {})
    for what in _CHECKED if sink.get("kind", "clickhouse") == "clickhouse" else _CHECKED_OF_OTHERS:
        found = client.post(pipeline_path(args.name, "validate", what))
        ok &= found["ok"]
        if args.json:
            print_json({"what": what, **found})
        else:
            print_table(what, found["checks"], ("outcome", "name", "detail"))
    return OK if ok else FAILED
