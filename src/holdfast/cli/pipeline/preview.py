"""`holdfast pipeline preview`: rows as they would be stored."""

import argparse
from typing import Any

from holdfast.cli.arguments import Parser, Parsers, parse_int
from holdfast.cli.http_commands import http_client_for
from holdfast.cli.output import OK, print_json, print_line, print_table, print_warning
from holdfast.cli.pipeline.dlq import dead_letter_row
from holdfast.cli.pipeline.file import read_pipeline_file
from holdfast.cli.pipeline.options import add_command
from holdfast.client.http_client import pipeline_path


def add_to(actions: "Parsers[Parser]") -> None:
    """Register the subcommand."""
    made = add_command(
        actions, "preview", "show rows as they would be stored", "holdfast pipeline preview orders -f edited.yaml"
    )
    made.add_argument("--limit", metavar="N", default="20", help="how many records to sample (default: 20)")
    made.add_argument("-f", "--file", metavar="FILE", default="", help="use the parts of this file, not the saved ones")
    made.set_defaults(run=run_preview)


def run_preview(args: argparse.Namespace) -> int:
    """Print rows, refused records, notes and the table's DDL."""
    client = http_client_for(args)
    body: dict[str, Any] = {"limit": parse_int(args.limit, "--limit", least=1) or 20}
    if args.file:
        body["parts"] = read_pipeline_file(args.file, name=args.name).parts
    found = client.post(pipeline_path(args.name, "preview"), body)
    if args.json:
        print_json(found)
        return OK
    rows = [{"offset": f"{each['partition']}:{each['offset']}", **each["row"]} for each in found["rows"]]
    if rows:
        print_table(f"{len(rows)} of {found['sampled']} records", rows, list(rows[0]), vertical=True)
    if found["refused"]:
        print_table("refused", map(dead_letter_row, found["refused"]), ("offset", "reason", "payload"), vertical=True)
    for each in (*found["notes"], *((found["table"] or {}).get("blockers", ()))):
        print_warning(each)
    print_line(found["ddl"])
    return OK
