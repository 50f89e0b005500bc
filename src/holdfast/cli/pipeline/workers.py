"""`holdfast pipeline workers`."""

import argparse

from holdfast.cli.arguments import Parser, Parsers
from holdfast.cli.http_commands import http_client_for
from holdfast.cli.output import OK, print_rows
from holdfast.cli.pipeline.options import add_command

_COLUMNS = ("id", "mode", "able", "slots", "driver", "trouble")


def add_to(actions: "Parsers[Parser]") -> None:
    """Register the subcommand."""
    made = add_command(actions, "workers", "list live workers", "holdfast pipeline workers", named=False)
    made.set_defaults(run=run_workers)


def run_workers(args: argparse.Namespace) -> int:
    """Print the live workers."""
    print_rows("workers", http_client_for(args).get("/api/workers"), _COLUMNS, as_json=args.json)
    return OK
