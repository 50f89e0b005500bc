"""`holdfast pipeline table`: creates the sink's table, or shows how it differs."""

import argparse

from holdfast.cli.arguments import Parser, Parsers
from holdfast.cli.http_commands import http_client_for
from holdfast.cli.output import FAILED, OK, print_json, print_line, print_warning
from holdfast.cli.pipeline.options import add_command
from holdfast.client.http_client import pipeline_path


def add_to(actions: "Parsers[Parser]") -> None:
    """Register the subcommand."""
    made = add_command(
        actions, "table", "create the table, or show how it differs", "holdfast pipeline table orders --diff"
    )
    made.add_argument("--diff", action="store_true", help="compare only, and print the statements that would help")
    made.set_defaults(run=run_table)


def run_table(args: argparse.Namespace) -> int:
    """Create the table if it does not exist; print what differs. Exit with 1 if rows cannot be written to it."""
    client = http_client_for(args)
    method, route = ("GET", "table-diff") if args.diff else ("POST", "table")
    found = client.request(method, pipeline_path(args.name, route)).body
    if args.json:
        print_json(found)
    else:
        print_line(f"{args.name}: the table {'exists' if found['exists'] else 'does not exist'}")
        for statement in found["statements"]:
            print_line(f"{statement};")
        for each in (*found["blockers"], *found["warnings"]):
            print_warning(each)
    return FAILED if found["blockers"] else OK
