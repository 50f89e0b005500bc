"""`holdfast pipeline list`."""

import argparse

from holdfast.cli.arguments import Parser, Parsers
from holdfast.cli.http_commands import http_client_for
from holdfast.cli.output import OK, print_rows
from holdfast.cli.pipeline.options import add_command

_COLUMNS = ("name", "state", "desired", "replicas", "rows", "lagRows", "dlqRows", "recipe")


def add_to(actions: "Parsers[Parser]") -> None:
    """Register the subcommand."""
    made = add_command(actions, "list", "list pipelines and their state", "holdfast pipeline list --json", named=False)
    made.set_defaults(run=run_list)


def run_list(args: argparse.Namespace) -> int:
    """Print every pipeline with its state and progress."""
    print_rows("pipelines", http_client_for(args).get("/api/status"), _COLUMNS, as_json=args.json)
    return OK
